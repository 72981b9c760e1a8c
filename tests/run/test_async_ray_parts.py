"""Actors on a Ray cluster, tested without a cluster: their answers, and how they are used."""

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks import ray_actors
from fake_actors import FakeActors, PromptActors

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.cli import run
from clew.errors import UserError
from clew.interact.hosted_task import HostedTask
from clew.run import cluster, folder
from clew.run.asynchronous.actor import ActorParams, ActorSpec
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_parts
from clew.run.config import config_from_json
from clew.run.updates import init_run
from fake_ray import ActorDiedError, RayError, RayTaskError
from small_async import async_config, run_dir

MODULES = ("ray_actor", "ray_pool")


@pytest.fixture
def modules() -> Iterator[Any]:
    """The modules, with a stand-in for Ray where it is not installed."""
    names = [f"clew.run.asynchronous.{name}" for name in MODULES]
    missing = importlib.util.find_spec("ray") is None
    if missing:
        sys.modules["ray"] = SimpleNamespace(method=lambda **options: lambda method: method)
    yield SimpleNamespace(**dict(zip(MODULES, map(importlib.import_module, names), strict=True)))
    if missing:
        for name in ("ray", *names):
            del sys.modules[name]


def published(config: Any) -> tuple[ActorSpec, ActorParams]:
    """A run's first actor, and the learner's first message."""
    parts = make_parts(config)
    key = np.asarray(jax.random.key_data(jax.random.key(0)))
    params = jax.tree.map(np.asarray, init_run(parts).seed.agent)
    assert isinstance(parts.task, HostedTask)
    said = ActorParams(params, parts.task.statistics(), key)
    return ActorSpec(config, parts.task, 0, 2), said


def test_an_actor_acts_with_the_newest_parameters_and_survives_faults(
    modules: Any, tmp_path: Path
) -> None:
    """It does nothing between a fault and its answer, nor after the end."""
    script = tmp_path / "script"
    options = {"script": str(script)}
    spec, said = published(async_config(env="labelled:Scripted", env_options=options))
    actor = modules.ray_actor.RayActor(pickle.dumps(spec), 20.0)
    first = actor.rollout(3, said, 0)
    assert first.version == 3 and 0 <= first.waited <= first.seconds
    actor.receive(5, said)
    actor.receive(4, said)
    second = actor.rollout(3, said, 0)
    assert second.version == 5 and actor.look() == ""
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(second.gathered))
    script.write_text("raise")
    while not isinstance(fault := actor.rollout(5, said, 0), EnvironmentFault):
        assert fault.version == 5
    assert fault.field == "step"
    assert actor.rollout(5, said, 0) is None, "the learner knows nothing of the fault yet"
    assert actor.rollout(5, said, 1).version == 5
    actor.stop()
    assert actor.rollout(6, said, 1) is None
    actor.close()


@pytest.fixture
def fake(modules: Any, monkeypatch: pytest.MonkeyPatch) -> FakeActors:
    """A fake in place of Ray."""
    ray = FakeActors()
    monkeypatch.setattr(modules.ray_pool, "import_ray", lambda: ray)
    monkeypatch.setattr(modules.ray_pool.pickle, "dumps", lambda spec: b"")
    return ray


def pool_of(modules: Any, ray: FakeActors, told: list[str], **changes: Any) -> Any:
    """Two busy actors, on the nodes 0 and 0, each asked for two rollouts."""
    config = async_config(asynchronous=AsyncConfig(ray="auto", **changes))
    task: Any = SimpleNamespace(environment=SimpleNamespace(vector=False))
    pool = modules.ray_pool.RayPool([ActorSpec(config, task, n, 2) for n in (0, 1)], told.append)
    pool.publish(0, None)
    for actor in (0, 1):
        versions = modules.ray_actor.installed()
        ray.answers[ray.last("where", actor)] = ("0000", f"process {actor}", versions)
    pool._listen()
    return pool


def made(modules: Any, version: int) -> Any:
    """A rollout."""
    return modules.ray_actor.Made(version, None, 2.0, 1.0)


def test_actors_are_asked_for_so_many_rollouts_and_dropped_ones_anew(
    modules: Any, fake: FakeActors
) -> None:
    """Like local actors, which count unused rollouts."""
    pool = pool_of(modules, fake, [], queue=1, max_lag=1)

    def asked() -> list[int]:
        return [sum(a.startswith(f"rollout {n}") for a in fake.asked) for n in (0, 1)]

    def answer(actor: int, version: int) -> None:
        fake.answers[pool.actors[actor].waits_for()[0]] = made(modules, version)
        pool._listen()

    assert asked() == [2, 2]
    answer(1, 0)
    answer(0, 0)
    assert asked() == [2, 2], "none is learned from"
    assert [rollout.actor for rollout in pool.take(2)] == [0, 1]
    pool.publish(1, None)
    assert asked() == [3, 3]
    assert [a.split()[1] for a in fake.asked if a.startswith("receive")] == ["0", "1"]
    answer(0, 0)
    pool.publish(2, None)
    answer(1, 2)
    answer(0, 1)
    assert [(r.actor, r.version) for r in pool.take(2)] == [(0, 1), (1, 2)]
    assert pool.dropped == 1 and asked() == [4, 3]


def test_a_lost_node_is_one_fault(modules: Any, fake: FakeActors) -> None:
    """However many actors it had; one that was sent there meanwhile is no second fault."""
    told: list[str] = []
    pool = pool_of(modules, fake, told)
    died = "The actor died.\nThe actor died because its node has died. Node Id: 0000\n more"
    for actor in (0, 1):
        fake.answers[pool.actors[actor].waits_for()[0]] = RayError("unavailable")
    pool._listen()
    assert not told and all(actor.started for actor in pool.actors)
    assert [name.split()[:2] for name in fake.asked[-2:]] == [["close", "0"], ["close", "1"]]
    for actor in (0, 1):
        pool.actors[actor]._asked = 0.0
        assert pool.actors[actor].look() is None
        fake.answers[fake.last("look", actor)] = ActorDiedError(died)
    pool._listen()
    says = "labelled:Labelled: actor {} (process {}) was lost with its node; restarted"
    assert told == [says.format(0, 0) + " (1 of at most 3 times)", says.format(1, 1)]
    fake.answers[fake.last("where", 2)] = ActorDiedError(died)
    pool._listen()
    assert len(told) == 2 and pool._budget.used == 1
    assert not any(actor.started for actor in pool.actors)


def test_what_another_actor_would_not_mend_ends_the_run(modules: Any, fake: FakeActors) -> None:
    """Such as a node without clew, or with another version; but not a killed process."""
    told: list[str] = []
    pool = pool_of(modules, fake, told)
    fake.answers[pool.actors[0].waits_for()[0]] = ActorDiedError(
        "The actor died.\nThe actor is dead because its worker process has died. Worker exit type"
    )
    pool._listen()
    assert told[0].startswith("labelled:Labelled: actor 0 (process 0) ended (its worker process")
    old = modules.ray_actor.installed() | {"clew": "0.0.9"}
    for error, says in (
        (RayTaskError("Traceback\nNo module named 'clew'"), "not start: No module named 'clew'"),
        (
            ("1111", "process 7", old),
            r"has clew 0.0.9, and the learner clew \d.*: install the",
        ),
    ):
        fake.answers[fake.last("where", 2)] = error
        with pytest.raises(EnvironmentFault, match=f"actor 0.* {says}"):
            pool._listen()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"asynchronous": AsyncConfig(ray="nonsense")}, "expected auto, local, HOST:PORT or ray:"),
        ({"asynchronous": AsyncConfig(ray="auto", serial=True)}, "serial acts in this process"),
        (
            {"asynchronous": AsyncConfig(ray_timeout=0.0)},
            "ray_timeout must be a finite number",
        ),
        (
            {"asynchronous": AsyncConfig(ray="auto"), "runner": "sync"},
            "need runner async, got",
        ),
    ],
)
def test_impossible_settings(changes: dict[str, Any], says: str) -> None:
    """Each gives an error of one line."""
    with pytest.raises(UserError, match=says):
        make_parts(async_config(**changes))


def test_where_actors_are_is_no_part_of_a_result(tmp_path: Path) -> None:
    """A run may continue elsewhere, if nothing else has changed."""
    here = run_dir(tmp_path)
    there = run_dir(tmp_path, asynchronous=AsyncConfig(ray="10.0.0.1:6379", ray_timeout=7.0))
    assert here.digest() == there.digest() and config_from_json(there.to_json()) == there
    folder.write_new_config(folder.new_folder(here), here, {})
    assert folder.to_resume(there, True)[1] == there
    other = run_dir(tmp_path, asynchronous=AsyncConfig(queue=2))
    with pytest.raises(UserError, match="you may only raise steps and change loggers, devices"):
        folder.to_resume(other, True)


def test_ray_that_is_missing_is_told_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the extra that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    words = "train --env gymnasium:CartPole-v1 --algorithm ppo --memory gru --runner async"
    assert run([*words.split(), "--ray", "auto", "--run-dir", str(tmp_path)]) == 2
    assert "not installed: pip install 'clew[ray]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    with cluster.joined(""):
        pass


def test_a_cluster_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, whatever Ray raises."""

    def init(*args: Any, **options: Any) -> None:
        raise RuntimeError("timed out\n during startup")

    ray = SimpleNamespace(init=init, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(UserError, match="could be started here: timed out during startup"):
        cluster.join("local")


def test_the_benchmark_s_actors_are_those_of_the_pool(
    modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They answer with as many bytes as the newest parameters say."""
    ray, pool_module = PromptActors(), modules.ray_pool
    for module in (modules.ray_actor, pool_module):
        monkeypatch.setattr(module, "import_ray", lambda: ray)
    for name in ("RayActor", "pickle"):  # which it replaces by its own
        monkeypatch.setattr(pool_module, name, getattr(pool_module, name))
    monkeypatch.setattr(ray_actors, "SECONDS", 0.01)
    monkeypatch.syspath_prepend(Path(ray_actors.__file__).parent / "pretended")
    pool = importlib.import_module("pretended_actor").make_pool(2)
    monkeypatch.delitem(sys.modules, "pretended_actor")
    assert set(ray_actors.figures(pool, 2, 0.001, 0.002)) > {"rollouts_per_s", "answers_per_s"}
    sizes = list[int]()
    for _ in range(3):
        pool.publish(pool.version + 1, (np.zeros(3), 7))
        sizes = [len(rollout.gathered) for rollout in pool.take(2)]
    assert sizes == [7, 7]
    pool.close()
