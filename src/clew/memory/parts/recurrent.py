"""What the LSTM and the GRU share as memories: cells on top of each other."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import (
    AbstractMemory,
    State,
    check_step_input,
    check_unroll_input,
    select,
)
from clew.memory.parts.cells import AbstractCell, scan_cell
from clew.memory.parts.maps import MemoryMap, prefixed


class RecurrentStack(AbstractMemory):
    """Cells on top of each other; each reads the output of the one below."""

    cells: eqx.AbstractVar[tuple[Any, ...]]  # of AbstractCell; a model names its own kind

    def init_state(self) -> State:
        """Zeros for every cell."""
        return tuple(cell.init_state() for cell in self.cells)

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """One observation through all cells."""
        check_step_input(self, x, start)
        after = []
        for cell, before in zip(self.cells, state, strict=True):
            before = select(start, cell.init_state(), before)
            after.append(cell.advance(before, x))
            x = cell.output(after[-1])
        return tuple(after), x

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """A chunk, cell by cell: one input product for the chunk, then the recurrence."""
        check_unroll_input(self, xs, starts)
        after = []
        for cell, before in zip(self.cells, state, strict=True):
            new, xs = scan_cell(cell, before, xs, starts)
            after.append(new)
        return tuple(after), xs

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """The gates of every cell."""
        found: dict[str, MemoryMap] = {}
        for number, cell in enumerate(self.cells, 1):
            maps, xs = cell_maps(cell, xs)
            found |= prefixed(f"layer {number}: ", maps)
        return found


def cell_maps(
    cell: AbstractCell, xs: Float[Array, "time in"]
) -> tuple[dict[str, MemoryMap], Float[Array, "time size"]]:
    """A cell's gates over an episode, and its outputs."""
    fresh = cell.init_state()
    _, outputs = scan_cell(cell, fresh, xs, jnp.zeros(len(xs), bool))
    before = jnp.concatenate([cell.output(fresh)[None], outputs[:-1]])
    projected = cell.project(xs)
    product = cell.recurrent(before) + jnp.broadcast_to(cell.offset(), projected.shape)
    return cell.maps(projected, product), outputs
