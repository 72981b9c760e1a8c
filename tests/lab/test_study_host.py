"""Studies of Gymnasium environments: cells are runs on the whole machine and survive kills."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clew.errors import UserError
from clew.lab.grid import Evaluation, Pack, QuietStudy, read_results, run_study, runner
from clew.lab.grid.jobs import make_job, run_job
from pixel_maze import pixel_study
from small_study import Killed, stop_at
from worker_processes import KillWorkers, processes, with_paths, workers_of


def test_what_runs_alone_must_be_resumable() -> None:
    with pytest.raises(UserError, match="whole_machine needs a resumable study"):
        pixel_study(evaluation=Evaluation(), resumable=False)


def in_turns(**changes: Any) -> Any:
    """The tiny study without processes."""
    whole = pixel_study(**changes)
    return replace(whole, models={"none": replace(whole.models["none"], runner="sync")})


@pytest.mark.slow
def test_a_cell_of_an_environment_of_others_is_a_run(tmp_path: Path) -> None:
    pack, whole = Pack("none", ("tiny",), (0,)), in_turns()
    job = make_job(whole, pack, tmp_path)
    killed: list[float] = []

    def listen(share: float) -> None:
        killed.append(share)
        stop_at(0.5)(share)

    with pytest.raises(Killed):
        run_job(job, listen)
    shares: list[float] = []
    (row,) = run_job(job, shares.append)
    assert shares[0] > killed[0]  # it did not start over, however late the last checkpoint was
    assert (row["steps"], row["episodes"], row["standard_error"]) == (192, 0, None)
    assert row["curve"]["steps"] == [32, 96, 128, 192]
    assert row["mean"] == row["last"]["return"] and row["last"]["steps"] == 64
    assert row["evaluation"]["means"] is None
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    measured = replace(whole, evaluation=Evaluation(episodes=3))
    task = replace(whole.settings["tiny"], further={"longer": {"length": 9}})
    measured = replace(measured, settings={"tiny": task})
    (row,) = run_job(make_job(measured, pack, tmp_path))
    assert row["episodes"] == 3 and row["evaluation"]["means"]["length"] == 6
    assert row["further"]["longer"]["length"] == 9


@pytest.mark.slow
def test_a_killed_worker_with_actors_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "REPORT_SECONDS", 0.0)  # so that short trainings are seen halfway
    whole = pixel_study(steps=4_000)
    watch = KillWorkers()
    result = run_study(whole, tmp_path, progress=watch)
    assert len(watch.killed) == 1 and ["trying that again" in t for t in watch.messages] == [True]
    assert next(share for share in watch.after if share) > 0.35  # it did not start over
    assert not result.failures
    rows = read_results(tmp_path)
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert all(row["steps"] == 4_000 for row in rows)
    assert run_study(whole, tmp_path, progress=QuietStudy()).rows == result.rows


@pytest.mark.slow
def test_a_study_that_is_told_to_stop_goes_on(tmp_path: Path) -> None:
    script = [sys.executable, str(Path(__file__).parents[1] / "pixel_maze.py")]
    process = subprocess.Popen([*script, str(tmp_path), "4000"], env=with_paths())
    while len(list(tmp_path.glob("runs/*/checkpoints/update-*.clew"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    pool = workers_of(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    deadline = time.monotonic() + 20
    while (left := [p for p, above, _ in processes() if p in pool or above in pool]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert pool and not left
    finished = len(read_results(tmp_path))
    result = run_study(pixel_study(steps=4_000), tmp_path, progress=QuietStudy())
    assert finished < 2 == len(result.rows) == len(read_results(tmp_path))
