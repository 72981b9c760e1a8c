"""Asynchronous training with actors on a Ray cluster of two nodes, which may be lost."""

import dataclasses
import importlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from test_async_equal import CARTPOLE, LEARNING, assert_equal
from test_async_faults import Run, wait_until_gone

import clew
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.cli import run
from clew.run.asynchronous import program
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_parts
from clew.run.metrics import read_metrics
from clew.run.updates import init_run
from ray_nodes import NODE, needs_ray, two_nodes
from small_async import async_config, by_turns, order, run_dir
from small_run import Watch

pytestmark = needs_ray
# Otherwise a killed node is only noticed after a quarter of a minute.
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
ON_RAY = AsyncConfig(ray="auto")
TIMES = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    with two_nodes(_system_config=SOON | {"health_check_initial_delay_ms": 500}) as nodes:
        yield nodes


@pytest.fixture
def ray(cluster: Any) -> Iterator[Any]:
    """The package, connected."""
    package = importlib.import_module("ray")
    cluster.wait_for_nodes()
    package.init(cluster.address, log_to_driver=False)
    yield package
    package.shutdown()


@pytest.fixture
def seen(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes from which rollouts came."""
    nodes: list[str] = []
    pool = importlib.import_module("clew.run.asynchronous.ray_pool").RayPool
    take = pool.take

    def noticed(self: Any, count: int) -> Any:
        rollouts = take(self, count)
        nodes.extend(self.actors[rollout.actor].node for rollout in rollouts)
        return rollouts

    monkeypatch.setattr(pool, "take", noticed)
    return nodes


class RayRun(Run):
    """A run in progress on the cluster into which troubles can be injected."""

    @property
    def pool(self) -> Any:
        """The actors."""
        return self.program._pool

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [int(actor.words.split()[3]) for actor in self.pool.actors]

    def go_on_until(self, there: Any, seconds: float = 240.0) -> None:
        """Makes updates until a condition is true."""
        deadline = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < deadline, self.told
            self.go_on()
            time.sleep(0.05)

    def inject(self, trouble: str) -> None:
        """Injects a trouble, and continues until it is reported and all actors work again."""
        before = len(self.told)

        def told() -> bool:
            return any(re.search(SAYS[trouble], line) for line in self.told[before:])

        if trouble.startswith("SIG"):
            os.kill(self.pids[self.updates % 2], getattr(signal, trouble))
        else:
            order(self.script, trouble)
        self.go_on_until(told)
        self.go_on_until(lambda: all(actor.started for actor in self.pool.actors))
        self.go_on(2)


def test_one_actor_by_turns_equals_sync(ray: Any) -> None:
    """Through the object store, bit for bit."""
    assert_equal(
        async_config(**CARTPOLE, wrappers=LEARNING, asynchronous=by_turns(actors=1, ray="auto"))
    )


def test_a_run_over_two_nodes_goes_on_elsewhere(
    cluster: Any, seen: list[str], tmp_path: Path
) -> None:
    """Both nodes act, and the lag is positive and bounded; then local processes continue it."""
    cluster.wait_for_nodes()
    settings, watch = AsyncConfig(queue=2, max_lag=3, ray=cluster.address), Watch()
    # Labels are large rewards: unclipped, there is no advice to scale them, so nothing to tell.
    learning = dataclasses.replace(async_config().ppo, max_grad_norm=None)
    config = run_dir(tmp_path, steps=32 * 24, asynchronous=settings, ppo=learning)
    result = clew.train(config, progress=watch)
    assert not importlib.import_module("ray").is_initialized() and not watch.messages
    assert len(set(seen)) == 2 and len(seen) == 48
    rows = read_metrics(result.path)
    assert max(row["lag_max"] for row in rows) in (1, 2, 3)
    assert all(0 <= row[name] <= 1 for row in rows for name in ("actor_wait", "learner_wait"))
    told = json.loads((result.path / "config.json").read_text())
    assert told["config"]["asynchronous"]["ray"] == cluster.address
    again = f"train --resume {result.path} --steps {32 * 28} --asynchronous.ray".split()
    assert run([*again, ""]) == 0
    assert read_metrics(result.path)[-1]["update"] == 28 and len(seen) == 48


def test_the_command_takes_an_address(cluster: Any, tmp_path: Path, seen: list[str]) -> None:
    """The short option works, and a mistyped address leaves nothing behind."""
    words = "train --env gymnasium:CartPole-v1 --algorithm ppo --memory gru --runner async"
    words += " --ppo.num-envs 4 --ppo.rollout-length 8 --ppo.sequence-length 8"
    words += f" --ppo.minibatches 1 --steps 128 --name run --run-dir {tmp_path} --ray"
    assert run([*words.split(), "127.0.0.1:1"]) == 2 and not list(tmp_path.iterdir())
    assert run([*words.split(), cluster.address]) == 0 and len(seen) == 8


SAYS = {
    "raise": r"actor [01] \(process \d+ on node .*\): .*: environment [01] raised in step, 1 steps",
    "die": r"actor [01] \(process \d+ on node .*\): .* raised in step, .*: SystemExit: 3;",
    "sleep": "hangs: its environment [01] gave no sign of life within 8 s; restarted",
    "SIGKILL": r"labelled:Scripted: actor [01] \(process \d+ on node .*\) ended \(.*; restarted",
    "SIGSTOP": r"actor [01] \(process \d+ on node .*\) hangs: it did not answer within 10 s",
}


def test_faults_are_named_and_survived(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults of environments and of processes; partly collected rollouts are never used."""
    monkeypatch.setattr("clew.run.asynchronous.ray_pool.ANSWER_SECONDS", 10.0)
    monkeypatch.setattr("test_async_faults.TIMEOUT", 8.0)  # so a busy machine is not a hung actor
    run = RayRun(tmp_path, restarts=20, asynchronous=ON_RAY)
    pids: list[int] = []
    try:
        run.go_on()
        run.watch()
        run.go_on_until(lambda: all(actor.started for actor in run.pool.actors))
        for trouble in SAYS:
            pids += run.pids
            run.inject(trouble)
        pids += run.pids
    finally:
        run.program.close()
    wait_until_gone(pids)


def test_a_node_may_be_killed_twenty_times(cluster: Any, ray: Any, tmp_path: Path) -> None:
    """The run continues with the other node's actor, and with the next node's as well."""
    run = RayRun(tmp_path, restarts=TIMES, asynchronous=ON_RAY)
    run.go_on()
    run.watch()
    try:
        for time_ in range(1, TIMES + 1):
            run.go_on_until(lambda: all(actor.started for actor in run.pool.actors))
            (node,) = cluster.worker_nodes
            before = len(run.told)
            cluster.remove_node(node, allow_graceful=False)
            run.go_on_until(lambda: len(run.told) > before)  # noqa: B023
            told = run.told[before]
            assert f"{node.node_id[:8]}) was lost with its node; restarted ({time_} of" in told
            run.go_on(2)
            cluster.add_node(**NODE)
    finally:
        run.program.close()
        if not cluster.worker_nodes:
            cluster.add_node(**NODE)


def test_no_room_is_told_and_ends_what_stands_still(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two CPUs for four actors: with a queue it continues, without one it cannot."""
    monkeypatch.setattr("clew.run.asynchronous.ray_pool.ROOM_SECONDS", 1.0)
    run = RayRun(tmp_path, restarts=0, asynchronous=AsyncConfig(actors=4, ray="auto"))
    try:
        run.go_on(20)
        assert sum(actor.started for actor in run.pool.actors) == 2
        says = r"of 4 (found no room|could not be started) yet: the cluster has 2 CPUs on 2 nodes"
        assert re.search(says, run.told[0])
    finally:
        run.program.close()
    settings = by_turns(actors=4, ray="auto", ray_timeout=4.0)
    run = RayRun(tmp_path, restarts=0, asynchronous=settings)
    try:
        with pytest.raises(EnvironmentFault, match=r"stood still for 4 s \(asynchronous.ray_timeo"):
            run.go_on()
        # Actors that found room may report as late as this.
        told = [text for text in run.told if not text.endswith("is at work")]
        assert told[-1].endswith("the run waits")
    finally:
        run.program.close()


def refuse(says: str) -> None:
    """Checks that a run cannot start."""
    parts = make_parts(async_config(asynchronous=ON_RAY))
    loop = program.AsyncProgram(parts, parts.task)
    try:
        with pytest.raises(EnvironmentFault, match=says):
            loop(init_run(parts), jnp.int32(1))
    finally:
        loop.close()


def test_other_versions_on_a_node_are_refused(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both versions, and the node."""
    module = "clew.run.asynchronous.ray_pool.installed"
    monkeypatch.setattr(module, lambda: {"jax": "0.1.2"})
    refuse(r"on node .*\) has jax \d.*the learner jax 0.1.2")


def test_clew_that_is_missing_is_told(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes at once."""
    monkeypatch.setattr("clew.run.cluster.environment", lambda **more: {"PYTHONPATH": "/nowhere"})
    absent = importlib.import_module("absent_actor").AbsentActor
    monkeypatch.setattr("clew.run.asynchronous.ray_pool.RayActor", absent)
    refuse("could not start: .*No module named 'absent_actor'")
