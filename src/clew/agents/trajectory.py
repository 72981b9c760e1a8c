"""Trajectories and rollouts, which acting passes to the learner, and reading them again."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from clew.agents.devices import shard_batch, shard_count
from clew.agents.heads import Outputs
from clew.agents.network import Agent
from clew.envs.base import Observation
from clew.memory.base import State


class Trajectory(NamedTuple):
    """T steps of B environments, time first.

        time            0         1               T-1        T
        observation    o_0       o_1     ...    o_{T-1}     o_T      T+1 of them
        action          a_0       a_1    ...     a_{T-1}             T
        reward             r_0       r_1  ...         r_{T-1}        T, r_t follows a_t
        discount           d_0       d_1  ...         d_{T-1}        T, 0 after a termination
        memory      s_0 before o_0; the next trajectory's is s_T, before o_T

    `start[t]`: observation t opens an episode. `last[t]`: observation t is the final one of a
    truncated episode; it is kept for its value, its action had no effect, and observation t+1 opens
    the next episode. The transition from it is not `valid`.
    """

    observation: Observation
    """[T+1, B, ...], every leaf where it is a tree."""
    start: Bool[Array, "time_and_one batch"]
    last: Bool[Array, "time_and_one batch"]
    action: Shaped[Array, "time batch *action"]
    reward: Float[Array, "time batch"]
    discount: Float[Array, "time batch"]
    log_prob: Float[Array, "time batch"]
    """Log-probability of the actions under the policy that acted."""
    value: Float[Array, "time batch"]
    state0: State

    @property
    def valid(self) -> Bool[Array, "time batch"]:
        """The transitions that may be learned from."""
        return ~self.last[:-1]


class Rollout(NamedTuple):
    """The data of an update: T steps of B environments in K sequences of S steps."""

    chunks: Trajectory
    """The sequences in order on a first axis: [K, S, B, ...], see `Trajectory`."""
    memory: State
    """The memory after the last step, before `observation`."""
    observation: Observation
    """The observation after the last step, [B, ...]."""
    start: Bool[Array, " batch"]
    """Whether that observation opens an episode."""

    @property
    def whole(self) -> Trajectory:
        """The only sequence of an uncut rollout."""
        return jax.tree.map(lambda x: x[0], self.chunks)

    @staticmethod
    def cut(whole: Trajectory, states: tuple[State, ...], memory: State) -> "Rollout":
        """A rollout from one trajectory.

        Args:
            whole: the trajectory of all T steps; its `state0` is not read.
            states: the memory before each of the K sequences.
            memory: its state after the last step.
        """
        count = len(states)
        length = whole.reward.shape[0] // count
        steps = np.arange(count)[:, None] * length + np.arange(length)
        observations = np.arange(count)[:, None] * length + np.arange(length + 1)
        seen, start, last, *acted, _ = whole

        def each(index: np.ndarray, tree: Any) -> Any:
            return jax.tree.map(lambda x: x[None] if count == 1 else x[index], tree)

        chunks = Trajectory(
            *each(observations, (seen, start, last)),
            *each(steps, tuple(acted)),
            state0=jax.tree.map(lambda *leaves: jnp.stack(leaves), *states),
        )
        return Rollout(chunks, memory, jax.tree.map(lambda x: x[-1], seen), start[-1])


def joined(x: Array) -> Array:
    """Consecutive sequences, [K, S, B, ...], as one sequence, [K S, B, ...]."""
    return jax.lax.collapse(x, 0, 2)


def side_by_side(x: Array) -> Array:
    """Consecutive sequences, [K, S, B, ...], as if from K B environments, [S, K B, ...]."""
    return jax.lax.collapse(jnp.swapaxes(x, 0, 1), 1, 3)


def as_environments(chunks: Trajectory) -> Trajectory:
    """The sequences of a rollout as one trajectory of K B environments, each from its own state.

    Args:
        chunks: as in a `Rollout`, [K, S, B, ...].
    """
    steps = jax.tree.map(side_by_side, chunks._replace(state0=()))
    return steps._replace(state0=jax.tree.map(joined, chunks.state0))


def empty_memories(agent: Agent, count: int) -> State:
    """The states of `count` memories before any observation, each leaf [count, ...]."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * count), agent.init_state())


class Reading(NamedTuple):
    """A network's outputs for a chunk of observations."""

    outputs: Any
    """Outputs of its heads, [time, batch, ...]; see `clew.agents.heads.Outputs`."""
    metrics: dict[str, Float[Array, "time batch"]]
    """The memory's metrics."""


def reread(agent: Agent, trajectory: Trajectory) -> Reading:
    """The network's outputs for all T+1 observations, in one pass over the chunk.

    The memory starts from its state at the time of acting, before the first observation. No
    gradient passes into that state (truncated backpropagation through time), but its caches are
    rebuilt from the parameters after the stop, so that the projections of remembered observations
    learn.
    """
    batch = trajectory.reward.shape[1]
    state0 = refresh_all(agent, jax.lax.stop_gradient(trajectory.state0), batch)
    return read(agent, state0, trajectory.observation, trajectory.start)


def read(
    agent: Agent, state0: State, observation: Observation, start: Bool[Array, "time batch"]
) -> Reading:
    """The network's outputs for a chunk, starting from the given states."""
    return shard_batch(_read, (None, 0, 1, 1), 1)(agent, state0, observation, start)


def states_after(
    agent: Agent, state0: State, observation: Observation, start: Bool[Array, "time batch"]
) -> State:
    """The memory's states after a chunk, starting from the given states."""

    def unroll(agent: Agent, state0: State, observation: Observation, start: Array) -> State:
        return jax.vmap(agent.unroll, (0, 1, 1), (0, 1))(state0, observation, start)[0]

    return shard_batch(unroll, (None, 0, 1, 1), 0)(agent, state0, observation, start)


def _read(agent: Agent, state0: State, observation: Observation, start: Array) -> Reading:
    unroll = jax.vmap(agent.unroll_encoded, in_axes=(0, 1, 1, 1, 1), out_axes=(0, 1, 1))
    read = agent.read_mask(observation), agent.read_critic_only(observation)
    return Reading(*unroll(state0, agent.encoder(observation), start, *read)[1:])


def step_all(
    agent: Agent, states: State, observation: Observation, start: Bool[Array, " batch"]
) -> tuple[State, Outputs]:
    """`Agent.step` in every environment: memories, outputs."""
    step = shard_batch(lambda agent, *seen: jax.vmap(agent.step)(*seen), (None, 0, 0, 0), 0)
    return step(agent, states, observation, start)


def refresh_all(agent: Agent, states: State, batch: int) -> State:
    """The memory states of `batch` environments, rebuilt for the current parameters."""
    # A memory without state has no leaf that would show the batch size.
    size = batch // shard_count()
    refresh = shard_batch(
        lambda agent, states: jax.vmap(agent.refresh, axis_size=size)(states), (None, 0), 0
    )
    return refresh(agent, states)
