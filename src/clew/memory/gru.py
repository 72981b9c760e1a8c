"""The gated recurrent unit."""

from functools import partial
from typing import ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

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


class GRUCell(AbstractCell):
    """One layer of a `GRU`.

    `recurrent_bias` is c; with `all_biases` the biases of r and z come before it, as in PyTorch.
    """

    inputs: Linear
    recurrent: Linear
    recurrent_bias: Float[Array, " biases"]
    size: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    kernel: ClassVar[CellKernel | None] = "gru"

    def __init__(
        self,
        input_size: int,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        init_per: InitPer = "product",
        all_biases: bool = False,
        chrono: int = 0,
        backend: Backend = "auto",
    ):
        uses_kernel(backend)
        drawn = draw_products(3, input_size, size, key=key, init=init, init_per=init_per)
        inputs, self.recurrent, bias = drawn
        self.inputs = begin_open(inputs, chrono, key=key, keeping=slice(size, 2 * size))
        self.recurrent_bias = bias if all_biases else bias[2 * size :]
        self.size = size
        self.backend = backend

    def init_state(self) -> State:
        return jnp.zeros(self.size, self.recurrent.weight.dtype)

    def offset(self) -> Float[Array, " gates"]:
        """The biases of the recurrent product; [0 | 0 | c] unless the cell has all three."""
        return jnp.pad(self.recurrent_bias, (3 * self.size - len(self.recurrent_bias), 0))

    def step(
        self, state: Float[Array, " size"], xw: Float[Array, " gates"], hu: Float[Array, " gates"]
    ) -> Float[Array, " size"]:
        """h_t from h = h_{t-1}, xw = x_t W + b and hu = h U + c."""
        h = state
        r, z, xw_n, hu_n = self._gates(xw, hu)
        n = jnp.tanh(xw_n + r * hu_n)
        return n + z * (h - n)

    def maps(
        self, projected: Float[Array, "*lead gates"], product: Float[Array, "*lead gates"]
    ) -> dict[str, MemoryMap]:
        """The share of h that is kept, z, and how far the reset gate is open, r."""
        r, z, _, _ = self._gates(projected, product)
        return {"z": MemoryMap(z, "keep"), "r": MemoryMap(r, "gate")}

    def _gates(self, projected: Array, product: Array) -> tuple[Array, Array, Array, Array]:
        x_r, x_z, x_n = jnp.split(projected, 3, axis=-1)
        h_r, h_z, h_n = jnp.split(product, 3, axis=-1)
        return jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z), x_n, h_n


class GRU(CellStack):
    """The GRU.

        r = sigmoid(x_t W_r + h_{t-1} U_r + b_r)
        z = sigmoid(x_t W_z + h_{t-1} U_z + b_z)
        n = tanh(x_t W_n + b_n + r * (h_{t-1} U_n + c))
        h_t = (1 - z) * n + z * h_{t-1}

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is h.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        chrono: steps that the longest memories last at the start: the biases of z are then log(u -
            1) with u uniform from 2 to chrono; with 0 they follow init.
        backend: how a chunk is computed: "kernel", "xla" or "auto"; see `Backend`.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.

    Source: Cho et al. (2014), eq. 5-8; Tallec and Ollivier (2018), section 2, for `chrono`.
    Deviation: the reset gate acts after the product, $r * (h U_n + c)$, as in the common libraries;
    the paper has $(r * h) U_n$. Orthogonal weights are drawn separately for each gate, as flax
    does.
    """

    @takes_options_of(make_cells)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        chrono: int = 0,
        backend: Backend = "auto",
        **options: Unpack[CellOptions],
    ):
        cell = partial(GRUCell, init_per="gate", chrono=chrono, backend=backend)
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))
