"""Mixers whose state is a vector or an array with an independent decay for each entry."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from clew.memory.base import State, select
from clew.memory.parts.blocks import LayerNorm
from clew.memory.parts.layer import Mixer
from clew.memory.parts.linear_recurrence import ScanBackend, states_of


class DiagonalMixer(Mixer):
    """s_t = keep_t * s_{t-1} + add_t and y_t = read(s_t, x_t), parallel in time.

    `terms` is the equation; `step` and `unroll` follow from it. The state may be complex.
    """

    norm: eqx.AbstractVar[LayerNorm]
    backend: eqx.AbstractVar[ScanBackend]

    @abc.abstractmethod
    def terms(self, x: Float[Array, "*lead n"]) -> tuple[PyTree[Array], PyTree[Array]]:
        """`keep`, which broadcasts against `add`, and `add`, from the normed input."""

    @abc.abstractmethod
    def read(self, state: Any, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        """y from the states and the normed input."""

    def step(
        self, state: State, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        x = self.norm(x)
        state = select(start, self.init_state(), state)
        state = jax.tree.map(lambda s, k, a: k * s + a, state, *self.terms(x))
        return state, self.read(state, x)

    def unroll(
        self, state: State, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time n"]]:
        """A chunk: all products at once, then the recurrence."""
        xs = self.norm(xs)
        keep, add = self.terms(xs)
        keep = jax.tree.map(lambda k, a: jnp.broadcast_to(k, a.shape), keep, add)
        states = states_of(keep, add, state, starts, self.backend)
        return jax.tree.map(lambda s: s[-1], states), self.read(states, xs)
