"""Brax's environments behind gymnax's interface: "brax:ant"."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Int

from clew.bridges.jax_packages import Factory, import_package, keywords_of, plain_options
from clew.errors import UserError, require_at_least, require_choice, unknown_name

LENGTH = 1000
"""Steps of an episode, as in Brax's own training."""
ALL, POSITIONS = "all", "positions"
SHOWN = (ALL, POSITIONS, "velocities")
TOLD_APART = ("ant", "halfcheetah", "hopper", "walker2d")
"""Environments that observe positions, then velocities, and nothing else."""


class BraxState(NamedTuple):
    """The state of an episode."""

    inner: Any
    """Brax's own state."""
    time: Int[Array, ""]


class Brax:
    """An environment of Brax: bodies that are moved by torques from -1 to 1.

    Brax's `done` terminates, and the last of `episode_length` steps truncates. Brax's own wrapper
    returns to the same first state after each episode of a training; here each episode has its own
    first state.

    With `shown="positions"` or `"velocities"` an agent must remember: Ant, HalfCheetah, Hopper and
    Walker without velocities or without positions are the tasks of Ni et al. (2022) and of POBAX
    (2025), apart from the versions of the bodies and of the physics.

    Args:
        env: the environment, without wrappers.
        name: of the environment.
        episode_length: most steps of an episode; it ends earlier if the body falls.
        shown: the observed part: "all", "positions" or "velocities".

    Raises:
        UserError: an impossible length, another `shown`, or an environment that observes more than
            positions and velocities.

    Source: brax 0.14.2 (Freeman et al., 2021), `envs/base.py` and `envs/wrappers/training.py`.
    """

    default_params = ()

    def __init__(self, env: Any, name: str, episode_length: int = LENGTH, shown: str = ALL):
        require_at_least("episode_length", episode_length, 1)
        require_choice("shown", shown, SHOWN)
        self.env, self.episode_length = env, episode_length
        whole = int(env.observation_size)
        self.part = slice(0, whole)
        if shown != ALL:
            if name not in TOLD_APART:
                raise UserError(
                    f"brax:{name} observes more than positions and velocities; the option shown is "
                    f"only for {', '.join(TOLD_APART)}"
                )
            positions = whole - env.sys.qd_size()
            self.part = slice(0, positions) if shown == POSITIONS else slice(positions, whole)

    def observation_space(self, params: Any) -> spaces.Box:
        """Places, angles and speeds, without limits."""
        return spaces.Box(-np.inf, np.inf, (self.part.stop - self.part.start,), np.float32)

    def action_space(self, params: Any) -> spaces.Box:
        """Torques, as fractions of the largest."""
        return spaces.Box(-1.0, 1.0, (self.env.action_size,), np.float32)

    def reset(self, key: Array, params: Any) -> tuple[Array, BraxState]:
        """Opens an episode."""
        inner = self.env.reset(key)
        return inner.obs[self.part], BraxState(inner, jnp.zeros((), jnp.int32))

    def step_env(self, key: Array, state: BraxState, action: Array, params: Any) -> tuple[Any, ...]:
        """One step; its random numbers follow from the state."""
        inner, time = self.env.step(state.inner, action), state.time + 1
        terminated = inner.done > 0
        truncated = (time >= self.episode_length) & ~terminated
        observation = inner.obs[self.part]
        return observation, BraxState(inner, time), inner.reward, terminated, truncated, {}


def factory(place: str) -> Factory:
    """A function that builds an environment, with the options of its constructor and of `Brax`.

    Raises:
        UserError: an unknown name, or the package is missing or of another version.
    """
    envs: Any = import_package("brax", "brax.envs")
    known = envs._envs  # there is no public list of them
    if place not in known:
        raise unknown_name("brax environment", place, known)

    def build(episode_length: int = LENGTH, shown: str = ALL, **options: Any) -> Brax:
        return Brax(envs.get_environment(place, **options), place, episode_length, shown)

    return build, keywords_of(plain_options(build) | plain_options(known[place]))
