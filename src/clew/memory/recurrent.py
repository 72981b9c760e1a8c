"""What the LSTM and the GRU share: stacked cells, and a scan that is mostly large products."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import (
    AbstractMemory,
    State,
    check_step_input,
    check_unroll_input,
    select,
)
from clew.memory.blocks import Linear
from clew.memory.maps import MemoryMap, prefixed


class AbstractCell(eqx.Module):
    """A recurrent cell in three parts: input products, recurrent product, and the rest."""

    recurrent: eqx.AbstractVar[Linear]

    @abc.abstractmethod
    def init_state(self) -> State:
        """Zeros."""

    @abc.abstractmethod
    def project(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead gates"]:
        """The products of the input, for any number of time steps at once."""

    @abc.abstractmethod
    def offset(self) -> Float[Array, " gates"]:
        """What is added to the recurrent product, h U."""

    @abc.abstractmethod
    def output(self, state: Any) -> Float[Array, " size"]:
        """The h in a state."""

    def advance(self, state: Any, x: Float[Array, " in"]) -> Any:
        """The state after one more input."""
        product = self.recurrent(self.output(state)) + self.offset()
        return self.update(state, self.project(x), product)

    @abc.abstractmethod
    def update(
        self, state: Any, projected: Float[Array, " gates"], product: Float[Array, " gates"]
    ) -> Any:
        """The new state, from the old one and the products of the input and of h."""

    @abc.abstractmethod
    def maps(
        self, projected: Float[Array, "time gates"], product: Float[Array, "time gates"]
    ) -> dict[str, MemoryMap]:
        """The gates at every step, from the products of the inputs and of the h before."""


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


def scan_cell(
    cell: AbstractCell,
    state: State,
    xs: Float[Array, "time in"],
    starts: Bool[Array, " time"],
) -> tuple[State, Float[Array, "time size"]]:
    """One cell over a chunk: the input's products at once, then the recurrence."""
    projected = cell.project(xs)
    offsets = jnp.broadcast_to(cell.offset(), projected.shape)
    return _scan_cell(cell, cell.recurrent.weight, state, projected, offsets, starts)


def _scan(
    cell: AbstractCell,
    weight: Float[Array, "size gates"],
    state: State,
    projected: Float[Array, "time gates"],
    offsets: Float[Array, "time gates"],
    starts: Bool[Array, " time"],
) -> tuple[State, Float[Array, "time size"]]:
    """The recurrence of one cell over a chunk.

    The gradient of the recurrent weight is one product over the whole chunk. Left to itself, the
    scan would add to it at every step, and so read and write a whole matrix each time.
    """

    def one(carry: State, inputs: tuple[Array, Array, Array]) -> tuple[State, Array]:
        gates, offset, start = inputs
        carry = select(start, cell.init_state(), carry)
        after = cell.update(carry, gates, cell.output(carry) @ weight + offset)
        return after, cell.output(after)

    return jax.lax.scan(one, state, (projected, offsets, starts))


_scan_cell = jax.custom_vjp(_scan)


def _scan_forward(
    cell: AbstractCell, weight: Array, state: State, projected: Array, offsets: Array, starts: Array
) -> tuple[tuple[State, Array], Any]:
    def run(state: State, projected: Array, offsets: Array) -> tuple[State, Array]:
        return _scan(cell, weight, state, projected, offsets, starts)

    result, backward = jax.vjp(run, state, projected, offsets)
    outputs = result[1]
    before = jnp.concatenate([cell.output(state)[None], outputs[:-1]])
    fresh = jnp.broadcast_to(cell.output(cell.init_state()), before.shape)
    read = jnp.where(jnp.broadcast_to(starts[:, None], before.shape), fresh, before)
    return result, (backward, read, cell)


def _scan_backward(residuals: Any, cotangent: Any) -> tuple:
    backward, read, cell = residuals
    state, projected, offsets = backward(cotangent)
    # What an offset receives is what the product at that step receives.
    weight = read.T @ offsets
    nothing = jax.tree.map(jnp.zeros_like, cell)
    return nothing, weight, state, projected, offsets, None


_scan_cell.defvjp(_scan_forward, _scan_backward)
