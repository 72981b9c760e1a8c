"""Any memory that is also told the number of the step, for `benchmarks.steps_back`."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.memory import AbstractMemory, make_memory
from clew.memory.parts.positions import count_positions, encode

State = tuple[Int[Array, ""], Any]
"""The number of the next step in its episode, and the inner memory's state."""


class ToldTheStep(AbstractMemory):
    """A memory that reads [x_t | e_t], e_t being the sines and cosines of `PositionMLP`.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        of: name of the inner memory.
        options: the inner memory's.
        encoding_size: size of e, by default that of `PositionMLP`.
        period: tell the number modulo this instead; 0 for the number itself.
    """

    inner: AbstractMemory
    encoding_size: int = eqx.field(static=True)
    period: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        of: str = "gru",
        options: Mapping[str, Any] | None = None,
        encoding_size: int = 32,
        period: int = 0,
    ):
        self.inner = make_memory(
            of, input_size=input_size + encoding_size, key=key, **(options or {})
        )
        self.encoding_size, self.period = encoding_size, period
        self.input_size, self.output_size = input_size, self.inner.output_size

    def init_state(self) -> State:
        return jnp.array(0, jnp.int32), self.inner.init_state()

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        state, ys = self.unroll(state, x[None], start[None])
        return state, ys[0]

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        step, inner = state
        positions, step = count_positions(step, starts)
        told = positions % self.period if self.period else positions
        encoded = encode(told, self.encoding_size, xs.dtype)
        inner, ys = self.inner.unroll(inner, jnp.concatenate([xs, encoded], axis=-1), starts)
        return (step, inner), ys
