"""Noise on observations, and numbers that a user gives."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Float, Key

from clew.envs.base import Environment, EnvState, Transition
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import LONGEST_EPISODE, UserError, require_at_least, require_rate


class Noisy(Environment):
    """Adds noise of standard deviation sigma to a vector observation, then clips it to its space.

    It is the first base class, before the task whose observations it changes. Episodes have 200
    steps; the difficulty is sigma.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"sigma": 0.1, "max_steps": 200},
        "medium": {"sigma": 0.2, "max_steps": 200},
        "hard": {"sigma": 0.3, "max_steps": 200},
    }
    sigma: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def __init__(
        self, difficulty: str = "easy", sigma: float | None = None, max_steps: int | None = None
    ):
        self.sigma, self.max_steps = sized(self.SIZES, difficulty, sigma=sigma, max_steps=max_steps)
        require_rate("sigma", self.sigma)
        require_at_least("max_steps", self.max_steps, 1, LONGEST_EPISODE)

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Float[Array, " n"]]:
        state, seen = super().reset(key)  # pyright: ignore[reportAbstractUsage]
        return state, self.with_noise(seen, _numbers(jax.random.fold_in(key, 1), seen))

    def reset_to(
        self, *args: Any, noise: Float[Array, " n"] | np.ndarray | None = None, **kwargs: Any
    ) -> tuple[EnvState, Float[Array, " n"]]:
        """Like the task's, with this noise in standard deviations; None for none."""
        state, seen = super().reset_to(*args, **kwargs)
        return state, seen if noise is None else self.with_noise(seen, noise)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        drawn = super().draw(rng, number)
        return drawn | {"noise": rng.standard_normal(self.observation_size, np.float32)}

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        after, then = super().step(state, action, key)  # pyright: ignore[reportAbstractUsage]
        noise = _numbers(key, then.observation)
        return after, then._replace(observation=self.with_noise(then.observation, noise))

    def with_noise(
        self, seen: Float[Array, " n"], noise: Float[Array, " n"] | np.ndarray
    ) -> Float[Array, " n"]:
        """The observation with noise, given in standard deviations."""
        space = self.observation_space
        assert isinstance(space, Box)
        added = seen + self.sigma * jnp.asarray(noise, seen.dtype)
        return jnp.clip(added, jnp.asarray(space.low), jnp.asarray(space.high))


def _numbers(key: Key[Array, ""], seen: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.random.normal(key, seen.shape, seen.dtype)


def forced_numbers(name: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of this shape; raises `UserError` for anything else."""
    try:
        numbers = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise UserError(f"{name} must be {shape[0]} finite numbers, got {given!r}")
    return numbers
