"""The stream of episodes around any environment, the registry, and a user's own task."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.bridges.make import env_options, make_env
from clew.envs import (
    ENVS,
    AutoReset,
    DarkRoom,
    DistributedMemory,
    Environment,
    MemoryChain,
    Permutation,
    TMaze,
    Transition,
)
from clew.envs.trials import Trials
from clew.errors import UserError
from clew.lab.studies.makkink.mixed_recall import MixedRecall
from streams import BATCH, roll


@pytest.mark.parametrize(
    "env",
    [
        TMaze(4, on_time_limit="truncate"),
        *(MemoryChain(stream_seed=seed) for seed in (None, 0)),
        *(DistributedMemory(stream_seed=seed) for seed in (None, 0)),
    ],
    ids=lambda env: type(env).__name__,
)
def test_types_and_shapes_never_change(env: Environment):
    stream, key = AutoReset(env), jax.random.key(0)
    state, first = stream.reset(key)
    after = stream.step(state, jnp.int32(1), key)
    described = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), (state, first))
    assert described == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), after)
    assert first.observation.dtype == first.reward.dtype == jnp.float32
    assert set(first.metrics) == set(stream.metric_names)


@pytest.mark.parametrize(
    "env",
    [
        TMaze(2, time_limit=9),
        MemoryChain(3),
        MixedRecall("distributed_memory", [{"memory_length": 5}]),
        DarkRoom(3, time_limit=4),
        Trials(Permutation(2), 2),
    ],
    ids=lambda env: type(env).__name__,
)
def test_no_episode_is_shorter_than_the_task_says(env: Environment):
    """And some episodes are exactly that short."""
    actions = np.random.default_rng(0).integers(0, env.num_actions, (24, BATCH))
    told = roll(env, actions)
    assert env.shortest == told.metrics["length"][told.ended].min()


class Countdown(Environment):
    """Ends after two steps in the configured way; its state turns NaN at the end."""

    terminates: bool = eqx.field(static=True)
    truncates: bool = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True, default=())
    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return jnp.float32(2.0), jnp.full((1,), 2.0, jnp.float32)

    def step(self, state, action, key):
        left = state - 1.0
        end = left == 0.0
        return jnp.where(end, jnp.nan, left), Transition(
            jnp.where(end, -1.0, left)[None], jnp.float32(1.0), end & self.terminates,
            end & self.truncates, {},
        )  # fmt: skip


def test_termination_wins_and_a_nan_does_not_reach_the_next_episode():
    zeros = np.zeros((6, 1), np.int64)
    both = roll(Countdown(terminates=True, truncates=True), zeros)
    assert both.observation.ravel().tolist() == [2, 1, 2, 1, 2, 1, 2]
    assert both.discount.ravel().tolist() == [1, 1, 0, 1, 0, 1, 0]
    assert not both.last.any()
    cut = roll(Countdown(terminates=False, truncates=True), zeros)
    assert cut.observation.ravel().tolist() == [2, 1, -1, 2, 1, -1, 2]
    assert cut.last.ravel().tolist() == [False, False, True, False, False, True, False]
    assert cut.start.ravel().tolist() == [True, False, False, True, False, False, True]
    assert cut.reward.ravel().tolist() == [0, 1, 1, 0, 1, 1, 0]
    assert cut.metrics["return"].ravel().tolist() == [0, 0, 2, 0, 0, 2, 0]


class Coin(Environment):
    """Shows the number with which the episode was opened; each step ends it by a coin flip."""

    metric_names: tuple[str, ...] = eqx.field(static=True, default=())
    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=1)

    def reset(self, key):
        opening = jax.random.uniform(key, (1,))
        return opening, opening

    def step(self, state, action, key):
        heads = jax.random.uniform(key) < 0.5
        return state, Transition(state, jnp.float32(0.0), heads, jnp.zeros_like(heads), {})


def test_how_an_episode_ends_says_nothing_about_the_next_one():
    steps = roll(Coin(), np.zeros((100, BATCH), np.int64))
    openings = steps.observation[1:][steps.start[1:]]
    assert openings.mean() == pytest.approx(0.5, abs=4 * 0.29 / len(openings) ** 0.5)


def test_undeclared_metrics_are_refused():
    stream = AutoReset(Countdown(terminates=True, truncates=False, metric_names=("score",)))
    state, _ = stream.reset(jax.random.key(0))
    with pytest.raises(UserError, match=r"Countdown declares the metrics \['score'\].*\[\]"):
        stream.step(state, jnp.int32(0), jax.random.key(0))


def test_make_env_builds_by_name():
    env = make_env("tmaze", corridor_length=20, on_time_limit="truncate")
    assert isinstance(env, TMaze) and (env.corridor_length, env.time_limit) == (20, 1000)
    assert env_options("tmaze") == {
        "corridor_length": 120, "time_limit": 1000, "on_time_limit": "terminate",
        "shown_length": 0,
    }  # fmt: skip
    assert all(issubclass(kind, Environment) for kind in ENVS.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_env("tmase"), "unknown environment 'tmase'; did you mean 'tmaze'"),
        (lambda: env_options("maze"), "unknown environment 'maze'"),
        (lambda: make_env("tmaze", corridor=9), "option of tmaze 'corridor'.*'corridor_length'"),
        (lambda: TMaze(1), "corridor_length must be an integer of at least 2, got 1"),
        (lambda: TMaze(20.0), "corridor_length .* got 20.0"),  # type: ignore[arg-type]
        (lambda: TMaze(20, 0), "time_limit must be an integer of at least 1, got 0"),
        (lambda: TMaze(on_time_limit="end"), "on_time_limit 'end'.*terminate, truncate"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize("name", ["environments.md", "tasks.md"])
def test_the_code_of_the_documentation_page_runs(name):
    page = (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    exec("\n".join(blocks), {})
