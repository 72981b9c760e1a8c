"""Endless streams of episodes of tasks written in JAX."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium.spaces import Space
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from clew.envs.base import Environment, EnvState, Metrics, Observation, Transition
from clew.errors import UserError


class TimeStep(NamedTuple):
    """What an agent sees after a step of a stream of episodes (`AutoReset`)."""

    observation: Observation
    reward: Float[Array, ""]
    discount: Float[Array, ""]
    """0 where the step terminated an episode, else 1."""
    start: Bool[Array, ""]
    """`observation` opens an episode."""
    last: Bool[Array, ""]
    """`observation` is the final one of a truncated episode: the next step ignores its action and
    opens an episode, so the transition that leaves it teaches nothing."""
    ended: Bool[Array, ""]
    """This step ended an episode, by termination or by truncation."""
    metrics: Metrics
    """The environment's metrics with "return" (undiscounted sum of rewards) and "length"
    (steps) of the episode that this step ended; 0 where none ended."""


class AutoResetState(NamedTuple):
    """The environment's state and what is counted about the running episode."""

    env: EnvState
    last: Bool[Array, ""]
    episode_return: Float[Array, ""]
    episode_length: Int[Array, ""]


class AutoReset(eqx.Module):
    """Turns an environment into an endless stream of episodes.

    After a termination the same step returns the next episode's first observation, with `start`
    true and `discount` 0. A truncated episode first returns its final observation, with `last` true
    and `discount` 1, because its value completes the truncated return; the step after it is no part
    of any episode (its action is ignored, its reward is 0) and returns the next episode's first
    observation. A step that reports both counts as terminated.

    No batch axis: `jax.vmap(stream.step)(states, actions, keys)` steps many environments.
    """

    env: Environment

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.env.observation_size

    @property
    def observation_space(self) -> Space:
        """What observations are."""
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        """What actions are."""
        return self.env.action_space

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names in `TimeStep.metrics`."""
        own = self.env.metric_names
        return (*own, *(name for name in ("return", "length") if name not in own))

    def reset(self, key: Key[Array, ""]) -> tuple[AutoResetState, TimeStep]:
        """Opens the first episode."""
        return self.opened(*self.env.reset(key))

    def opened(
        self, env_state: EnvState, observation: Observation
    ) -> tuple[AutoResetState, TimeStep]:
        """A stream that begins with an episode that was opened already, in whatever way."""
        zero, false = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.bool_)
        timestep = TimeStep(
            observation=observation,
            reward=zero,
            discount=jnp.ones((), jnp.float32),
            start=jnp.ones((), jnp.bool_),
            last=false,
            ended=false,
            metrics={name: zero for name in self.metric_names},
        )
        return AutoResetState(env_state, false, zero, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, state: AutoResetState, action: Array, key: Key[Array, ""]
    ) -> tuple[AutoResetState, TimeStep]:
        """Takes one action, or opens an episode where the previous one was truncated."""
        step_key, reset_key = jax.random.split(key)
        env_state, transition = self.env.step(state.env, action, step_key)
        fresh_state, fresh_observation = self.env.next_episode(env_state, reset_key)

        alive = ~state.last
        terminated = transition.terminated & alive
        truncated = transition.truncated & ~transition.terminated & alive
        ended, start = terminated | truncated, terminated | state.last
        reward = jnp.where(alive, transition.reward, 0.0)
        episode_return = state.episode_return + reward
        episode_length = state.episode_length + alive.astype(jnp.int32)
        metrics = self._metrics(transition, episode_return, episode_length)

        timestep = TimeStep(
            observation=_where(start, fresh_observation, transition.observation),
            reward=reward,
            discount=1.0 - terminated.astype(jnp.float32),
            start=start,
            last=truncated,
            ended=ended,
            metrics={name: jnp.where(ended, value, 0.0) for name, value in metrics.items()},
        )
        next_state = AutoResetState(
            env=_where(start, fresh_state, env_state),
            last=truncated,
            episode_return=jnp.where(start, 0.0, episode_return),
            episode_length=jnp.where(start, 0, episode_length),
        )
        return next_state, timestep

    def _metrics(
        self, transition: Transition, episode_return: Array, episode_length: Array
    ) -> Metrics:
        own, declared = transition.metrics, self.env.metric_names
        if set(own) != set(declared):
            raise UserError(
                f"{type(self.env).__name__} declares the metrics {sorted(declared)} but its step "
                f"returned {sorted(own)}"
            )
        counted = {"return": episode_return, "length": episode_length.astype(jnp.float32)}
        return counted | own  # a wrapper that changes rewards reports the task's own return


def _where(choice: Bool[Array, ""], a: PyTree[Array], b: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda x, y: jnp.where(choice, x, y), a, b)
