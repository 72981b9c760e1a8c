"""Learning from replayed sequences: what a rollout stores, the burn-in, when learning starts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from clew.agents import replay as ring
from clew.agents.heads import Behaviour, follow_policy
from clew.agents.learners.base import (
    Gathering,
    Learned,
    LearnerConfig,
    LearnerState,
    Metrics,
    learn_minibatches,
)
from clew.agents.network import Agent
from clew.agents.replay import Replay, Sequences, Steps
from clew.agents.trajectory import Reading, empty_memories, read, refresh_all, states_after
from clew.errors import UserError, require_at_least, require_choice
from clew.memory.base import State

FIRST_STATES = ("refreshed", "stored", "zero")
"""The memory's state before the burn-in of a sequence."""


class ReplayConfig(LearnerConfig, Protocol):
    """The settings of every learner that replays."""

    @property
    def sequence_length(self) -> int: ...
    @property
    def burn_in(self) -> int: ...
    @property
    def period(self) -> int: ...
    @property
    def first_state(self) -> str: ...
    @property
    def replay_steps(self) -> int: ...
    @property
    def learning_starts(self) -> int: ...
    @property
    def gradient_steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...


def validate_replay(config: ReplayConfig) -> None:
    """Raises `UserError` for impossible settings of a learner that replays."""
    names = "num_envs rollout_length sequence_length period gradient_steps batch_size replay_steps"
    for name in names.split():
        require_at_least(name, getattr(config, name), 1)
    for name in ("burn_in", "learning_starts"):
        require_at_least(name, getattr(config, name), 0)
    for name in ("rollout_length", "sequence_length", "burn_in"):
        if getattr(config, name) % config.period:
            raise UserError(
                f"{name} must be a multiple of period, got {getattr(config, name)} steps and a "
                f"period of {config.period}"
            )
    needed = steps_before_learning(config)
    if config.replay_steps < needed:
        raise UserError(
            f"replay_steps must have room for the steps before the first gradient step, "
            f"{needed:,}, got {config.replay_steps:,}"
        )
    two = 2 * config.num_envs * config.rollout_length
    if config.replay_steps < two:
        raise UserError(
            f"replay_steps must have room for two rollouts, {two:,} steps, got "
            f"{config.replay_steps:,}"
        )
    require_choice("first_state", config.first_state, FIRST_STATES)


def steps_before_learning(config: ReplayConfig) -> int:
    """Steps of all environments when the first sequence may be drawn.

    It needs a burn-in before it and an observation after it.
    """
    whole = config.burn_in + config.sequence_length + config.period
    rollouts = -(-whole // config.rollout_length)
    return max(rollouts * config.rollout_length * config.num_envs, config.learning_starts)


def gradient_steps_of(config: ReplayConfig, updates: int) -> int:
    """Gradient steps in this many updates, the first of which only gather; at least one
    update's."""
    gathering = -(-steps_before_learning(config) // (config.num_envs * config.rollout_length)) - 1
    return max(updates - gathering, 1) * config.gradient_steps


class Drawn(NamedTuple):
    """The data of a gradient step."""

    read: Steps
    """The burn-in."""
    learned: Steps
    """The sequences."""
    state0: PyTree
    """The stored states before the burn-in."""


@dataclass(frozen=True)
class ReplayedSequences:
    """The replay of a learner, and the sequences that its gradient steps read.

    The memory starts from a stored state. A burn-in brings it up to date: these steps are only
    read. Sequences cross episode boundaries, where the memory resets itself.

    Source: Kapturowski et al. (2019), section 3. Rebuilding a state's caches with the current
    parameters is a deviation, see `refreshed` in the settings.
    """

    config: ReplayConfig

    def gathering(self, *, scheduled: bool, behaviour: Behaviour = follow_policy) -> Gathering:
        """Rollouts in blocks, each of which continues the environments where the previous one
        ended."""
        return Gathering(
            sequence_length=self.config.period,
            sequences_per_step=self.config.batch_size,
            tolerates_lag=True,
            consecutive=True,
            starts=steps_before_learning(self.config),
            scheduled=scheduled,
            behaviour=behaviour,
        )

    def kept(self, agent: Agent, states: State, batch: int) -> State:
        """The stored form of a memory's states before a rollout's blocks, [blocks, batch, ...]."""
        if self.config.first_state == "stored":
            return states
        if self.config.first_state == "zero":
            return ()
        blocks = self.config.rollout_length // self.config.period
        of_environments = jax.vmap(agent.memory.compact, axis_size=batch)
        return jax.vmap(of_environments, axis_size=blocks)(states)

    def draw(self, replay: Replay, key: PRNGKeyArray, exponent: float = 0.0) -> Sequences:
        """Draws a gradient step's sequences by their priorities to the power of the exponent."""
        before, length = self._blocks
        count = self.config.batch_size
        return ring.draw(replay, key, count, exponent, before=before, length=length)

    def take(self, replay: Replay, drawn: Sequences) -> Drawn:
        """The data of the sequences drawn for a gradient step."""
        before, length = self._blocks
        steps, kept = ring.take(replay, drawn, before=before, length=length)
        burn_in = self.config.burn_in
        first = jax.tree.map(lambda x: x[:burn_in], steps)
        return Drawn(first, jax.tree.map(lambda x: x[burn_in:], steps), kept)

    def states(self, agent: Agent, kept: State, burn_in: Steps) -> State:
        """A memory's states after the burn-in, from those `kept` before it; without a gradient."""
        first = self._first(agent, kept)
        if not self.config.burn_in:
            return first
        return states_after(agent, first, burn_in.observation, burn_in.start)

    def values(self, agent: Agent, states: State, steps: Steps) -> Reading:
        """A network's outputs for sequences, and for the observation after them.

        The caches in the first state are rebuilt, so that the projections of remembered
        observations learn.
        """
        if self.config.first_state != "stored":
            states = refresh_all(agent, states, self.config.batch_size)
        return read(agent, states, steps.observation, steps.start)

    def learn(
        self,
        agent: Agent,
        state: LearnerState,
        step: Callable[[Replay, Agent, LearnerState, PRNGKeyArray], Learned],
        key: PRNGKeyArray,
        metrics: tuple[str, ...],
    ) -> Learned:
        """`gradient_steps` gradient steps, once the replay holds enough.

        Args:
            step: a gradient step; its state has only the priorities of the replay, since learning
                changes nothing else in it.
            metrics: names of a step's metrics, besides the memory's; 0 before the first step.
        """
        config, replay = self.config, cast(Replay, state.replay)
        names = (*metrics, *(f"memory.{name}" for name in agent.memory.metric_names))

        def one(agent: Agent, state: LearnerState, key: Array) -> Learned:
            now = replay._replace(priorities=cast(Array, state.replay))
            return step(now, agent, state, key)

        def learned(state: LearnerState) -> tuple[PyTree[Array], LearnerState, Metrics]:
            keys = jax.random.split(key, config.gradient_steps)
            made = learn_minibatches(agent, state, keys, one)
            return eqx.filter(made.agent, eqx.is_array), made.state, made.metrics

        def nothing(state: LearnerState) -> tuple[PyTree[Array], LearnerState, Metrics]:
            zeros = {name: jnp.zeros((), jnp.float32) for name in names}
            return eqx.filter(agent, eqx.is_array), state, zeros

        blocks = -(-steps_before_learning(config) // (config.period * config.num_envs))
        small = state._replace(replay=replay.priorities)
        params, small, found = jax.lax.cond(replay.written >= blocks, learned, nothing, small)
        replay = replay._replace(priorities=small.replay)
        return Learned(eqx.combine(params, agent), small._replace(replay=replay), found)

    @property
    def _blocks(self) -> tuple[int, int]:
        """Number of blocks before a sequence, and its length in blocks."""
        period = self.config.period
        return self.config.burn_in // period, self.config.sequence_length // period

    def _first(self, agent: Agent, kept: State) -> State:
        """The memory before the burn-in of a gradient step's sequences."""
        batch = self.config.batch_size
        if self.config.first_state == "stored":
            return kept
        if self.config.first_state == "zero":
            return empty_memories(agent, batch)
        expanded = jax.vmap(agent.memory.expand, axis_size=batch)(kept)
        return refresh_all(agent, expanded, batch)
