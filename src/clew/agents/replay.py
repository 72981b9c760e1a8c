"""Replay of recent experience, from which sequences are drawn with the state before them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from clew.agents.trajectory import Rollout, Trajectory
from clew.envs.base import Observation
from clew.memory.base import State

LEAST = 1e-12
"""The smallest priority, so that a sequence can be drawn even if all errors are 0."""
LARGEST_EXPONENT = 3
"""The largest exponent for which the power of `LEAST` is above 0 in single precision."""


class Steps(NamedTuple):
    """The stored fields of every step, see `Trajectory`; in a `Replay` [blocks, period, B, ...]."""

    observation: Observation
    start: Bool[Array, "*lead"]
    last: Bool[Array, "*lead"]
    action: Array
    reward: Float[Array, "*lead"]
    discount: Float[Array, "*lead"]


class Replay(NamedTuple):
    """The latest steps of B environments in blocks of `period` steps; the oldest are overwritten.

    Every step is stored once, however many sequences contain it; the memory's state is stored
    before every block. A sequence of several blocks may begin at any block, anywhere in an episode.
    """

    steps: Steps
    states: State
    """The memory's state before each block, in stored form: [blocks, B, ...]."""
    priorities: Float[Array, "blocks batch"]
    """Priorities of the sequences whose learned part begins at each block."""
    written: Int[Array, ""]
    """Number of blocks written so far, including overwritten ones."""

    @property
    def numbers(self) -> Int[Array, " blocks"]:
        """The number of the block in each slot, counted from 0 in order of writing.

        Below 0 where nothing has been written.
        """
        size = self.priorities.shape[0]
        newest = self.written - 1
        return newest - (newest - jnp.arange(size, dtype=jnp.int32)) % size

    def complete(self, before: int, length: int) -> Bool[Array, " blocks"]:
        """Which blocks can start a sequence: enough blocks lie before and after them.

        Args:
            before: number of blocks that are read before the sequence.
            length: number of blocks in the sequence; the first observation of the next block is
                read too.
        """
        oldest = jnp.maximum(self.written - self.priorities.shape[0], 0)
        number = self.numbers
        return (number - before >= oldest) & (number + length < self.written)


class Sequences(NamedTuple):
    """The drawn sequences; each begins at a block of an environment."""

    block: Int[Array, " n"]
    environment: Int[Array, " n"]
    probability: Float[Array, " n"]
    """The probability with which each was drawn."""
    choices: Int[Array, ""]
    """How many sequences there were to choose from."""


def init_replay(template: Rollout, states: State, steps: int) -> Replay:
    """An empty replay.

    Args:
        template: shapes and types of a rollout, in blocks.
        states: shapes and types of the stored memory states before its blocks.
        steps: capacity in steps of all environments together; it holds whole rollouts, at least
            two.
    """
    count, period, batch = template.chunks.reward.shape
    rollouts = steps // (count * period * batch)

    def empty(leaf: Array) -> Array:
        return jnp.zeros((rollouts * count, *leaf.shape[1:]), leaf.dtype)

    return Replay(
        steps=jax.tree.map(empty, jax.eval_shape(_steps_of, template.chunks)),
        states=jax.tree.map(empty, states),
        priorities=jnp.zeros((rollouts * count, batch), jnp.float32),
        written=jnp.zeros((), jnp.int32),
    )


def _steps_of(chunks: Trajectory) -> Steps:
    """The steps of a rollout's blocks; the observation after each block is the next one's first."""
    seen = (chunks.observation, chunks.start, chunks.last)
    observation, start, last = jax.tree.map(lambda x: x[:, :-1], seen)
    return Steps(observation, start, last, chunks.action, chunks.reward, chunks.discount)


def add(replay: Replay, chunks: Trajectory, states: State) -> Replay:
    """The replay with the oldest blocks replaced by those of a rollout.

    New blocks get the largest priority so far, so that they are soon drawn once. (This maximum
    never falls: the newest blocks, which cannot be drawn yet, carry it on.)

    Args:
        states: before each block, in stored form.
    """
    count = chunks.reward.shape[0]
    place = replay.written % replay.priorities.shape[0]

    def write(ring: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), place, axis=0)

    largest = jnp.max(replay.priorities)
    fresh = jnp.broadcast_to(
        jnp.where(largest > 0, largest, 1.0), (count, replay.priorities.shape[1])
    )
    return Replay(
        steps=jax.tree.map(write, replay.steps, _steps_of(chunks)),
        states=jax.tree.map(write, replay.states, states),
        priorities=write(replay.priorities, fresh),
        written=replay.written + count,
    )


def draw(
    replay: Replay, key: PRNGKeyArray, count: int, exponent: float, *, before: int, length: int
) -> Sequences:
    """Draws sequences, with replacement, with probabilities P_i = p_i^alpha / sum_k p_k^alpha.

    A p below 1e-12 counts as 1e-12.

    The sum is over the complete sequences, see `Replay.complete`; there must be at least one.

    Args:
        exponent: alpha; with 0 all are equally likely.
        before: blocks that are read before each sequence.
        length: blocks of each.

    Source: Schaul et al. (2016), Eq. 1.
    """
    whole = replay.complete(before, length)[:, None]
    weights = jnp.where(whole, jnp.maximum(replay.priorities, LEAST) ** exponent, 0.0).reshape(-1)
    sums = jnp.cumsum(weights)
    at = jax.random.uniform(key, (count,)) * sums[-1]
    found = jnp.searchsorted(sums, at, side="right").astype(jnp.int32)
    # Partial sums are rounded independently: an entry of weight 0 may be found instead of the last
    # one before it with a positive weight.
    held = jax.lax.cummax(jnp.where(weights > 0, jnp.arange(weights.size, dtype=jnp.int32), 0))
    index = held[jnp.minimum(found, weights.size - 1)]
    batch = replay.priorities.shape[1]
    return Sequences(
        index // batch, index % batch, weights[index] / sums[-1], jnp.sum(whole) * batch
    )


def importance(drawn: Sequences, exponent: float) -> Float[Array, " n"]:
    """Weights that undo unequal probabilities, w_i = (N P_i)^-beta / max_k w_k.

    Args:
        drawn: of N sequences.
        exponent: beta; 1 corrects fully for unequal probabilities, 0 not at all.

    Source: Schaul et al. (2016), section 3.4; the maximum is over the drawn sequences.
    """
    weights = (drawn.choices.astype(jnp.float32) * drawn.probability) ** -exponent
    return weights / jnp.max(weights)


def take(replay: Replay, drawn: Sequences, *, before: int, length: int) -> tuple[Steps, State]:
    """The drawn sequences with the blocks before them, and the states before those.

    Args:
        before: blocks that are read before each.
        length: blocks of each.

    Returns:
        T steps of `before + length` blocks, [T, n, ...], with the observation after them, whose
        `start` and `last` are there too, [T+1, n, ...]; and the kept states, [n, ...].
    """
    size, period = replay.priorities.shape[0], replay.steps.reward.shape[1]
    offsets = np.arange(-before, length + 1, dtype=np.int32)
    blocks = (drawn.block[:, None] + offsets[None]) % size
    time = (before + length) * period

    def over(steps: int, tree: PyTree[Array]) -> PyTree[Array]:
        def one(ring: Array) -> Array:
            found = ring[blocks, :, drawn.environment[:, None]]  # [n, blocks, period, ...]
            flat = found.reshape(len(blocks), len(offsets) * period, *ring.shape[3:])
            return jnp.swapaxes(flat[:, :steps], 0, 1)

        return jax.tree.map(one, tree)

    seen, start, last, *acted = replay.steps
    states = jax.tree.map(lambda ring: ring[blocks[:, 0], drawn.environment], replay.states)
    steps = Steps(*over(time + 1, (seen, start, last)), *over(time, tuple(acted)))
    return _with_gaps(steps), states


def _with_gaps(steps: Steps) -> Steps:
    """Marks a step `last` if an episode's start follows it without an end.

    This happens when environments restart after a fault, and on the host when a run is resumed.
    """
    gap = steps.start[1:] & (steps.discount > 0)
    before = steps.last[:-1] | gap
    return steps._replace(last=jnp.concatenate([before, steps.last[-1:]]))
