"""The ratio law in whole runs: rereading gives the values of acting, whoever acts.

Every runner is a real run's. Only its learner is wrapped: before it learns, it reads its rollout
again with the parameters that acted, and reports the deviation of log-probabilities and values from
those of acting; only of values if the learner's own policy explored. Parameters change between
rollouts, so that memories' caches are rebuilt.
"""

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.heads import follow_policy
from clew.agents.learners import LEARNERS, make_learner
from clew.agents.network import NetworkConfig
from clew.agents.trajectory import Rollout, reread
from clew.envs.wrappers import WrapperConfig
from clew.memory import MEMORIES, options_among
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_parts
from clew.run.compiled import CompiledProgram, compile_loop
from clew.run.config import TrainConfig
from clew.run.progress import Quiet
from clew.run.train import make_program
from clew.run.updates import init_run, update
from memory_samples import SMALL, quick_compilation
from slow_cases import fast_only
from small_async import by_turns

__all__ = ["quick_compilation"]

UPDATES = 3
SEQUENCES = {7: 7, 16: 8, 33: 11}
"""Sequence lengths, by the length of a rollout."""
RUNNERS = ("compiled", "hosted", "asynchronous", "hosted, masked", "asynchronous, masked")
MASKED = RUNNERS[3:]
LIMIT = 5e-5  # on a log-probability, and on a value relative to max(1, its size), in float32


class Measured:
    """A learner that reports the deviation of rereading from acting as a metric."""

    def __init__(self, inner: Any, shift: int = 0):
        self.inner, self.shift = inner, shift
        self.metrics = (*inner.metrics, "off")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def learn(self, agent: Any, state: Any, rollout: Rollout, key: Any) -> Any:
        """Learns, and measures the largest deviation; `shift` moves the starts by some steps."""
        found, follows = [], self.inner.gathering.behaviour is follow_policy
        for number in range(rollout.chunks.reward.shape[0]):
            chunk = jax.tree.map(lambda x, i=number: x[i], rollout.chunks)
            chunk = chunk._replace(start=jnp.roll(chunk.start, self.shift, axis=0))
            outputs = reread(agent, chunk).outputs
            log_prob = agent.distribution.log_prob(outputs.logits[:-1], chunk.action)
            if follows:
                found.append(jnp.max(jnp.abs(log_prob - chunk.log_prob)))
            # R2D2's values grow to 30 here. Where a norm divides by a small sum, weights that are
            # moved by half a unit of rounding move such a value by 2e-4, as much as rereading does.
            size = jnp.maximum(1.0, jnp.abs(chunk.value))
            found.append(jnp.max(jnp.abs(outputs.value[:-1] - chunk.value) / size))
        *learned, metrics = self.inner.learn(agent, state, rollout, key)
        return *learned, metrics | {"off": jnp.max(jnp.stack(found))}


def reading(learner: str, length: int) -> dict[str, Any]:
    """Settings that decide how a learner reads rollouts of a length."""
    sequence = {"sequence_length": SEQUENCES[length]}
    if learner in ("r2d2", "sac"):
        replay = {"replay_steps": 9 * length, "learning_starts": 0, "batch_size": 2}
        return sequence | replay | {"period": SEQUENCES[length], "burn_in": 0}
    if learner == "a2c":
        return {"minibatches": 1}
    return sequence | {"minibatches": 1, "epochs": 1}


def run_config(memory: str, learner: str, runner: str, length: int) -> TrainConfig:
    """Three environments whose episodes of 1 to 5 steps end anywhere, in either way."""
    options = {"num_layers": 1} | SMALL[memory] | {"hidden_size": 6}
    kind: Any = LEARNERS[learner].settings
    settings = kind(num_envs=3, rollout_length=length, **reading(learner, length))
    task: dict[str, Any] = {"env": "labelled:Drawn", "env_options": {}}
    if runner in MASKED:
        task = {"env": "masked:Locks", "wrappers": WrapperConfig(action_mask="info")}
    if runner == "compiled":
        options_of_task = {"corridor_length": 2, "time_limit": 4, "on_time_limit": "truncate"}
        task = {"env": "tmaze", "env_options": options_of_task}
    return TrainConfig(
        **task,
        memory=memory,
        memory_options=options_among(memory, options),
        network=NetworkConfig(head_size=4),
        algorithm=learner,
        **{learner: replace(settings, learning_rate=1e-2)},
        steps=3 * length * UPDATES,
        log_every=UPDATES,
        runner="async" if runner.startswith("asynchronous") else "sync",
        asynchronous=AsyncConfig(serial=True),
    )


def largest(config: TrainConfig, shift: int = 0) -> float:
    """The sum over the updates of each one's largest deviation."""
    parts = make_parts(config)
    parts = parts._replace(learner=Measured(parts.learner, shift))  # pyright: ignore[reportArgumentType]
    if config.env == "tmaze":
        stream = parts.task.require_stream()
        program: Any = CompiledProgram(parts, compile_loop(parts, partial(update, parts, stream)))
    else:
        program = make_program(parts, Quiet(), threading.Event())
    try:
        sums = program(init_run(parts), jnp.int32(UPDATES)).seed.sums
        assert sums["episodes"] > UPDATES
        return float(sums["off"])
    finally:
        program.close()


def assert_the_ratio_is_one(memory: str, learner: str, runner: str, length: int) -> None:
    """Checks that log-probabilities and values of learning are those of acting."""
    off = largest(run_config(memory, learner, runner, length))
    assert np.isfinite(off) and off < UPDATES * LIMIT, f"T = {length}: {off}"


TOLERATE_LAG = {
    name: make_learner(name, kind.settings(), 1).gathering.tolerates_lag
    for name, kind in LEARNERS.items()
}
COMBINATIONS = [
    (memory, learner, runner)
    for memory in MEMORIES
    for learner in LEARNERS
    for runner in RUNNERS
    # A learner that cannot use older rollouts is refused an asynchronous runner.
    if not runner.startswith("asynchronous") or TOLERATE_LAG[learner]
]


@pytest.mark.parametrize(
    ("learner", "runner"),
    fast_only(
        [("ppo", "hosted"), ("r2d2", "compiled"), ("sac", "hosted, masked")], ("r2d2", "compiled")
    ),
)
def test_ratio_law_in_a_run(learner: str, runner: str) -> None:
    """One case that compiles quickly."""
    assert_the_ratio_is_one("gru", learner, runner, 16)


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "learner", "runner"), COMBINATIONS)
def test_ratio_law(memory: str, learner: str, runner: str) -> None:
    """Every memory, learner and runner, for lengths that windows and sequences divide or not."""
    for length in SEQUENCES:
        assert_the_ratio_is_one(memory, learner, runner, length)
    jax.clear_caches()


@pytest.mark.slow
def test_ratio_law_with_actors_in_processes() -> None:
    """In turns mode, so that no rollout is older than its learner."""
    config = run_config("gtrxl", "ppo", "asynchronous", 16)
    config = replace(config, asynchronous=by_turns(actors=1))
    assert largest(config) < UPDATES * LIMIT


@pytest.mark.parametrize(
    "runner",
    fast_only(RUNNERS, "hosted"),
)
def test_the_ratio_law_can_fail(runner: str) -> None:
    """Starts that are one step late are detected, so the other tests mean something."""
    assert largest(run_config("gru", "ppo", runner, 16), shift=1) > 1e-2
