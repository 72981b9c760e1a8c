"""Tasks whose actions are masked: several choices at once, and masks that are wrong."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array

from clew.envs import Environment, Transition


class Doors(NamedTuple):
    """Where an episode stands."""

    time: Array
    allowed: Array


class Masked(Environment):
    """Two choices with random masks; an episode ends after 1 to 4 steps, in either way.

    Whoever takes what is forbidden earns NaN.

    Args:
        wrong: "nothing" allows nothing in the third step, "shape" and "dtype" are no masks.
    """

    wrong: str = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    observation_size = 3
    num_actions = 0
    metric_names = ()

    def __init__(self, wrong: str = "", sizes: tuple[int, ...] = (4, 2)):
        self.wrong, self.sizes = wrong, sizes

    @property
    def action_space(self) -> spaces.Space:
        """Two choices."""
        return spaces.MultiDiscrete(self.sizes)

    def _draw(self, key: Array, time: Array) -> tuple[Doors, Array]:
        allowed = jax.random.bernoulli(key, 0.4, (sum(self.sizes),))
        begins = np.cumsum([0, *self.sizes])[:-1]
        allowed = allowed.at[begins + 1].set(True)
        if self.wrong == "nothing":
            allowed = allowed & (time != 2)
        return Doors(time, allowed), jax.random.normal(key, (3,))

    def reset(self, key: Array) -> tuple[Doors, Array]:
        """Draws a mask."""
        return self._draw(key, jnp.zeros((), jnp.int32))

    def action_mask(self, state: Doors) -> Array:
        """The mask that was drawn."""
        if self.wrong == "shape":
            return state.allowed[1:]
        return state.allowed.astype(jnp.float32) if self.wrong == "dtype" else state.allowed

    def step(self, state: Doors, action: Array, key: Array) -> tuple[Doors, Transition]:
        """Ends in one of four cases, by termination or truncation."""
        after, observation = self._draw(key, state.time + 1)
        kind = jax.random.randint(key, (), 0, 8)
        over = after.time >= 4
        begins = jnp.asarray(np.cumsum([0, *self.sizes])[:-1], jnp.int32)
        fine = jnp.all(state.allowed[begins + action]) | (self.wrong == "nothing")
        return after, Transition(
            observation=observation,
            reward=jnp.where(fine, observation[0], jnp.nan),
            terminated=over | (kind == 0),
            truncated=kind == 1,
            metrics={},
        )


def masks(sizes: tuple[int, ...], count: int, seed: int = 0) -> np.ndarray:
    """Random masks [count, n] that allow something of every choice."""
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    for n in sizes:
        part = rng.random((count, n)) < 0.5
        part[np.arange(count), rng.integers(n, size=count)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)
