"""A replay keeps the latest steps, and draws sequences with the right frequencies."""

from collections import Counter
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from clew.agents import replay as ring
from clew.agents.replay import Replay, Sequences, Steps
from clew.agents.trajectory import Rollout, Trajectory
from oracles import r2d2 as oracle
from slow_cases import fast_only

BLOCKS, PERIOD, BATCH = 2, 3, 4
"""Sizes of every rollout."""
ROOM = 3 * BLOCKS * PERIOD * BATCH + 5
"""Capacity in steps: three rollouts, and five steps that are too few for another."""


def stream(time: int) -> dict[str, np.ndarray]:
    """Steps that encode their time and environment: [time, BATCH]."""
    where = np.arange(time)[:, None] * 10.0 + np.arange(BATCH)
    random = np.random.default_rng(0).random((time, BATCH))
    start_follows = np.roll(random < 0.2, -1, axis=0)
    return {
        "observation": np.stack([where, -where], axis=-1).astype(np.float32),
        "start": random < 0.2,
        "last": random > 0.8,
        "action": where.astype(np.int32),
        "reward": where.astype(np.float32),
        "discount": np.where(start_follows, 0, random + 0.1).astype(np.float32),
    }


def rollout(steps: dict[str, np.ndarray], number: int) -> Rollout:
    """A rollout of the stream; the memory's state encodes the next step, in its own type."""
    first = number * BLOCKS * PERIOD
    span = range(first, first + BLOCKS * PERIOD)
    long = [steps[n][first : span.stop + 1] for n in ("observation", "start", "last")]
    short = [steps[n][span] for n in ("action", "reward", "discount")]
    whole = Trajectory(*long, *short, short[1], short[1], state0=())
    states = tuple(
        {"next": np.arange(BATCH, dtype=np.int32) + 10 * (first + k * PERIOD)}
        for k in range(BLOCKS)
    )
    return Rollout.cut(jax.tree.map(jnp.asarray, whole), states, ())


ADD = jax.jit(ring.add, donate_argnums=0)
TAKE = jax.jit(ring.take, static_argnames=("before", "length"))


@cache
def filled(rollouts: int) -> tuple[Replay, dict[str, np.ndarray]]:
    """A replay after this many rollouts, and their stream."""
    steps = stream((rollouts + 1) * BLOCKS * PERIOD + 1)
    first = rollout(steps, 0)
    replay = ring.init_replay(first, first.chunks.state0, ROOM)
    for number in range(rollouts):
        chunks = rollout(steps, number).chunks
        replay = ADD(replay, chunks, chunks.state0)
    return replay, steps


@pytest.mark.parametrize("rollouts", fast_only([1, 2, 3, 4, 7], 1, 3))
@pytest.mark.parametrize(("before", "length"), [(0, 1), (1, 1), (1, 2), (0, 3)])
def test_a_sequence_is_a_piece_of_the_stream(rollouts: int, before: int, length: int) -> None:
    """Every complete sequence has the state before it, and no other counts as complete."""
    replay, steps = filled(rollouts)
    kept = range(max(0, rollouts - 3) * BLOCKS, rollouts * BLOCKS)
    whole = [b for b in kept if b - before in kept and b + length in kept]
    complete = np.asarray(replay.complete(before, length))
    assert sorted(np.asarray(replay.numbers)[complete]) == whole
    places = np.flatnonzero(complete)
    numbers = np.asarray(replay.numbers)[places]
    for env in range(BATCH):
        env_of = np.full(len(places), env, np.int32)
        nothing = np.zeros(len(places), np.float32)
        drawn = Sequences(*map(jnp.asarray, (places.astype(np.int32), env_of, nothing, 0)))
        taken, states = jax.tree.map(np.asarray, TAKE(replay, drawn, before=before, length=length))
        for at, number in enumerate(numbers):
            first = (number - before) * PERIOD
            stop = (number + length) * PERIOD
            for name, values in taken._asdict().items():
                more = name in ("observation", "start", "last")
                expected = steps[name][first : stop + more, env]
                np.testing.assert_array_equal(values[:, at], expected, name)
            assert states["next"][at] == 10 * first + env


def test_where_environments_began_anew_nothing_is_learned_of_the_step_before() -> None:
    """An episode starts without an end of the one before it: between two rollouts."""
    replay, steps = filled(0)[0], stream(3 * BLOCKS * PERIOD)
    for name in ("start", "last"):
        steps[name][:] = False
    steps["discount"][:] = 1.0
    for number in range(2):
        chunks = rollout(steps | {"start": steps["start"] | (number == 1)}, number).chunks
        replay = ADD(replay, chunks, chunks.state0)
    drawn = Sequences(jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), jnp.ones(1), jnp.int32(1))
    taken, _ = TAKE(replay, drawn, before=0, length=2)
    assert np.flatnonzero(taken.last[:, 0]).tolist() == [BLOCKS * PERIOD - 1]


def test_it_holds_no_more_than_it_may() -> None:
    replay, _ = filled(1)
    assert replay.priorities.shape == (3 * BLOCKS, BATCH)
    numbers = 8 + 1 + 1 + 4 + 4 + 4  # observation, start, last, action, reward, discount
    blocks = 3 * BLOCKS * BATCH
    assert (
        sum(leaf.nbytes for leaf in jax.tree.leaves(replay))
        == blocks * (PERIOD * numbers + 4 + 4) + 4
    )


def test_what_is_new_is_as_likely_as_the_likeliest() -> None:
    replay, steps = filled(2)
    np.testing.assert_array_equal(replay.priorities[:4], 1.0)
    replay = replay._replace(priorities=replay.priorities.at[1, 2].set(7.0))
    chunks = rollout(steps, 2).chunks
    np.testing.assert_array_equal(ring.add(replay, chunks, chunks.state0).priorities[4:], 7.0)


@pytest.mark.parametrize("exponent", fast_only([0.0, 0.9], 0.9))
def test_sequences_are_drawn_as_often_as_they_should_be(exponent: float) -> None:
    """20,000 draws pass a chi-squared test, and never draw an incomplete sequence."""
    replay, _ = filled(4)
    priorities = np.random.default_rng(1).random(replay.priorities.shape).astype(np.float32) ** 3
    replay = replay._replace(priorities=jnp.asarray(priorities))
    shape: Any = {"before": 1, "length": 2}
    count = 20_000
    drawn = jax.jit(lambda key: ring.draw(replay, key, count, exponent, **shape))(jax.random.key(2))
    whole = np.asarray(replay.complete(**shape))
    places = [(b, e) for b in np.flatnonzero(whole) for e in range(BATCH)]
    chances = oracle.probabilities([float(priorities[p]) for p in places], exponent)
    seen = list(zip(drawn.block.tolist(), drawn.environment.tolist(), strict=True))
    assert set(seen) <= set(places) and int(drawn.choices) == len(places)
    of_seen = Counter(seen)
    counts = [of_seen[place] for place in places]
    assert chisquare(counts, np.array(chances) * count).pvalue > 1e-3
    of_place = dict(zip(places, chances, strict=True))
    expected = [of_place[place] for place in seen]
    np.testing.assert_allclose(drawn.probability, expected, rtol=1e-5)
    weights = ring.importance(drawn, 0.6)
    np.testing.assert_allclose(weights, oracle.importance(expected, len(places), 0.6), rtol=1e-5)


def test_what_is_not_whole_is_never_drawn_by_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of a prefix tree exceed the total by a digit after the last complete sequence."""
    key, _ = jax.random.split(jax.random.key(14))
    priorities = jnp.exp(jax.random.normal(key, (156, 32))) * 0.1
    replay = Replay(Steps(*[jnp.zeros((156, 1, 32))] * 6), (), priorities, jnp.int32(110))
    at = jnp.array([1 - 2**-23, 1 - 2**-22, 1 - 2**-21], jnp.float32)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: at)
    drawn = ring.draw(replay, key, 3, 0.9, before=1, length=2)
    assert replay.complete(1, 2)[drawn.block].all() and (drawn.probability > 0).all()
    assert np.isfinite(ring.importance(drawn, 0.6)).all()


def test_where_nothing_is_left_to_learn_everything_is_as_likely() -> None:
    replay = Replay(Steps(*[jnp.zeros((10, 1, 4))] * 6), (), jnp.zeros((10, 4)), jnp.int32(10))
    drawn = ring.draw(replay, jax.random.key(0), 8, 0.9, before=1, length=2)
    np.testing.assert_allclose(drawn.probability, 1 / int(drawn.choices), rtol=1e-5)
    assert len(set(drawn.block.tolist())) > 2
