"""The parts of asynchronous training: shared arrays, merged statistics, lag, settings."""

import multiprocessing
import threading
from typing import Any, cast

import numpy as np
import pytest

from clew.agents.learners.ppo import PPOConfig
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.wrappers import RunningMoments
from clew.errors import UserError, notes_of
from clew.interact.task import HostConfig
from clew.run.asynchronous.actor import gathered_template
from clew.run.asynchronous.heartbeat import HangDetector, Heartbeat
from clew.run.asynchronous.pool import ActorRollout, Ready
from clew.run.asynchronous.program import merged
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.asynchronous.shared import ByteLayout, Versions, shared_bytes
from clew.run.build import make_parts, make_task
from clew.run.config import TrainConfig, config_from_json
from clew.run.hosted import FaultBudget
from small_async import async_config

TREE = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": (np.array(True), np.zeros((0, 4), np.uint8), np.array([3, -1])),
}


def test_a_tree_is_read_as_it_was_written() -> None:
    """Shapes, types and values are the same; another tree is refused."""
    layout = ByteLayout(TREE)
    memory = np.zeros(layout.size, np.uint8)
    layout.write(memory, TREE)
    read = layout.views(memory)
    assert read["a"].dtype == np.float32 and read["b"][1].shape == (0, 4)
    for array, expected in zip((read["a"], *read["b"]), (TREE["a"], *TREE["b"]), strict=True):
        np.testing.assert_array_equal(array, expected)
    with pytest.raises(ValueError, match="expected arrays as"):
        layout.write(memory, {"a": TREE["a"]})
    with pytest.raises(ValueError, match=r"expected an array float32\[2, 3\], got float32\[3, 2\]"):
        layout.write(memory, TREE | {"a": TREE["a"].T})


def test_nobody_reads_half_of_a_version() -> None:
    """With lock-free readers beside a writer that never rests."""
    layout = ByteLayout({"x": np.zeros(50_000, np.int64)})
    memory = shared_bytes(multiprocessing.get_context("spawn"), Versions.size(layout))
    writer, reader = Versions(memory, layout), Versions(memory, layout)
    writer.write(1, {"x": np.full(50_000, 1)})
    stop = threading.Event()

    def write() -> None:
        version = 1
        while not stop.is_set():
            version += 1
            writer.write(version, {"x": np.full(50_000, version)})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        found = [reader.read() for _ in range(200)]
    finally:
        stop.set()
        thread.join()
    for version, tree in found:
        assert (tree["x"] == version).all()
    versions = [version for version, _ in found]
    assert versions == sorted(versions) and len(set(versions)) > 1


def moments_state(moments: RunningMoments) -> dict[str, Any]:
    """In the form of `VectorWrappers.state`."""
    return {"count": np.array(moments.count), "mean": moments.mean.copy(), "m2": moments.m2.copy()}


def test_merged_statistics_are_those_of_all_that_was_seen() -> None:
    """Two actors have one start, and the second one's rollout begins before the first's ends."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 3)) * 4 + 7 for n in (50, 30, 20)]

    def moments(*seen: np.ndarray) -> dict[str, Any]:
        running = RunningMoments.of((3,))
        for array in seen:
            running.update(array)
        return moments_state(running)

    def squares(*seen: np.ndarray) -> dict[str, Any]:
        flat = np.concatenate(seen).ravel()
        return {"count": np.array(float(flat.size)), "mean_square": np.mean(flat**2)}

    a, b, c = parts
    for told in (moments, squares):
        first = merged({"x": told(a)}, {"x": told(a)}, {"x": told(a, b)})
        np.testing.assert_equal(first, {"x": told(a, b)})
        both = merged(first, {"x": told(a)}, {"x": told(a, c)})
        for name, value in told(a, b, c).items():
            np.testing.assert_allclose(both["x"][name], value, rtol=1e-9)
    assert merged({}, {}, {}) == {}


def test_what_is_too_old_is_dropped_and_whose_it_is_told() -> None:
    """At max_lag a rollout is used, beyond it not."""
    ready, nothing = Ready[str](max_lag=2), cast(Any, None)
    for actor, version in ((1, 4), (2, 5), (0, 6), (3, 3)):
        ready.add(f"actor {actor}", ActorRollout(version, actor, nothing, 1.0, 0.0))
    assert ready.drop(7) == ["actor 1", "actor 3"] and ready.enough(2)
    owners, rollouts = ready.take(2)
    assert owners == ["actor 2", "actor 0"] and [r.version for r in rollouts] == [6, 5]
    assert not ready.enough(1) and ready.drop(99) == []


def test_consecutive_rollouts_are_one_of_every_actor() -> None:
    """A slow actor is waited for; rollouts of a fast one keep their order, and never expire."""
    ready, nothing = Ready[str](max_lag=2, consecutive=True), cast(Any, None)
    for actor, version in ((1, 0), (1, 1)):
        ready.add(f"actor {actor}", ActorRollout(version, actor, nothing, 1.0, 0.0))
    assert not ready.enough(2)
    ready.add("actor 0", ActorRollout(0, 0, nothing, 1.0, 0.0))
    assert ready.enough(2)
    owners, rollouts = ready.take(2)
    assert owners == ["actor 1", "actor 0"]
    assert [(r.actor, r.version) for r in rollouts] == [(0, 0), (1, 0)]
    assert not ready.enough(2) and ready.drop(99) == []  # the next one continues the last
    assert ready.take(1)[1][0].version == 1


def test_what_fails_the_same_way_twice_at_once_is_no_accident() -> None:
    """At the same step, before a whole rollout; a traceback is logged once."""

    def fault(text: str, steps: int) -> EnvironmentFault:
        made = EnvironmentFault(f"maze {text}", field="step", cause=text)
        made.steps = steps
        made.add_note("Traceback of the maze")
        return made

    told: list[str] = []
    budget = FaultBudget(9, told.append)
    budget.spend(fault("wall 1 at 0x7f", 3))
    budget.spend(fault("wall 2 at 0x9e", 4))  # later than that, the run may continue
    budget.stepped()
    budget.spend(fault("wall 1", 4))
    budget.spend(fault("door", 4))
    budget.spend(fault("door", 4), actor=1)
    with pytest.raises(EnvironmentFault, match="twice at the same step, so it is") as last:
        budget.spend(fault("door", 4), actor=1)
    assert notes_of(last.value) == []
    assert ["Traceback" in text for text in told] == [True, False, True, True, False]


def test_so_many_faults_are_survived_and_no_number_that_is_none() -> None:
    """The message has their number."""
    told: list[str] = []
    budget = FaultBudget(2, told.append)
    for field in ("step", "worker"):
        budget.spend(EnvironmentFault(f"bad {field}", field=field))
    assert told[1] == "bad worker; reopened (2 of at most 2 times)"
    with pytest.raises(EnvironmentFault, match="third"):
        budget.spend(EnvironmentFault("third", field="reset"))
    for field in ("reward", "observation pixels"):
        with pytest.raises(EnvironmentFault, match="nan"):
            FaultBudget(9, told.append).spend(EnvironmentFault("nan", field=field))
    assert len(told) == 2


def test_who_hangs_and_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling may take long, waiting for the learner forever, environments until the timeout."""
    now = [0.0]
    monkeypatch.setattr("clew.run.asynchronous.heartbeat.time.monotonic", lambda: now[0])
    heartbeat = Heartbeat(np.zeros(40, np.uint8))
    heartbeat.begin()
    detector = HangDetector(heartbeat, 5.0)

    def after(seconds: float) -> str:
        now[0] += seconds
        return detector.hung()

    assert after(290) == "" and "within 300 s" in after(11)
    with heartbeat.at_environments():
        heartbeat.progress[0] = 1
        assert after(1) == "" and after(4.9) == ""
        assert after(0.2) == "its environment 1 gave no sign of life within 5 s"
        heartbeat.progress[0] = -1
    assert after(0) == "" and after(100) == ""
    heartbeat.gathered()
    assert after(0) == "" and after(5.1) == "it gave no sign of life within 5 s"
    heartbeat.waiting()
    assert after(0) == "" and after(1e6) == ""
    detector.answering()
    assert after(4.9) == "" and after(0.2) == "it gave no sign of life within 5 s"
    heartbeat.acting()
    heartbeat.waiting()  # it has answered, and waits for more
    assert after(0) == "" and after(1e6) == ""
    heartbeat.stop()
    with pytest.raises(SystemExit):
        heartbeat.acting()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"runner": "asynch"}, "'asynch'; did you mean 'async'"),
        ({"env": "tmaze"}, "runner async is for Gymnasium environments; tmaze is written in JAX"),
        (
            {"algorithm": "a2c", "steps": 4096},
            "runner async needs algorithm 'ppo' or 'pqn' or 'r2d2' or 'sac', got 'a2c'",
        ),
        ({"seeds": 2}, "runner async needs seeds 1, got 2"),
        ({"host": HostConfig(processes=2)}, "runner async needs host.processes 0, got 2"),
        ({"asynchronous": AsyncConfig(actors=3)}, "got 3 actors for 4 environments"),
        ({"asynchronous": AsyncConfig(actors=0)}, "asynchronous.actors must be an integer of at"),
        ({"asynchronous": AsyncConfig(max_lag=-1)}, "asynchronous.max_lag must be an integer"),
        ({"asynchronous": AsyncConfig(queue=-1)}, "asynchronous.queue must be an integer"),
    ],
)
def test_impossible_settings(changes: dict[str, Any], says: str) -> None:
    """Each gives an error of one line."""
    with pytest.raises(UserError, match=says):
        make_parts(async_config(**changes))


def test_the_runner_names_a_result_where_it_changes_it() -> None:
    """A serial run has the synchronous one's name; its own settings are still saved."""
    plain = async_config(runner="sync")
    serial = async_config(asynchronous=AsyncConfig(serial=True))
    lagging = async_config(ppo=PPOConfig(num_envs=4))
    assert plain.digest() == serial.digest()
    assert "runner" not in TrainConfig().identity()
    assert lagging.identity()["asynchronous"]["queue"] == 1
    digests = {async_config(asynchronous=AsyncConfig(queue=q)).digest() for q in (0, 1)}
    assert len(digests | {plain.digest()}) == 3
    assert config_from_json(serial.to_json()) == serial


def test_categories_make_no_warning() -> None:
    """Gymnasium's categories are int64, which JAX casts to int32 with a warning."""
    config = async_config(env="faults.environments:Faulty")
    task: Any = make_task(config)
    gathered_template(config, task, 4)
