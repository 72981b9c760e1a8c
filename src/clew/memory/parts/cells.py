"""Recurrent cells, a chunk of time through a cell, and a memory of stacked cells.

A cell has three parts: products of the input, a product of the last output, and the rest. In a
chunk the first part is one large product, and so is the gradient of the second.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypedDict, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import UserError
from clew.memory.base import (
    AbstractMemory,
    State,
    check_episode,
    check_step_input,
    check_unroll_input,
    select,
)
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.cells import (
    CellGradients,
    CellInputs,
    CellKernel,
    CellRun,
    gate_columns,
    pull_kernel,
    run_kernel,
)
from clew.memory.parts.blocks import Init, Linear, check_sizes
from clew.memory.parts.maps import MemoryMap, prefixed
from clew.memory.parts.products import product as weigh

InitPer = Literal["product", "gate"]


class StackedCell(eqx.Module):
    """The interface of a recurrent cell in a `CellStack`."""

    @abc.abstractmethod
    def init_state(self) -> State:
        """Zeros."""

    def output(self, state: Any) -> Float[Array, " size"]:
        """The h in a state, which is the whole state unless a cell holds more."""
        return state

    @abc.abstractmethod
    def advance(self, state: Any, x: Float[Array, " in"]) -> Any:
        """The state after one more input."""

    @abc.abstractmethod
    def unroll(
        self, state: Any, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[Any, Float[Array, "time size"]]:
        """The state after a chunk, and h at every step of it."""

    @abc.abstractmethod
    def read(
        self, xs: Float[Array, "time in"]
    ) -> tuple[dict[str, MemoryMap], Float[Array, "time size"]]:
        """The maps of an episode, and h at every step of it."""


class AbstractCell(StackedCell):
    """A recurrent cell in three parts: input products, recurrent product, and the rest.

    `inputs` holds W and b, `recurrent` U, and `step` is the equation.
    """

    inputs: eqx.AbstractVar[Linear]
    recurrent: eqx.AbstractVar[Linear]
    backend: eqx.AbstractVar[Backend]
    kernel: ClassVar[CellKernel | None]

    @abc.abstractmethod
    def offset(self) -> Float[Array, " gates"]:
        """What is added to the recurrent product, h U."""

    def advance(self, state: Any, x: Float[Array, " in"]) -> Any:
        product = self.recurrent(self.output(state)) + self.offset()
        return self.step(state, self.inputs(x), product)

    @abc.abstractmethod
    def step(self, state: Any, xw: Float[Array, " gates"], hu: Float[Array, " gates"]) -> Any:
        """The new state, from the old one and the products of the input and of h."""

    @abc.abstractmethod
    def maps(
        self, projected: Float[Array, "time gates"], product: Float[Array, "time gates"]
    ) -> dict[str, MemoryMap]:
        """The gates at every step, from the products of the inputs and of the h before."""

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time size"]]:
        """A chunk: the input's products at once, then the recurrence.

        In the backward pass, the gradient of the recurrent weight is one product over the chunk and
        over all chunks of a batch. JAX's scan would add to it at every step, and so read and write
        a whole matrix each time; a custom backward pass would make one product per batch member,
        since it sees a single chunk. So our backward pass ends at the recurrent product, whose
        values are known by then, and JAX differentiates that product.
        """
        weight, kernel = self.recurrent.weight, self.kernel
        if kernel and not uses_kernel(self.backend, self, state, xs):
            kernel = None
        columns = gate_columns(kernel, weight) if kernel else (slice(None),)
        parts = [jax.tree.map(lambda x, some=some: x[..., some], self.inputs) for some in columns]
        projected = tuple(part(xs) for part in parts)
        offset = self.offset().astype(projected[0].dtype)
        known, inputs = jax.lax.stop_gradient(
            (self, CellInputs(weight, offset, state, projected, starts))
        )
        if kernel:
            bare = tuple(weigh(*jax.lax.stop_gradient((xs, part.weight))) for part in parts)
            assert known.inputs.bias is not None
            bias = known.inputs.bias.astype(offset.dtype)
            run = run_kernel(kernel, inputs._replace(projected=bare), bias)
            inputs = inputs._replace(projected=())  # the gates have taken their place
        else:
            run = _run_steps(known, inputs)
        before = jnp.concatenate([self.output(inputs.state)[None], run.outputs[:-1]])
        read = jnp.where(jnp.broadcast_to(starts[:, None], before.shape), 0.0, before)
        product = tuple(_product(read, weight[:, some], offset[some]) for some in columns)
        return _result(kernel, projected, product, state, (known, inputs, run))

    def read(
        self, xs: Float[Array, "time in"]
    ) -> tuple[dict[str, MemoryMap], Float[Array, "time size"]]:
        fresh = self.init_state()
        _, outputs = self.unroll(fresh, xs, jnp.zeros(len(xs), bool))
        before = jnp.concatenate([self.output(fresh)[None], outputs[:-1]])
        projected = self.inputs(xs)
        product = self.recurrent(before) + jnp.broadcast_to(self.offset(), projected.shape)
        return self.maps(projected, product), outputs


C = TypeVar("C", bound=StackedCell)


def draw_products(
    gates: int, input_size: int, size: int, *, key: PRNGKeyArray, init: Init, init_per: InitPer
) -> tuple[Linear, Linear, Float[Array, " gates"]]:
    """The products of a cell's input and of its h, the latter with a separate bias.

    Args:
        gates: how many gates lie side by side.
        init_per: what is drawn as one orthogonal matrix: the whole "product", or each "gate".
    """
    input_key, recurrent_key = jax.random.split(key)
    wide, blocks = gates * size, gates if init_per == "gate" else 1
    inputs = Linear(input_size, wide, key=input_key, init=init, fan=size, blocks=blocks)
    recurrent = Linear(size, wide, key=recurrent_key, init=init, blocks=blocks)
    assert recurrent.bias is not None
    bare = eqx.tree_at(lambda linear: linear.bias, recurrent, None)
    return inputs, bare, recurrent.bias


class CellOptions(TypedDict, total=False):
    """The options of every model of cells; `make_cells` describes them."""

    hidden_size: int
    num_layers: int
    init: Init


def make_cells(
    input_size: int,
    key: PRNGKeyArray,
    cell: Callable[..., C],
    *,
    hidden_size: int = 128,
    num_layers: int = 1,
    init: Init = "orthogonal",
) -> tuple[tuple[C, ...], int]:
    """A stack of cells, and their width.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        cell: makes a cell from its two sizes, key=... and init=...
        hidden_size: width of h.
        num_layers: number of stacked cells.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for a size below 1 or an unknown choice.
    """
    check_sizes(input_size, hidden_size, num_layers)
    sizes = [input_size] + [hidden_size] * (num_layers - 1)
    keys = jax.random.split(key, num_layers)
    made = (cell(size, hidden_size, key=k, init=init) for size, k in zip(sizes, keys, strict=True))
    return tuple(made), hidden_size


class CellStack(AbstractMemory):
    """A stack of cells; each reads the output of the one below."""

    cells: tuple[Any, ...]  # of StackedCell
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def set_cells(self, input_size: int, cells: tuple[Any, ...], output_size: int) -> None:
        """Sets every field from the output of `make_cells`; for constructors."""
        self.cells, self.input_size, self.output_size = cells, input_size, output_size

    def init_state(self) -> State:
        return tuple(cell.init_state() for cell in self.cells)

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        x = check_step_input(self, x, start, state)
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
        xs = check_unroll_input(self, xs, starts, state)
        after = []
        for cell, before in zip(self.cells, state, strict=True):
            new, xs = cell.unroll(before, xs, starts)
            after.append(new)
        return tuple(after), xs

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        xs, found = check_episode(self, xs), {}
        for number, cell in enumerate(self.cells, 1):
            maps, xs = cell.read(xs)
            found |= prefixed(f"layer {number}: ", maps)
        return found


@jax.custom_jvp
def _product(
    read: Float[Array, "time size"], weight: Float[Array, "size gates"], offset: Array
) -> Float[Array, "time gates"]:
    """Has the derivatives of read U + offset, whose values have already been used.

    Nothing reads its values. They are computed from `read`, which has a batch axis wherever
    anything else has one, because values and derivatives must have the same axes.
    """
    return jnp.broadcast_to(read[:, :1], (len(read), len(offset)))


@_product.defjvp
def _product_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    read, (_, weight, offset) = primals[0], tangents
    product = weigh(read, weight)
    return _product(*primals), product + jnp.broadcast_to(offset, product.shape)


_Known = tuple[AbstractCell, CellInputs, CellRun]
_Parts = tuple[Array, ...]


def _result_of(
    kernel: CellKernel | None, projected: _Parts, product: _Parts, state: State, known: _Known
) -> tuple[State, Float[Array, "time size"]]:
    """The run's result, as a function of the input products, recurrent products and the state."""
    run = known[2]
    return run.last, run.outputs


_result = jax.custom_vjp(_result_of, nondiff_argnums=(0,))


def _result_forward(
    kernel: CellKernel | None, projected: _Parts, product: _Parts, state: State, known: _Known
) -> tuple[tuple[State, Array], tuple[_Known, _Parts]]:
    mark = tuple(jnp.ravel(leaf)[0] for leaf in jax.tree.leaves((projected, product, state)))
    return _result_of(kernel, projected, product, state, known), (known, mark)


def _result_backward(
    kernel: CellKernel | None, kept: tuple[_Known, _Parts], cotangents: tuple[State, Array]
) -> tuple:
    ((cell, inputs, run), mark), (of_last, of_outputs) = kept, cotangents
    of_outputs = _only_once(of_outputs, mark)
    if kernel:
        return *pull_kernel(kernel, inputs, run, of_outputs, of_last), None
    return *_pull_steps(cell, inputs, run, of_outputs, of_last), None


_result.defvjp(_result_forward, _result_backward)


@jax.custom_jvp
def _only_once(of_outputs: Array, mark: _Parts) -> Array:
    """The first step of the backward pass; `mark` depends on all inputs of the forward pass.

    What the forward pass keeps is constant, so a second derivative would silently be 0.
    """
    return of_outputs


@_only_once.defjvp
def _only_once_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    raise UserError(
        "the gradient of unroll of an LSTM, a GRU or an Elman network has no derivative; "
        "clew.memory.base.scan_steps(memory, state, xs, starts) has all of them"
    )


def _run_steps(cell: AbstractCell, inputs: CellInputs) -> CellRun:
    """Through XLA; kept are the state before every step and the recurrent product."""
    weight, offset, state, (projected,), starts = inputs

    def one(carry: State, inputs: tuple[Array, Array]) -> tuple[State, Any]:
        projected, start = inputs
        before = select(start, cell.init_state(), carry)
        product = weigh(cell.output(before), weight) + offset
        after = cell.step(before, projected, product)
        return after, (cell.output(after), (before, product))

    last, (outputs, kept) = jax.lax.scan(one, state, (projected, starts))
    return CellRun(outputs, last, kept)


def _pull_steps(
    cell: AbstractCell, inputs: CellInputs, run: CellRun, of_outputs: Array, of_last: State
) -> CellGradients:
    turned = inputs.weight.T

    def after(before: State, projected: Array, product: Array) -> tuple[State, Array]:
        state = cell.step(before, projected, product)
        return state, cell.output(state)

    def one(of_after: State, inputs: Any) -> tuple[State, tuple[Array, Array]]:
        (before, product), projected, start, of_output = inputs
        _, pull = jax.vjp(after, before, projected, product)
        of_before, of_projected, of_product = pull((of_after, of_output))
        (of_h,) = jax.vjp(cell.output, before)[1](weigh(of_product, turned))
        of_before = jax.tree.map(jnp.add, of_before, of_h)
        nothing = jax.tree.map(jnp.zeros_like, of_before)
        return select(start, nothing, of_before), (of_projected, of_product)

    steps = (run.kept, *inputs.projected, inputs.starts, of_outputs)
    of_state, (of_projected, of_product) = jax.lax.scan(one, of_last, steps, reverse=True)
    return CellGradients((of_projected,), (of_product,), of_state)
