"""Acting in Gymnasium environments: the host steps them, the compiled network chooses."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from clew.agents.devices import jit_over
from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.agents.trajectory import step_all
from clew.bridges.gymnasium.stream import HostStep, HostStream
from clew.envs.base import Observation
from clew.interact.acting import Choice, act, step
from clew.interact.host_state import of_seeds
from clew.memory.base import State
from clew.run.config import TrainConfig
from clew.run.sharding import sharding_of

Leaves = PyTree[np.ndarray]


class Experience(NamedTuple):
    """A rollout of B environments, time first, as the host gathered it.

    See `clew.agents.trajectory.Trajectory` for what is what. With several seeds every leaf has
    them as first axis.
    """

    observation: Leaves
    """[T+1, B, ...]."""
    start: np.ndarray
    """[T+1, B]."""
    last: np.ndarray
    """[T+1, B]."""
    action: np.ndarray
    """[T, B, ...]."""
    reward: np.ndarray
    """[T, B]; where a step truncated an episode and opened the next one at once, the discounted
    value of the final observation is in it."""
    discount: np.ndarray
    """[T, B]; 0 where a step terminated an episode, or where the reward is completed so."""
    log_prob: np.ndarray
    """[T, B]."""
    value: np.ndarray
    """[T, B]."""


class HostRollout(NamedTuple):
    """What came of a rollout."""

    experience: Experience
    states: tuple[State, ...]
    """The memory before each sequence of the rollout."""
    memory: State
    """Before the observation after the last step."""
    sums: dict[str, np.ndarray]
    """Over the episodes that ended in it: "episodes" and the stream's metrics."""


class HostActor:
    """Acts for one agent, or for several seeds side by side, each in its own environments.

    Args:
        config: of the run: its seeds, the rollout's length, after how many steps the memory's
            state is kept for the learner, the discount that completes the returns of truncated
            episodes, and when an environment in a worker process counts as hung.
        static: the agent without its arrays.
    """

    def __init__(self, config: TrainConfig, static: Agent):
        learning, seeds = config.learning, config.seeds
        self._static, self._seeds = static, seeds
        self._length, self._sequence = learning.rollout_length, config.sequence_length
        self._gamma, self._timeout = np.float32(learning.gamma), config.host.timeout
        sharing = sharding_of(config)
        choose = sharing.each_seed(partial(act, static, False, _kept), (0, 0, 0, 0, 0, None))
        judge = sharing.each_seed(partial(_judge, static), (0, 0, 0))
        # A memory that has read its observation is used up: a window is written to in place.
        self._choose = jit_over(sharing.mesh, choose, donate_argnums=1)
        self._judge = jit_over(sharing.mesh, judge)

    def rollout(
        self,
        streams: Sequence[HostStream],
        steps: Sequence[HostStep],
        params: PyTree[Array],
        memory: State,
        key: PRNGKeyArray,
    ) -> tuple[HostRollout, Sequence[HostStep]]:
        """Acts for a rollout.

        Args:
            streams: one for every seed.
            steps: what each shows.
            params: the agent's arrays.
            memory: before what the streams show; it is used up.
            key: of the actions, one for every seed.

        Returns:
            What came of it, and what the streams show now.

        Raises:
            EnvironmentFault: an environment failed; what was gathered is lost.
        """
        seen, rows, states = [_seen(steps)], [], []
        for time in range(self._length):
            if time % self._sequence == 0:
                states.append(jax.tree.map(jnp.copy, memory))
            observation, start, _ = seen[-1]
            memory, chosen = self._choose(params, memory, observation, start, key, np.int32(time))
            action, log_prob, value = np.asarray(chosen[0]), *chosen[1:]
            actions = list(action) if self._seeds > 1 else [action]
            steps = step(streams, self._static.distribution, actions, self._timeout)
            reward, discount, ended, metrics = self._told(steps, params, memory)
            acted = (action, reward, discount, np.asarray(log_prob), np.asarray(value))
            rows.append((*acted, ended, metrics))
            seen.append(_seen(steps))
        *acted, ended, metrics = self._stacked(rows)
        observed = self._stacked(seen)
        axes = (-2, -1)
        sums = {"episodes": ended.sum(axes, dtype=np.float32)}
        sums |= {name: x.sum(axes, dtype=np.float32) for name, x in metrics.items()}
        return HostRollout(Experience(*observed, *acted), tuple(states), memory, sums), steps

    def _told(
        self, steps: Sequence[HostStep], params: PyTree[Array], memory: State
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Rewards and discounts, which episodes ended, and their metrics."""
        told = [(s.reward, s.discount, s.ended, s.metrics) for s in steps]
        reward, discount, ended, metrics = of_seeds(told)
        if any(s.final is not None for s in steps):
            # The next episode has been opened already: only the reward can tell what would follow.
            never = np.zeros_like(steps[0].start)
            finals = [s.final or (never, s.observation) for s in steps]
            cut, observation = of_seeds(finals)
            value = np.asarray(self._judge(params, memory, observation))
            reward = np.where(cut, reward + self._gamma * value, reward)
            discount = np.where(cut, np.float32(0), discount)
        return reward, discount, ended, metrics

    def _stacked(self, rows: Sequence[Leaves]) -> Leaves:
        """One tree of all times: [T, ...], or [seeds, T, ...]."""
        axis = 0 if self._seeds == 1 else 1
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis), *rows)


def _seen(steps: Sequence[HostStep]) -> tuple[Leaves, np.ndarray, np.ndarray]:
    return of_seeds([(s.observation, s.start, s.last) for s in steps])


def _kept(distribution: Distribution, choice: Choice) -> tuple[Array, Array, Array]:
    """Actions, their log-probabilities, and values."""
    return choice.action, distribution.log_prob(choice.logits, choice.action), choice.value


def _judge(static: Agent, params: PyTree[Array], memory: State, observation: Observation) -> Array:
    """The value of observations that go on with the episodes; the memory does not keep them."""
    agent = eqx.combine(params, static)
    never = jnp.zeros(jax.tree.leaves(observation)[0].shape[0], bool)
    return step_all(agent, memory, observation, never)[2]
