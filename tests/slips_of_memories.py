"""Memories with typical mistakes of beginners."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

import clew
from clew.memory import scan_steps


class Summing(clew.AbstractMemory):
    """The correct version, from which the others differ."""

    def init_state(self) -> Array:
        """Zeros."""
        return jnp.zeros(self.input_size)

    def step(self, state: Array, x: Array, start: Array) -> tuple[Array, Array]:
        """A sum."""
        return (state := jnp.where(start, 0, state) + x), self.shown(state, start)

    def unroll(self, state: Array, xs: Array, starts: Array) -> tuple[Array, Array]:
        """As `step`."""
        return scan_steps(self, state, xs, starts)

    def shown(self, state: Array, start: Array) -> Array:
        """The output."""
        return state


class Keyless(Summing):
    """Takes no key."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)


class Sizeless(Summing):
    """Has no output_size."""

    input_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, *, key: Any):
        self.input_size = input_size


class Undeclared(Keyless):
    """Sets a field that it has not declared."""

    def __init__(self, input_size: int, *, key: Any):
        self.input_size = self.output_size = input_size
        self.rate = 0.1  # pyright: ignore


class Wide(Keyless):
    """Returns more than output_size numbers."""

    def __init__(self, input_size: int, *, key: Any):
        self.input_size = self.output_size = input_size

    def shown(self, state: Array, start: Array) -> Array:
        """Everything twice."""
        return jnp.concatenate([state, state])


class Branching(Keyless):
    """Branches with Python's if."""

    def __init__(self, input_size: int, *, key: Any):
        self.input_size = self.output_size = input_size

    def shown(self, state: Array, start: Array) -> Array:
        """One or the other."""
        return state if start else -state
