"""A study on a Ray cluster of two nodes: the same rows, and nothing lost when a node is killed."""

import importlib
import json
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from clew.cli import run
from clew.errors import UserError
from clew.lab.grid import (
    LocalWorkers,
    QuietStudy,
    RayWorkers,
    StudyInterrupted,
    read_results,
    run_study,
)
from clew.lab.sweep.sweep import run_sweep
from ray_nodes import NODE, needs_ray, two_nodes
from small_study import Watch, assert_whole, begun, small_study
from test_sweep import small_sweep

CELLS = small_study().cells()
TIMES = ("seconds", "pack", "finished")


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU each."""
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture
def ray(cluster):
    """The package, imported here because it may be missing."""
    return importlib.import_module("ray")


@pytest.fixture
def connect(cluster, ray, tmp_path):
    """Connects this process, with the environment variables that pretended work reads."""

    def connect_with(seconds: float = 0.01, **faults: str) -> None:
        pretend = {"PRETEND_FOLDER": str(tmp_path), "PRETEND_SECONDS": str(seconds)}
        pretend["PRETEND_FAULTS"] = json.dumps(faults)
        environment = {"env_vars": pretend}
        ray.init(cluster.address, log_to_driver=False, runtime_env=environment)

    yield connect_with
    ray.shutdown()


def run_pretended(folder: Path, progress=None, study=None):
    """Runs the small study with pretended work on the cluster that this process is connected to."""
    pool = RayWorkers(work="pretended_work:pretend")
    return run_study(study or small_study(), folder, workers=pool, progress=progress or Watch())


class TestCluster:
    """Tests that need Ray."""

    pytestmark = needs_ray

    def test_the_same_study_gives_the_same_rows(self, cluster, tmp_path) -> None:
        study, watch = small_study(episodes=40), Watch()
        cluster.wait_for_nodes()
        with closing(RayWorkers(cluster.address)) as pool:
            assert pool.size == 2
            found = run_study(study, tmp_path / "ray", workers=pool, progress=watch)
        local = LocalWorkers(tmp_path / "logs", 2)
        wanted = run_study(study, tmp_path / "local", workers=local, progress=Watch())
        assert_whole(found)
        for ours, theirs in zip(found.rows, wanted.rows, strict=True):
            assert ours.keys() == theirs.keys() > set(TIMES)
            for key in ours.keys() - set(TIMES):
                assert ours[key] == theirs[key], key
        assert not watch.messages

    def test_a_node_that_is_killed_loses_and_repeats_nothing(
        self, cluster, connect, tmp_path
    ) -> None:
        connect(seconds=4.0)

        def kill(standing) -> None:
            both = list(standing.working.values()) == [0.5, 0.5]
            if cluster.worker_nodes and standing.finished and both:
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

        watch, study = Watch(kill), small_study().only(["gru", "lstm"])
        try:
            result = run_pretended(tmp_path, watch, study)
            cluster.wait_for_nodes()
            with closing(RayWorkers()) as left:
                assert left.size == 1
        finally:
            if not cluster.worker_nodes:
                cluster.add_node(**NODE)
        assert_whole(result, study)
        (again,) = watch.messages
        assert "process" in again and "died (" in again and "node" in again
        twice = {cell for cell in study.cells() if begun(tmp_path).count(cell) == 2}
        assert len(begun(tmp_path)) == 18 + 3 and len(twice) == 3
        assert all(f"{model} on {setting}, seed" in again for model, setting, _ in twice)

    def test_nodes_that_join_are_used(self, cluster, connect, tmp_path) -> None:
        cluster.wait_for_nodes()
        connect(seconds=1.0)
        pool, sizes, added = RayWorkers(work="pretended_work:pretend"), [], []

        def join(standing) -> None:
            sizes.append(pool.size)
            if not added:
                added.append(cluster.add_node(**NODE))

        try:
            assert_whole(run_study(small_study(), tmp_path, workers=pool, progress=Watch(join)))
        finally:
            cluster.remove_node(added[0])
        assert sizes[0] == 2 and sizes[-1] == 3

    def test_what_fails_is_told_and_the_others_go_on(self, connect, tmp_path) -> None:
        faults = {"gru length-1": "raise", "gru length-2": "die", "lstm length-3": "die once"}
        connect(**faults, **{"none length-2": "endless"})
        watch = Watch()
        result = run_pretended(tmp_path, watch)
        failed = {str(pack): error for pack, error in result.failures}
        assert failed["gru on length-1, seeds 4, 0, 7"] == "RuntimeError: nothing works"
        assert all("died" in failed[f"gru on length-2, seed {seed}"] for seed in (4, 0, 7))
        assert "did not end" in failed["none on length-2, seed 0"]
        assert len(failed) == 5 and len(result.rows) == 27 - 7 == len(read_results(tmp_path))
        again = [message for message in watch.messages if "trying that again" in message]
        assert len(again) == 5  # two programs, and three seeds of one of them
        tries = {cell[:2]: begun(tmp_path).count(cell) for cell in CELLS}
        assert tries["gru", "length-2"] == 4 and tries["lstm", "length-3"] == 2

    def test_ctrl_c_ends_what_is_running(self, ray, connect, tmp_path) -> None:
        connect(seconds=2.0)

        def stop(standing) -> None:
            if standing.finished:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(StudyInterrupted, match="of 27 runs are finished and saved"):
            run_pretended(tmp_path, Watch(stop))
        assert ray.is_initialized()  # the test itself connected
        deadline = time.monotonic() + 10.0
        while ray.available_resources().get("CPU") != 2.0:
            assert time.monotonic() < deadline, "something is still running"
            time.sleep(0.1)
        with pytest.raises(UserError, match="connected to Ray: use 'auto' instead of '10.0.0.1"):
            RayWorkers("10.0.0.1:6379")

    def test_work_that_leads_nowhere_stops_the_study(self, connect, tmp_path) -> None:
        connect()
        pool = RayWorkers(work="no_such_module:work")
        with pytest.raises(UserError, match="could not start: .*no_such_module"):
            run_study(small_study(), tmp_path, workers=pool, progress=Watch())

    def test_the_command_finds_a_memory_in_the_current_folder(
        self, cluster, ray, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("mine_on_ray.py").write_text(
            "from clew.memory.none import NoMemory\ndef Mine(input_size, *, key):\n"
            "    return NoMemory(input_size, key=key, hidden_size=64, num_layers=1)\n"
        )
        args = "study makkink --part length --settings length-1 --seeds 1 --episodes 8"
        args += " --evaluation-episodes 4 --models none --add-memory mine_on_ray:Mine"
        args += " --run-dir here --ray"
        assert run([*args.split(), cluster.address]) == 0
        assert {row["model"] for row in read_results("here")} == {"none", "mine"}
        assert not ray.is_initialized()

    def test_who_is_no_cluster_is_named_in_time(self, cluster, monkeypatch) -> None:
        import socket

        monkeypatch.setattr("clew.run.cluster.CONNECT_SECONDS", 3.0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(UserError, match=f"{address}.*within 3 seconds.*ray start --head"):
                RayWorkers(address)
        with pytest.raises(UserError, match="no Ray cluster at '127.0.0.1:1': .*refused"):
            RayWorkers("127.0.0.1:1")
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:2")
        with pytest.raises(UserError, match="no Ray cluster at '127.0.0.1:2': .*ray start --head"):
            RayWorkers()


def test_a_sweep_on_the_cluster_is_the_one_on_this_machine(cluster, ray, tmp_path) -> None:
    """The same settings are tried, and the best is trained again; scores differ by rounding."""
    sweep = small_sweep(trials=3, fresh_seeds=2, at_once=2, episodes=5)
    here = run_sweep(sweep, tmp_path / "here", workers=1, progress=QuietStudy())
    with closing(RayWorkers(cluster.address)) as workers:
        there = run_sweep(sweep, tmp_path / "there", workers=workers, progress=QuietStudy())
    tried = [[(t.number, t.values, t.state) for t in found.tried["gru"]] for found in (here, there)]
    assert tried[0] == tried[1] and [state for *_, state in tried[1]] == ["complete"] * 3
    for scores in (here.winners["gru"].best.scores, there.winners["gru"].best.scores):
        assert len(scores) == 2
