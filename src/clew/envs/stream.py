"""Endless streams of episodes of tasks written in JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium.spaces import Space
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import Environment, EnvState, Metrics, Observation, Transition, choose
from clew.envs.spaces import ActionMask, allows_some, choice_sizes, join_mask, with_mask
from clew.errors import UserError


class TimeStep(NamedTuple):
    """What an agent sees after a step of a stream of episodes (`AutoReset`)."""

    observation: Observation
    reward: Float[Array, ""]
    discount: Float[Array, ""]
    """0 where the step terminated an episode, otherwise 1."""
    start: Bool[Array, ""]
    """`observation` opens an episode."""
    last: Bool[Array, ""]
    """`observation` is the final one of a truncated episode: the next step ignores its action and
    opens an episode, so the transition from here must not be learned from."""
    ended: Bool[Array, ""]
    """This step ended an episode, by termination or truncation."""
    metrics: Metrics
    """The environment's metrics with "return" (undiscounted sum of rewards) and "length"
    (steps) of the episode that this step ended; 0 where none ended."""


def where_any(one: Callable[..., Any]) -> Callable[..., Any]:
    """`one(choice, state, seen, key)`, computed only for those of a batch whose `choice` is true.

    For the others the result is `(state, seen)`, and `one` must return that too where `choice` is
    false. A few are computed one by one, more than an eighth of the batch all together. A plain
    `vmap` of a condition would always compute both branches. Several batch axes count as one.
    """

    def unchanged(choice: Any, state: Any, seen: Any, key: Any) -> Any:
        return state, seen

    @jax.custom_batching.custom_vmap
    def alone(*inputs: Any) -> Any:
        return jax.lax.cond(inputs[0], one, unchanged, *inputs)

    def one_by_one(choices: Array, *others: Any) -> Any:
        def following(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            left, found = carry
            index = jnp.argmax(left)
            new = one(*jax.tree.map(lambda x: x[index], (choices, *others)))
            found = jax.tree.map(lambda x, value: x.at[index].set(value), found, new)
            return left.at[index].set(False), found

        return jax.lax.while_loop(lambda carry: carry[0].any(), following, (choices, others[:2]))[1]

    @jax.custom_batching.custom_vmap
    def batched(*inputs: Any) -> Any:
        count = jnp.sum(inputs[0])
        way = jnp.where(count == 0, 0, jnp.where(count * 8 <= inputs[0].size, 1, 2))
        return jax.lax.switch(way, (unchanged, one_by_one, jax.vmap(one)), *inputs)

    @alone.def_vmap
    def of_batch(size: int, in_batch: Sequence[Any], *inputs: Any) -> Any:
        found = batched(*_all_in_batch(size, in_batch, inputs))
        return found, jax.tree.map(lambda _: True, found)

    @batched.def_vmap
    def of_batches(size: int, in_batch: Sequence[Any], *inputs: Any) -> Any:
        inputs = _all_in_batch(size, in_batch, inputs)
        inner = inputs[0].shape[1]
        found = batched(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), inputs))
        found = jax.tree.map(lambda x: x.reshape(size, inner, *x.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return alone


def _all_in_batch(size: int, in_batch: Sequence[Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, each with the batch as its first axis."""
    axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batch))
    return jax.vmap(lambda *each: each, axes, axis_size=size)(*inputs)


class AutoResetState(NamedTuple):
    """The environment's state and the counters of the running episode."""

    env: EnvState
    last: Bool[Array, ""]
    episode_return: Float[Array, ""]
    episode_length: Int[Array, ""]


class AutoReset(eqx.Module):
    """Turns an environment into an endless stream of episodes.

    After a termination the same step returns the next episode's first observation, with `start`
    true and `discount` 0. A truncated episode first returns its final observation, with `last` true
    and `discount` 1, because its value completes the truncated return; the step after it belongs to
    no episode (its action is ignored, its reward is 0) and returns the next episode's first
    observation. A step that reports both counts as terminated.

    Where the task masks actions (`Environment.action_mask`) the observation becomes a dict with
    "action_mask"; if a `last` observation allows no action, all are allowed. An action after any
    other mask that allows none earns NaN, which ends a run.

    No batch axis: `jax.vmap(stream.step)(states, actions, keys)` steps many environments.
    """

    env: Environment
    """The task."""
    show_mask: bool = eqx.field(static=True, default=False)
    """Whether the agent's encoder reads the mask too."""

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.env.observation_size

    @property
    def observation_space(self) -> Space:
        """The space of observations."""
        space = self.env.observation_space
        if not self.masks_actions:
            return space
        return with_mask(space, ActionMask(self.action_space, self.show_mask))

    @property
    def masks_actions(self) -> bool:
        """Whether observations have an action mask."""
        return self.env.masks_actions

    @property
    def action_space(self) -> Space:
        """The space of actions."""
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
        """A stream that begins with an episode that is already open."""
        zero, false = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.bool_)
        timestep = TimeStep(
            observation=self._masked(observation, env_state, false),
            reward=zero,
            discount=jnp.ones((), jnp.float32),
            start=jnp.ones((), jnp.bool_),
            last=false,
            ended=false,
            metrics={name: zero for name in self.metric_names},
        )
        return AutoResetState(env_state, false, zero, jnp.zeros((), jnp.int32)), timestep

    def open_next(
        self, state: AutoResetState, seen: TimeStep, key: Key[Array, ""]
    ) -> tuple[AutoResetState, TimeStep]:
        """Opens an episode where `seen` is `last`; `step` would use a separate step for it."""

        def opened(last: Array, state: AutoResetState, seen: TimeStep, key: Array) -> Any:
            following = self.opened(*self.env.next_episode(state.env, key))
            return choose(last, following, (state, seen))

        one = where_any(opened) if self.env.opening_is_costly else opened
        return one(seen.last, state, seen, key)

    def step(
        self, state: AutoResetState, action: Array, key: Key[Array, ""]
    ) -> tuple[AutoResetState, TimeStep]:
        """Takes one action, or opens an episode where the previous one was truncated."""
        env_state, transition = self.env.step(state.env, action, jax.random.split(key)[0])

        alive = ~state.last
        terminated = transition.terminated & alive
        truncated = transition.truncated & ~transition.terminated & alive
        ended, start = terminated | truncated, terminated | state.last
        reward = jnp.where(alive, transition.reward, 0.0)
        mask = self._mask(state.env)
        if mask is not None:
            stuck = alive & ~allows_some(mask, choice_sizes(self.action_space))
            reward = jnp.where(stuck, jnp.nan, reward)
        episode_return = state.episode_return + reward
        episode_length = state.episode_length + alive.astype(jnp.int32)
        metrics = self._metrics(transition, episode_return, episode_length)

        seen = transition.observation
        env_state, observation = self._next(start, env_state, seen, key)
        timestep = TimeStep(
            observation=self._masked(observation, env_state, truncated),
            reward=reward,
            discount=1.0 - terminated.astype(jnp.float32),
            start=start,
            last=truncated,
            ended=ended,
            metrics={name: jnp.where(ended, value, 0.0) for name, value in metrics.items()},
        )
        next_state = AutoResetState(
            env=env_state,
            last=truncated,
            episode_return=jnp.where(start, 0.0, episode_return),
            episode_length=jnp.where(start, 0, episode_length),
        )
        return next_state, timestep

    def _next(
        self, start: Bool[Array, ""], state: EnvState, seen: Observation, key: Key[Array, ""]
    ) -> tuple[EnvState, Observation]:
        """The next episode's state and first observation where `start`, otherwise these.

        Its key is the second half of the step's key, whose first half went to the task. It is split
        here, so that nothing is drawn if no episode opens and the task draws nothing.
        """

        def opened(start: Array, state: EnvState, seen: Observation, key: Array) -> Any:
            reset_key = jax.random.split(key)[1]
            return choose(start, self.env.next_episode(state, reset_key), (state, seen))

        one = where_any(opened) if self.env.opening_is_costly else opened
        return one(start, state, seen, key)

    def _mask(self, state: EnvState) -> Bool[Array, " n"] | None:
        """The task's mask, checked against the space of actions."""
        mask = self.env.action_mask(state)
        if mask is None:
            return None
        size = sum(choice_sizes(self.action_space))
        if mask.shape != (size,) or mask.dtype != jnp.bool_:
            raise UserError(
                f"{type(self.env).__name__}.action_mask must be {size} booleans for "
                f"{self.action_space}, got {mask.dtype} of shape {list(mask.shape)}"
            )
        return mask

    def _masked(
        self, observation: Observation, state: EnvState, last: Bool[Array, ""]
    ) -> Observation:
        """The observation with the mask of its state, if the task has one.

        This includes the end of a truncated episode, where a learner may need a value over the
        allowed actions.
        """
        mask = self._mask(state)
        if mask is None:
            return observation
        nothing = ~allows_some(mask, choice_sizes(self.action_space))
        return join_mask(observation, mask | (last & nothing))

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
