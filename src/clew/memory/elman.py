"""The simple recurrent network."""

from functools import partial
from typing import ClassVar, Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import require_choice
from clew.memory.base import State
from clew.memory.kernels import Backend
from clew.memory.kernels.cells import CellKernel
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.cells import AbstractCell, CellOptions, CellStack, draw_products, make_cells
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of

Activation = Literal["tanh", "relu"]


class ElmanCell(AbstractCell):
    """One layer of an `Elman`."""

    inputs: Linear
    recurrent: Linear
    size: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    backend: Backend = eqx.field(static=True, default="xla")
    kernel: ClassVar[CellKernel | None] = None

    def __init__(
        self, input_size: int, size: int, *, key: PRNGKeyArray, init: Init, activation: Activation
    ):
        require_choice("activation", activation, ("tanh", "relu"))
        drawn = draw_products(1, input_size, size, key=key, init=init, init_per="product")
        self.inputs, self.recurrent, _ = drawn
        self.size = size
        self.activation = activation

    def init_state(self) -> State:
        return jnp.zeros(self.size, self.recurrent.weight.dtype)

    def offset(self) -> Float[Array, " size"]:
        """Zero: one bias does all that two would."""
        return jnp.zeros(self.size, self.recurrent.weight.dtype)

    def step(
        self, state: Float[Array, " size"], xw: Float[Array, " size"], hu: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """h_t from xw = x_t W + b and hu = h_{t-1} U."""
        return jnp.tanh(xw + hu) if self.activation == "tanh" else jax.nn.relu(xw + hu)

    def maps(
        self, projected: Float[Array, "*lead size"], product: Float[Array, "*lead size"]
    ) -> dict[str, MemoryMap]:
        """There are no gates."""
        return {}


class Elman(CellStack):
    """The simple recurrent network, without any gate.

        h_t = tanh(x_t W + b + h_{t-1} U)

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is h.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        activation: "tanh" or "relu".
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1 or an unknown choice.

    Source: Elman (1990), "Finding structure in time"; POPGym (Morad et al., 2023a) uses PyTorch's,
    whose weights start "uniform", as here. Deviations: tanh where Elman has a logistic function,
    and one bias where PyTorch has the sum of two.
    """

    @takes_options_of(make_cells, init="uniform")
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        activation: Activation = "tanh",
        **options: Unpack[CellOptions],
    ):
        cell = partial(ElmanCell, activation=activation)
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))
