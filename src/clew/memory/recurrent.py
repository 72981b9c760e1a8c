"""What the LSTM and the GRU share: stacked cells whose input products are done a chunk at once."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float

from clew.memory.base import (
    AbstractMemory,
    State,
    check_step_input,
    check_unroll_input,
    select,
)


class AbstractCell(eqx.Module):
    """A recurrent cell, cut in two: what depends on the input alone, and the recurrence."""

    @abc.abstractmethod
    def init_state(self) -> State:
        """Zeros."""

    @abc.abstractmethod
    def project(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead gates"]:
        """The products of the input, for any number of time steps at once."""

    @abc.abstractmethod
    def recur(self, state: Any, projected: Float[Array, " gates"]) -> tuple[Any, Array]:
        """The new state and the output, from the old state and one step's products."""


class RecurrentStack(AbstractMemory):
    """Cells on top of each other; each reads the output of the one below."""

    cells: eqx.AbstractVar[tuple[AbstractCell, ...]]

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
            fresh = select(start, cell.init_state(), before)
            new, x = cell.recur(fresh, cell.project(x))
            after.append(new)
        return tuple(after), x

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """A chunk, cell by cell: one input product for the chunk, then the recurrence."""
        check_unroll_input(self, xs, starts)
        after = []
        for cell, before in zip(self.cells, state, strict=True):
            new, xs = _scan_cell(cell, before, cell.project(xs), starts)
            after.append(new)
        return tuple(after), xs


def _scan_cell(
    cell: AbstractCell,
    state: State,
    projected: Float[Array, "time gates"],
    starts: Bool[Array, " time"],
) -> tuple[State, Float[Array, "time out"]]:
    def one(carry: State, inputs: tuple[Array, Array]) -> tuple[State, Array]:
        gates, start = inputs
        return cell.recur(select(start, cell.init_state(), carry), gates)

    return jax.lax.scan(one, state, (projected, starts))
