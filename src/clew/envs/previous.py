"""The agent's previous action and reward as part of what it sees, and all wrappers together."""

import dataclasses
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from clew.envs.around import KeptEntries, ScaledReward, Wrapper
from clew.envs.base import Environment, Observation, Transition
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError

if TYPE_CHECKING:
    from gymnasium.spaces import Dict, Space

FOR_JAX = ("keep", "reward_scale", "reward_clip", "previous")
"""The settings of `WrapperConfig` that tasks written in JAX take."""


class PreviousActionReward(Wrapper):
    """Shows the agent its previous action and reward; `previous` of `WrapperConfig`.

    The observation becomes a dict of "observation" (or the task's own names), "previous_action"
    (one-hot, joined for a MultiDiscrete; a Box or MultiBinary as it is) and "previous_reward" [1].
    Both are 0 where an episode opens. The final observation of a truncated episode shows the
    action and the reward that led to it.

    Args:
        env: the task; with other rewards, `ScaledReward` goes inside.

    Raises:
        UserError: the task observes something of these names already.
    """

    def __init__(self, env: Environment):
        super().__init__(env)

    @property
    def observation_space(self) -> "Dict":
        """A dict of Boxes and of what the task observes."""
        from clew.envs.wrapped_space import observed

        clip = self.env.clip if isinstance(self.env, ScaledReward) else None
        config = WrapperConfig(previous=True, reward_clip=clip)
        # What the task observes is the agent's already.
        return cast("Dict", observed(self.env.observation_space, self.action_space, config))

    def opening(self, observation: Observation) -> Observation:
        """The first observation of an episode, which nothing led to."""
        size = self.observation_space["previous_action"].shape or ()
        return _joined(observation, jnp.zeros(size, jnp.float32), jnp.zeros((), jnp.float32))

    def after(self, transition: Transition, action: Array) -> Transition:
        """An observation, and what led to it."""
        taken = encode_action(self.action_space, action)
        seen = _joined(transition.observation, taken, transition.reward)
        return transition._replace(observation=seen)

    def render_image(self, state: Any, observation: Any) -> Any:
        """The task's own picture of a step."""
        return self.env.render_image(state, _inner(observation))

    def render_text(self, state: Any, observation: Any) -> str | None:
        """The task's own lines of a step."""
        return self.env.render_text(state, _inner(observation))


def encode_action(space: "Space", action: Array) -> Float[Array, "..."]:
    """One action as float32 numbers, as `clew.envs.wrapped_space.encode_actions` does for many."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(action - int(space.start), int(space.n), dtype=jnp.float32)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, places = space.nvec.ravel(), (action - np.asarray(space.start, np.int32)).ravel()
        parts = [jax.nn.one_hot(places[i], int(n), dtype=jnp.float32) for i, n in enumerate(sizes)]
        return jnp.concatenate(parts)
    return jnp.asarray(action, jnp.float32)


def wrap(env: Environment, config: WrapperConfig, name: str = "the task") -> Environment:
    """A task with a run's wrappers around it.

    Raises:
        UserError: impossible settings, settings that do not fit the task, or those that only
            environments of others take.
    """
    config.validate()
    for field in dataclasses.fields(config):
        if field.name not in FOR_JAX and getattr(config, field.name) != field.default:
            raise UserError(
                f"{field.name} goes around environments of others, and {name} is written in JAX, "
                f"which takes {', '.join(FOR_JAX)}; see its own options"
            )
    if config.keep is not None:
        env = KeptEntries(env, config.keep)
    if config.reward_scale != 1.0 or config.reward_clip is not None:
        env = ScaledReward(env, config.reward_scale, config.reward_clip)
    return PreviousActionReward(env) if config.previous else env


def _joined(observation: Observation, action: Array, reward: Array) -> dict[str, Any]:
    from clew.envs.wrapped_space import ADDED, BARE

    named = observation if isinstance(observation, dict) else {BARE: observation}
    return {**named, ADDED[0]: action, ADDED[1]: reward[None]}


def _inner(observation: dict[str, Any]) -> Any:
    from clew.envs.wrapped_space import ADDED, BARE

    rest = {name: value for name, value in observation.items() if name not in ADDED}
    return rest[BARE] if list(rest) == [BARE] else rest
