"""How the study engine handles a Ray cluster's answers, and wrong addresses; without Ray."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clew.cli import run
from clew.errors import UserError
from clew.lab.grid import Event, RayWorkers, make_packs
from clew.lab.grid.jobs import make_job
from clew.lab.grid.worker import run_task
from fake_ray import FakeRay, RayError, RayTaskError, RuntimeEnvSetupError
from small_study import small_study

STUDY = small_study()
FIRST, SECOND = make_packs(STUDY)[:2]
ROWS = json.dumps({"kind": "rows", "rows": [{"seed": 4}]})


@pytest.fixture
def fake(monkeypatch):
    """A cluster in place of Ray's."""
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return ray


@pytest.fixture
def pool(fake):
    """Workers that run two packs."""
    workers = RayWorkers()
    for pack in (FIRST, SECOND):
        workers.submit(pack, make_job(STUDY, pack, Path()))
    return workers


def test_ray_that_is_missing_is_told_with_the_extra(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["study", "makkink", "--ray", "auto"]) == 2
    assert "not installed: pip install 'clew[ray]'" in capsys.readouterr().err


def test_a_cluster_and_local_workers_exclude_each_other(capsys) -> None:
    assert run(["study", "makkink", "--ray", "auto", "--workers", "2"]) == 2
    assert "--ray and --workers exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["nonsense", "host:port", "ray://", ":1", "http://x:1", "x:-1"])
def test_what_is_no_address(address, fake, monkeypatch) -> None:
    monkeypatch.setattr(fake, "is_initialized", lambda: False)
    with pytest.raises(
        UserError, match=f"auto, local, HOST:PORT or ray://HOST:PORT, got '{address}'"
    ):
        RayWorkers(address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_where_nobody_listens(address, fake, monkeypatch) -> None:
    monkeypatch.setattr(fake, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=f"no Ray cluster at '{address}': .*`ray start --head`"):
        RayWorkers(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=f"no Ray cluster at '{address}'"):
        RayWorkers("auto")


def test_a_connection_that_is_there_is_taken_and_left(fake, pool) -> None:
    with pytest.raises(UserError, match="use 'auto' instead of '127.0.0.1:1'"):
        RayWorkers("127.0.0.1:1")
    pool.close()
    pool.close()
    assert fake.cancelled == ["run_task 0", "run_task 1"] and len(fake.killed) == 1
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_one_cpu_one_thread_and_no_retries_of_ray(fake, pool) -> None:
    options = fake.options["run_task"]
    assert (options["num_cpus"], options["max_retries"]) == (1, 0)
    variables = options["runtime_env"]["env_vars"]
    assert "--xla_cpu_multi_thread_eigen=false" in variables["XLA_FLAGS"]
    assert variables["NPROC"] == variables["OMP_NUM_THREADS"] == "1"
    places = variables["PYTHONPATH"].split(os.pathsep)
    assert os.getcwd() in places and str(Path(__file__).parents[1]) in places
    assert not any("site-packages" in place for place in places)
    assert "HOME" not in variables and "PATH" not in variables
    assert json.loads(fake.called[-1][1][1]) == make_job(STUDY, SECOND, Path())


def test_rows_failures_and_deaths_become_events(fake, pool) -> None:
    assert pool.next(0.0) is None
    fake.results["run_task 1"] = ROWS
    who = "a process of the cluster"
    assert pool.next(0.0) == Event("rows", SECOND, who, rows=[{"seed": 4}])
    pool.submit(SECOND, make_job(STUDY, SECOND, Path()))
    fake.results["run_task 2"] = json.dumps({"kind": "failed", "error": "no", "begun": True})
    assert pool.next(0.0) == Event("failed", SECOND, who, error="no", begun=True)
    fake.results["run_task 0"] = RayError("The node is dead. See the logs.\nMuch more.")
    assert pool.next(0.0) == Event("died", FIRST, who, error=f"{who} died (The node is dead)")


def test_a_connection_that_is_lost_stops_the_study(fake, pool, monkeypatch) -> None:
    fake.results["run_task 0"] = ConnectionError("nobody there")
    with pytest.raises(UserError, match="lost .nobody there.; finished runs are saved"):
        pool.next(0.0)
    monkeypatch.setattr(fake, "is_initialized", lambda: False)
    pool.close()
    assert not fake.cancelled and not fake.killed


@pytest.mark.parametrize("kind", [RayTaskError, RuntimeEnvSetupError])
def test_a_task_that_cannot_start_stops_the_study(kind, fake, pool) -> None:
    fake.results["run_task 0"] = kind(
        "Traceback ...\nModuleNotFoundError: No module named 'clew'\n"
    )
    with pytest.raises(UserError, match="could not start: ModuleNotFoundError: No module"):
        pool.next(0.0)


def test_shares_are_told_unless_the_pack_has_ended(fake, pool) -> None:
    fake.results |= {"read 0": {0: ("process 7", 0.25), 1: ("process 8", 0.5)}}
    fake.cpus = 3.0
    assert pool.next(0.0) is None and pool.size == 3
    assert pool.next(0.0) == Event("progress", SECOND, "process 8", share=0.5)
    assert pool.next(0.0) == Event("progress", FIRST, "process 7", share=0.25)
    fake.results |= {"run_task 0": ROWS, "read 1": {0: ("process 7", 1.0)}}
    assert pool.next(0.0) == Event("rows", FIRST, "process 7", rows=[{"seed": 4}])
    assert pool.next(0.0) is None and pool.next(0.0) is None


def test_a_progress_actor_that_died_is_read_again(fake, pool) -> None:
    fake.results["read 0"] = RayError("its node has died")
    fake.cpus = 0.0
    assert pool.next(0.0) is None
    assert pool.size == 1, "one pack waits for a node"
    fake.results["read 1"] = {0: ("process 9", 0.75)}
    assert pool.next(0.0) is None
    assert pool.next(0.0) == Event("progress", FIRST, "process 9", share=0.75)


@pytest.mark.parametrize("fault", ["", "raise", "endless"])
def test_a_task_answers_as_a_local_worker_does(fault, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PRETEND_FOLDER", str(tmp_path))
    monkeypatch.setenv("PRETEND_FAULTS", json.dumps({f"{FIRST.model} {FIRST.settings[0]}": fault}))
    told = []
    progress = SimpleNamespace(report=SimpleNamespace(remote=lambda *args: told.append(args)))
    job = json.dumps(make_job(STUDY, FIRST, Path()))
    answer = json.loads(run_task("pretended_work:pretend", job, 5, progress))
    assert [(key, share) for key, _, share in told] == [(5, 0.0), (5, 0.5)][
        : 1 + (fault != "raise")
    ]
    if not fault:
        assert [row["seed"] for row in answer["rows"]] == list(FIRST.seeds)
    else:
        assert answer["kind"] == "failed" and answer["begun"] == (fault == "endless")
