"""Asynchronous runs from the command to the summary: rows, Ctrl-C, kills, learner errors."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_async_faults import nothing_left, wait_until_gone

import clew
from clew.agents.learners.ppo import PPOConfig
from clew.errors import UserError
from clew.names import METRICS
from clew.run import checkpoint
from clew.run.asynchronous import program
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.metrics import read_metrics, refuse_taken_names
from clew.run.runner import EnvironmentFailed, TrainingInterrupted
from small_async import LENGTH, run_dir
from small_run import Watch, newest

__all__ = ["nothing_left"]

UPDATE = 4 * LENGTH
VTRACE = PPOConfig(
    num_envs=4, rollout_length=LENGTH, sequence_length=4, minibatches=1, epochs=1,
    advantages="vtrace",
)  # fmt: skip


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process ids of all actors that a test starts."""
    found: list[int] = []
    publish = program.ProcessPool.publish

    def noticed(self: Any, *args: Any) -> None:
        publish(self, *args)
        found.extend(r.process.pid for r in self._running if r.process.pid not in found)

    monkeypatch.setattr(program.ProcessPool, "publish", noticed)
    return found


def test_a_run_its_rows_ctrl_c_and_going_on(
    tmp_path: Path, pids: list[int], nothing_left: None
) -> None:
    """With V-trace. The lag is positive and bounded by the settings."""
    config = run_dir(
        tmp_path, ppo=VTRACE, steps=UPDATE * 24, asynchronous=AsyncConfig(queue=2, max_lag=3)
    )

    def stop(report: Any) -> None:
        if report.steps >= 8 * UPDATE:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(TrainingInterrupted, match="clew train --resume"):
        clew.train(config, progress=Watch(stop))
    wait_until_gone(pids)
    assert len(pids) == 2
    result = clew.train(config, resume=True, progress=Watch())
    assert result.summary["updates"] == 24
    rows = read_metrics(result.path)
    assert [row["update"] for row in rows] == list(range(2, 25, 2))
    assert max(row["lag_max"] for row in rows) in (1, 2, 3)
    assert all(0 <= row["lag"] <= row["lag_max"] for row in rows)
    assert all(0 <= row[name] <= 1 for row in rows for name in ("actor_wait", "learner_wait"))
    assert sum(row["dropped"] for row in rows) >= 0 and sum(r["episodes"][0] for r in rows) > 20
    for name in rows[-1].keys() - set(METRICS):  # none of the task's metrics may have such a name
        with pytest.raises(UserError, match=f"has a metric '{name}'"):
            refuse_taken_names(config, [name])
    wait_until_gone(pids)


@pytest.mark.slow
def test_an_error_of_the_learner_ends_everything(
    tmp_path: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own traceback; NaN or infinity saves first and says how to resume."""
    monkeypatch.setattr(program, "merged", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clew.train(run_dir(tmp_path), progress=Watch())
    wait_until_gone(pids)
    monkeypatch.undo()
    config = run_dir(
        tmp_path / "nan", env="labelled:Troubled", env_options={"trouble": "nan observation"}
    )
    with pytest.raises(EnvironmentFailed, match=r"gave nan in its observation(.|\n)*--resume"):
        clew.train(config, progress=Watch())
    assert "update" in str(next((tmp_path / "nan" / "run" / "checkpoints").iterdir()))


LEARNER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import clew
from clew.run import train as training
from small_async import run_dir
from small_run import Watch

def tell(report):
    if report.steps > 200:
        print(*(r.process.pid for r in tell.program._pool._running), flush=True)

class Known(training.AsyncProgram):
    def __init__(self, *args):
        super().__init__(*args)
        tell.program = self

training.AsyncProgram = Known
if __name__ == "__main__":
    clew.train(run_dir(Path({folder!r}), steps=10**7, checkpoint_seconds=0.0), progress=Watch(tell))
"""


@pytest.mark.slow
def test_a_killed_learner_leaves_nothing_and_can_be_resumed(
    tmp_path: Path, nothing_left: None
) -> None:
    """Its actors notice; their shared memory had no name."""
    script = tmp_path / "learner.py"
    script.write_text(LEARNER.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path)))
    learner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert learner.stdout is not None
    pids = [int(word) for word in learner.stdout.readline().split()]
    assert len(pids) == 2
    os.kill(learner.pid, signal.SIGKILL)
    learner.communicate()
    wait_until_gone(pids)
    made = saved(tmp_path / "run")
    assert made >= 1
    with pytest.raises(TrainingInterrupted):
        clew.resume_run(tmp_path / "run", steps=10**7, progress=Watch(stop_soon(made)))
    assert saved(tmp_path / "run") > made


def saved(path: Path) -> int:
    """Updates in a run's newest checkpoint."""
    return checkpoint.read(newest(path)).meta["update"]


def stop_soon(made: int) -> Any:
    """Ctrl-C ten updates later."""

    def look(report: Any) -> None:
        if report.steps >= (made + 10) * UPDATE:
            signal.raise_signal(signal.SIGINT)

    return look
