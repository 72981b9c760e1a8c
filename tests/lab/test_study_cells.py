"""Long cells are runs with checkpoints that continue after a kill, or with a larger budget."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clew.errors import UserError
from clew.lab.grid import Cell, Pack, QuietStudy, make_packs, read_results, run_study
from clew.lab.grid.jobs import (
    agent_of,
    checkpoints_of,
    learning_curve,
    make_job,
    provenance,
    run_job,
    run_name,
)
from clew.lab.grid.results import finished_cells
from clew.memory.kernels import why_not
from clew.memory.kernels.build import source_hash
from clew.run.metrics import read_metrics
from small_cells import FURTHER, small_cells, timeless
from small_study import Killed, stop_at
from worker_processes import KillWorkers, with_paths

CELL = Cell("gru", "corridor-3", 0)
PACK = Pack("gru", ("corridor-3",), (0,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder, and the row of a cell that was never interrupted."""
    path = tmp_path_factory.mktemp("whole")
    (row,) = run_job(make_job(small_cells(), PACK, path))
    return path, row


@pytest.mark.slow
def test_a_row_tells_training_end_and_other_corridors(whole) -> None:
    path, row = whole
    assert (row["model"], row["setting"], row["seed"], row["steps"]) == (*CELL, 960)
    assert row["mean"] == row["evaluation"]["means"]["success"] and row["episodes"] == 20
    assert row["curve"]["steps"] == [160, 320, 480, 640, 800, 960]
    rows = read_metrics(path / "runs" / run_name(CELL))
    assert sum(row["curve"]["episodes"]) == sum(r["episodes"][0] for r in rows)
    ended = [r for r in rows if r["steps"] > 800]
    number = sum(r["episodes"][0] for r in ended)
    total = sum(r["success"][0] * r["episodes"][0] for r in ended if r["episodes"][0])
    assert row["last"]["episodes"] == number and row["last"]["steps"] == 160
    assert row["last"]["success"] == pytest.approx(total / number, rel=1e-3)
    assert row["further"].keys() == FURTHER.keys()
    assert row["seconds"] == pytest.approx(sum(row["timed"].values()), abs=0.002)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert len(list((path / "runs" / run_name(CELL) / "checkpoints").glob("*.clew"))) == 1


def test_rows_say_the_same_of_how_they_were_made() -> None:
    """A worker that ran another model before writes the same as a fresh one."""
    study = small_cells()
    config = study.config("gru", "corridor-3", (0,))
    plain = replace(config, memory="none", memory_options={})
    kernels = [provenance(agent_of(c)[1])["versions"].get("kernels") for c in (plain, config)]
    again = [provenance(agent_of(c)[1])["versions"].get("kernels") for c in (config, plain)]
    assert kernels == again[::-1]
    assert kernels == [None, why_not() or source_hash()]


@pytest.mark.slow
def test_a_killed_cell_goes_on_and_ends_as_if_nothing_had_been(whole, tmp_path) -> None:
    job = make_job(small_cells(), PACK, tmp_path)
    for share in (0.3, 0.7):
        with pytest.raises(Killed):
            run_job(job, stop_at(share))
    assert checkpoints_of(small_cells(), PACK, tmp_path)
    shares: list[float] = []
    (row,) = run_job(job, shares.append)
    assert shares[0] > 0.3  # it did not start over
    assert timeless(row) == timeless(whole[1])


def test_more_steps_go_on_from_where_fewer_ended(whole, tmp_path) -> None:
    study = small_cells(steps=640)
    run_job(make_job(study, PACK, tmp_path))
    more = small_cells()
    assert study.digest("gru", "corridor-3") == more.digest("gru", "corridor-3")
    shares: list[float] = []
    (row,) = run_job(make_job(more, PACK, tmp_path), shares.append)
    assert min(shares) > 0.66
    assert timeless(row) == timeless(whole[1])
    with pytest.raises(UserError, match="can only be raised, got 640"):
        run_job(make_job(study, PACK, tmp_path))


def test_rows_of_another_budget_stay_and_are_not_the_ones_wanted(whole, tmp_path) -> None:
    row = whole[1]
    assert finished_cells(small_cells(), [row], tmp_path) == {CELL}
    assert finished_cells(small_cells(steps=1600), [row], tmp_path) == set()
    harder = small_cells(last_steps=320)
    with pytest.raises(UserError, match="gru on corridor-3 with other settings"):
        finished_cells(harder, [row], tmp_path)


def test_agents_that_fail_at_home_are_not_sent_further(tmp_path) -> None:
    study = small_cells(steps=16)
    job = make_job(study, PACK, tmp_path) | {"further_needs": "timeout"}
    (row,) = run_job(job)
    assert row["further"] is None and row["curve"]["steps"] == [16]


def test_cells_are_begun_seed_by_seed() -> None:
    order = [(*pack.seeds, pack.model) for pack in make_packs(small_cells())]
    assert order == [(0, "none"), (0, "gru"), (1, "none"), (1, "gru")]
    left = make_packs(small_cells(), {Cell("gru", "corridor-3", 0)})
    assert [(*pack.seeds, pack.model) for pack in left] == [(0, "none"), (1, "none"), (1, "gru")]


def test_a_budget_in_steps_is_needed() -> None:
    with pytest.raises(UserError, match="resumable study needs its budget as steps"):
        small_cells(steps=None, episodes=10)


def test_a_curve_without_episodes_says_so() -> None:
    rows = [
        {"steps": 10, "episodes": [0], "success": [None]},
        {"steps": 20, "episodes": [1], "success": [1.0]},
        {"steps": 30, "episodes": [3], "success": [0.0]},
    ]
    curve = learning_curve(rows, ("success",), 3)
    assert curve == {"steps": [10, 20, 30], "episodes": [0, 1, 3], "success": [None, 1.0, 0.0]}
    assert learning_curve(rows, ("success",), 1) == {
        "steps": [30],
        "episodes": [4],
        "success": [0.25],
    }


@pytest.mark.slow
def test_a_study_survives_its_workers(tmp_path) -> None:
    watch = KillWorkers()
    study = small_cells(models={"gru": small_cells().models["gru"]}, seeds=(0,), steps=32_000)
    result = run_study(study, tmp_path, workers=1, progress=watch)
    assert watch.killed and ["trying that again" in text for text in watch.messages] == [True]
    assert min(share for share in watch.after if share) > 0.35  # it did not start over
    assert [row["steps"] for row in result.rows] == [32_000] and not result.failures


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_within_its_cells(whole, tmp_path) -> None:
    script = str(Path(__file__).parent / "small_cells.py")
    process = subprocess.Popen([sys.executable, script, str(tmp_path)], env=with_paths())
    while len(list(tmp_path.glob("runs/gru*/checkpoints/update-*.clew"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    finished = len(read_results(tmp_path))
    result = run_study(small_cells(), tmp_path, workers=1, progress=QuietStudy())
    assert finished < 4 == len(result.rows) == len(read_results(tmp_path))
    (row,) = (row for row in result.rows if (row["model"], row["seed"]) == ("gru", 0))
    assert row["curve"]["steps"] == whole[1]["curve"]["steps"]
