"""What is around a task written in JAX: the base of wrappers, fewer entries, other rewards."""

from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Environment, EnvState, Observation, Transition
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError

if TYPE_CHECKING:
    from gymnasium.spaces import Space


class Wrapper(Environment):
    """A task around another one that changes what the agent sees of it.

    The settings and what they do are those of `WrapperConfig` for environments of others.
    """

    env: Environment
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, env: Environment):
        self.env = env
        self.num_actions, self.metric_names = env.num_actions, env.metric_names
        space = self.observation_space
        parts = getattr(space, "spaces", {"": space}).values()
        self.observation_size = sum(int(np.prod(part.shape, dtype=int)) for part in parts)

    @property
    def observation_space(self) -> "Space":
        """What observations are."""
        return self.env.observation_space

    @property
    def action_space(self) -> "Space":
        """What actions are."""
        return self.env.action_space

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the actions are called."""
        return self.env.action_names

    def opening(self, observation: Observation) -> Observation:
        """What the agent sees of the observation that opens an episode."""
        return observation

    def after(self, transition: Transition, action: Array) -> Transition:
        """What the agent sees of a step."""
        return transition

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens an episode."""
        state, observation = self.env.reset(key)
        return state, self.opening(observation)

    def next_episode(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens the episode after the one that ended."""
        state, observation = self.env.next_episode(state, key)
        return state, self.opening(observation)

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        """Takes one action."""
        state, transition = self.env.step(state, action, key)
        return state, self.after(transition, action)

    def remembered(self, state: EnvState) -> dict[str, Int[Array, ""]]:
        """What the task says is to be remembered."""
        return self.env.remembered(state)

    def render_image(self, state: Any, observation: Any) -> Any:
        """The task's own picture of a step."""
        return self.env.render_image(state, observation)

    def render_text(self, state: Any, observation: Any) -> str | None:
        """The task's own lines of a step."""
        return self.env.render_text(state, observation)


class KeptEntries(Wrapper):
    """Shows some entries of a vector observation; `keep` of `WrapperConfig`.

    Args:
        env: the task.
        keep: indices of the entries, in the order in which they are shown.

    Raises:
        UserError: no vector observation, or it has no such entry.
    """

    keep: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, env: Environment, keep: tuple[int, ...]):
        WrapperConfig(keep=keep).validate()
        self.keep = keep
        super().__init__(env)

    @property
    def observation_space(self) -> "Space":
        """The vectors of the entries."""
        from clew.envs.wrapped_space import kept

        return kept(self.env.observation_space, WrapperConfig(keep=self.keep))

    def opening(self, observation: Observation) -> Observation:
        """The entries."""
        return jnp.asarray(observation)[np.array(self.keep)]

    def after(self, transition: Transition, action: Array) -> Transition:
        """The entries."""
        return transition._replace(observation=self.opening(transition.observation))

    def render_image(self, state: Any, observation: Any) -> None:
        """None: the task draws from whole observations."""

    def render_text(self, state: Any, observation: Any) -> None:
        """None: the task draws from whole observations."""


class Earned(NamedTuple):
    """A task's state and the sum of its own rewards in this episode."""

    env: EnvState
    total: Float[Array, ""]


class ScaledReward(Wrapper):
    """Gives min(c, max(-c, scale r)) for a reward r; `reward_scale`, `reward_clip`.

    The metric "return" remains the sum of the task's own rewards.

    Args:
        env: the task.
        scale: what rewards are multiplied by, above 0.
        clip: c, above 0; None for no limit.

    Raises:
        UserError: an impossible number, or the task is inside of `PreviousActionReward`, which
            shows rewards as they are learned from.
    """

    scale: float = eqx.field(static=True)
    clip: float | None = eqx.field(static=True)

    def __init__(self, env: Environment, scale: float = 1.0, clip: float | None = None):
        from clew.envs.previous import PreviousActionReward

        WrapperConfig(reward_scale=scale, reward_clip=clip).validate()
        if isinstance(env, PreviousActionReward):
            raise UserError("ScaledReward belongs inside of PreviousActionReward, not around it")
        self.scale, self.clip = scale, clip
        super().__init__(env)
        self.metric_names = (*(n for n in env.metric_names if n != "return"), "return")

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens an episode."""
        state, observation = self.env.reset(key)
        return Earned(state, jnp.zeros((), jnp.float32)), observation

    def next_episode(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens the episode after the one that ended."""
        fresh, observation = self.env.next_episode(state.env, key)
        return Earned(fresh, jnp.zeros((), jnp.float32)), observation

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        """Takes one action."""
        inner, transition = self.env.step(state.env, action, key)
        total = state.total + transition.reward
        reward = transition.reward * self.scale
        if self.clip is not None:
            reward = jnp.clip(reward, -self.clip, self.clip)
        metrics = {"return": total} | transition.metrics  # a wrapper within may know it better
        return Earned(inner, total), transition._replace(reward=reward, metrics=metrics)

    def remembered(self, state: EnvState) -> dict[str, Int[Array, ""]]:
        """What the task says is to be remembered."""
        return self.env.remembered(state.env)

    def render_image(self, state: Any, observation: Any) -> Any:
        """The task's own picture of a step."""
        return self.env.render_image(state.env, observation)

    def render_text(self, state: Any, observation: Any) -> str | None:
        """The task's own lines of a step."""
        return self.env.render_text(state.env, observation)
