"""A window without its key/value cache, as in the published counts of GTrXL."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float

from clew.errors import UserError
from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.parts.attention import WindowAttention, compact_windows, expand_windows


class Reprojecting(AbstractMemory):
    """A memory whose windows store only their inputs, and project all of them at every step.

    The outputs are those of the memory, but the costs differ: a step computes W K and W V for all
    window + 1 stored inputs, and the state has no keys and values.

    Args:
        memory: one with windows (`transformer`, `transformer_xl`, `gtrxl`, `rezero`), or the
            attention of one of their layers.

    Raises:
        UserError: for a memory that has no window.

    Source: Pramanik (2023), Algorithm 3, lines 6 and 7.
    """

    memory: Any
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, memory: Any):
        state = memory.init_state()
        if jax.tree.structure(compact_windows(state)) == jax.tree.structure(state):
            raise UserError(f"{type(memory).__name__} has no window to project again")
        self.memory = memory
        if isinstance(memory, WindowAttention):
            self.input_size, self.output_size = (memory.query.weight.shape[0],) * 2
        else:
            self.input_size, self.output_size = memory.input_size, memory.output_size

    def init_state(self) -> State:
        """The memory's own state without what is derived from the stored inputs."""
        return compact_windows(self.memory.init_state())

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """Projects all keys and values again, then takes the memory's own step."""
        full = expand_windows(state, self.memory.init_state())
        after, y = self.memory.step(self.memory.refresh(full), x, start)
        return compact_windows(after), y

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """Step by step."""
        return scan_steps(self, state, xs, starts)
