"""Twenty of each fault that ends a process or a run: each time it resumes what was saved."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.errors import UserError
from clew.interact.task import HostConfig
from clew.run import checkpoint
from clew.run.config import TrainConfig
from clew.run.metrics import read_metrics
from clew.run.progress import Quiet
from clew.run.runner import EnvironmentFailed
from clew.run.train import train
from small_async import LENGTH, order, run_dir
from small_run import full_disk

TIMES = 20
PER_UPDATE = 4 * LENGTH

CHILD = """
import sys
sys.path[:0] = {tests!r}
from pathlib import Path
from test_host_endurance import begin_or_go_on
from small_run import full_disk
if __name__ == "__main__":
    begin_or_go_on(Path({folder!r}), {runner!r})
"""


def endless(folder: Path, runner: str = "sync", **changes: Any) -> TrainConfig:
    """More updates than any test waits for, with a checkpoint after each one."""
    settings = {"steps": PER_UPDATE * 10_000_000, "checkpoint_seconds": 0.0, "log_every": 1}
    return run_dir(folder, runner=runner, **{**settings, **changes})


def begin_or_go_on(folder: Path, runner: str) -> None:
    """The work of a process that is to be killed."""
    config = endless(folder, runner)
    train(config, resume=(folder / "run" / "config.json").exists(), progress=Quiet())


def newest(folder: Path) -> int:
    """The update of the newest checkpoint, -1 if there is none."""
    kept = checkpoint.list_checkpoints(folder / "run" / "checkpoints")
    return int(kept[-1].stem.removeprefix("update-")) if kept else -1


def kill_later(folder: Path, runner: str, moments: random.Random) -> None:
    """Trains in another process, which is killed soon after it has written a checkpoint."""
    tests = [str(path) for path in Path(__file__).parents[:2]]
    code = CHILD.format(tests=tests, folder=str(folder), runner=runner)
    script = folder / "child.py"  # actors import the main module, which must be a file
    script.write_text(code)
    began, said = newest(folder), folder / "said"
    with said.open("w") as out:
        process = subprocess.Popen([sys.executable, str(script)], stdout=out, stderr=out)
    deadline = time.monotonic() + 300
    while newest(folder) <= max(began, 0):
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline, "no checkpoint in five minutes"
        time.sleep(0.02)
    time.sleep(moments.uniform(0.0, 0.5))
    process.kill()
    process.wait()


def assert_one_history(folder: Path) -> None:
    """No row of metrics is missing or there twice, up to the newest checkpoint and beyond."""
    updates = [row["update"] for row in read_metrics(folder / "run")]
    assert updates == list(range(1, len(updates) + 1))
    assert len(updates) >= newest(folder)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["sync", "async"])
def test_a_learner_killed_twenty_times_loses_no_checkpoint(tmp_path: Path, runner: str) -> None:
    """Every process continues from the newest checkpoint of the one before."""
    moments = random.Random(0)
    reached = -1
    for _ in range(TIMES):
        kill_later(tmp_path, runner, moments)
        assert newest(tmp_path) > reached
        reached = newest(tmp_path)
        assert_one_history(tmp_path)
    config = endless(tmp_path, runner, steps=(reached + 3) * PER_UPDATE)
    with pytest.raises(UserError, match="steps can only be raised"):
        train(config, resume=True, progress=Quiet())


class At(Quiet):
    """Calls `action` once, after this many updates."""

    def __init__(self, update: int, action: Any):
        self.update, self.action = update, action

    def report(self, report: Any) -> None:
        """Checks how far the run is."""
        if self.action is not None and report.steps >= self.update * PER_UPDATE:
            action, self.action = self.action, None
            action()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["sync", "async"])
def test_a_disk_full_twenty_times_loses_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    """The run ends with one line that says so, and continues once there is room."""
    for number in range(TIMES):
        before = newest(tmp_path)
        where = ("replace", "fsync")[number % 2]
        at = At(max(before, 0) + 2, lambda where=where: monkeypatch.setattr(os, where, full_disk))
        resume = (tmp_path / "run" / "config.json").exists()
        with pytest.raises(UserError, match="No space left"):
            train(endless(tmp_path, runner), resume=resume, progress=at)
        monkeypatch.undo()
        assert newest(tmp_path) > before
        assert not list(tmp_path.rglob("*.writing"))
        assert_one_history(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["nan observation", "inf reward"])
@pytest.mark.parametrize("runner", ["sync", "async"])
def test_numbers_that_are_none_twenty_times(tmp_path: Path, runner: str, trouble: str) -> None:
    """Each is reported with its environment, step and field; none is used for learning."""
    script, field = tmp_path / "script", trouble.split()[1]
    says = rf"environment [0-3] gave (nan|inf) in its {field}, 1 steps into its episode"
    changes = {
        "env": "labelled:Scripted",
        "env_options": {"script": str(script)},
        "host": HostConfig(timeout=60.0, restarts=9),
    }
    for number in range(TIMES):
        before = newest(tmp_path)
        at = At(max(before, 0) + 1, lambda: order(script, trouble))
        with pytest.raises(EnvironmentFailed, match=says):
            train(endless(tmp_path, runner, **changes), resume=number > 0, progress=at)
        assert newest(tmp_path) > before
        _, found, _ = checkpoint.load_newest(
            tmp_path / "run" / "checkpoints", lambda read: read.leaves
        )  # type: ignore[misc]
        numbers = [x for x in found.values() if np.issubdtype(x.dtype, np.floating)]
        assert all(np.isfinite(x).all() for x in numbers)
        assert_one_history(tmp_path)
