"""The long short-term memory."""

from functools import partial
from typing import ClassVar, Unpack

import equinox as eqx
import jax.numpy as jnp
from jax.nn import sigmoid
from jax.numpy import tanh
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import UserError, require_finite
from clew.memory.base import State
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.cells import CellKernel
from clew.memory.parts.blocks import Init, Linear, begin_open
from clew.memory.parts.cells import (
    AbstractCell,
    CellOptions,
    CellStack,
    InitPer,
    draw_products,
    make_cells,
)
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of


class LSTMCell(AbstractCell):
    """One layer of an `LSTM`.

    With `all_biases` the recurrent product has its own biases, as in PyTorch.
    """

    inputs: Linear
    recurrent: Linear
    recurrent_bias: Float[Array, " gates"] | None
    size: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    kernel: ClassVar[CellKernel | None] = "lstm"

    def __init__(
        self,
        input_size: int,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        init_per: InitPer,
        forget_bias: float,
        all_biases: bool = False,
        chrono: int = 0,
        backend: Backend = "auto",
    ):
        require_finite("forget_bias", forget_bias)
        uses_kernel(backend)
        drawn = draw_products(4, input_size, size, key=key, init=init, init_per=init_per)
        inputs, self.recurrent, recurrent_bias = drawn
        assert inputs.bias is not None
        of_i, of_f = slice(size), slice(size, 2 * size)
        bias = inputs.bias.at[of_f].add(float(forget_bias))
        inputs = eqx.tree_at(lambda linear: linear.bias, inputs, bias)
        self.inputs = begin_open(inputs, chrono, key=key, forgetting=of_i, keeping=of_f)
        self.recurrent_bias = recurrent_bias if all_biases else None
        self.size = size
        self.backend = backend

    def init_state(self) -> State:
        """Zero cell and zero output, (c, h)."""
        dtype = self.recurrent.weight.dtype
        return jnp.zeros(self.size, dtype), jnp.zeros(self.size, dtype)

    def offset(self) -> Float[Array, " gates"]:
        """The biases of the recurrent product; zeros unless the cell has them."""
        if self.recurrent_bias is None:
            return jnp.zeros(4 * self.size, self.recurrent.weight.dtype)
        return self.recurrent_bias

    def output(self, state: tuple[Array, Array]) -> Float[Array, " size"]:
        return state[1]

    def step(
        self, state: tuple[Array, Array], xw: Float[Array, " gates"], hu: Float[Array, " gates"]
    ) -> tuple[Array, Array]:
        """(c_t, h_t) from (c_{t-1}, h_{t-1}), xw = x_t W + b and hu = h_{t-1} U."""
        c, _ = state
        i, f, g, o = jnp.split(xw + hu, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return c, sigmoid(o) * tanh(c)

    def maps(
        self, projected: Float[Array, "*lead gates"], product: Float[Array, "*lead gates"]
    ) -> dict[str, MemoryMap]:
        """The share of c that is kept, f, and how far the input and output gates are open, i and
        o."""
        i, f, _, o = (sigmoid(x) for x in jnp.split(projected + product, 4, axis=-1))
        return {"f": MemoryMap(f, "keep"), "i": MemoryMap(i, "gate"), "o": MemoryMap(o, "gate")}


class LSTM(CellStack):
    """The LSTM with a forget gate.

        [i | f | g | o] = x_t W + b + h_{t-1} U
        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
        h_t = sigmoid(o) * tanh(c_t)

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is (c, h).

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        forget_bias: initial bias of the forget gate; the baseline of Pramanik (2023) has 0, and 1
            keeps the cell longer at the start of training.
        chrono: steps that the longest memories last at the start: the biases of the forget gate are
            then log(u - 1) with u uniform from 2 to chrono, and those of the input gate
            their negatives; with 0 they follow forget_bias and init.
        backend: how a chunk is computed: "kernel", "xla" or "auto"; see `Backend`.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.

    Source: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000); Tallec
    and Ollivier (2018), section 2, for `chrono`. Orthogonal weights are drawn separately for each
    gate, as flax does: they are twice as large as those of one matrix, and more seeds learn the
    memory chain (`results/initial-weights`). Deviation: none in the equations.
    """

    @takes_options_of(make_cells)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        forget_bias: float = 0.0,
        chrono: int = 0,
        backend: Backend = "auto",
        **options: Unpack[CellOptions],
    ):
        if chrono and forget_bias:
            raise UserError(f"forget_bias needs chrono=0, got {forget_bias!r} and {chrono!r}")
        cell = partial(
            LSTMCell, init_per="gate", forget_bias=forget_bias, chrono=chrono, backend=backend
        )
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))
