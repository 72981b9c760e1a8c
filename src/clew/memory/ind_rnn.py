"""The independently recurrent neural network."""

from functools import partial
from typing import Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least, require_choice
from clew.memory.base import State
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.cells import CellOptions, CellStack, StackedCell, make_cells
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.repeated import like

Activation = Literal["relu", "tanh"]


class IndRNNCell(StackedCell):
    """One layer of an `IndRNN`."""

    inputs: Linear
    recurrent: Float[Array, " size"]
    activation: Activation = eqx.field(static=True)
    longest: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        activation: Activation,
        longest: int,
    ):
        require_choice("activation", activation, ("relu", "tanh"))
        require_at_least("longest", longest, 1)
        input_key, recurrent_key = jax.random.split(key)
        self.inputs = Linear(input_size, size, key=input_key, init=init)
        self.recurrent = 0.5 + initial.uniform(recurrent_key, (size,), 0.5)
        self.activation = activation
        self.longest = longest

    def init_state(self) -> State:
        return jnp.zeros_like(self.recurrent)

    def advance(self, state: Float[Array, " size"], x: Float[Array, " in"]) -> Array:
        return self.step(state, self.inputs(x))

    def step(self, state: Float[Array, " size"], xw: Float[Array, " size"]) -> Array:
        """h_t from h = h_{t-1} and xw = x_t W + b."""
        h = xw + self._bounded() * state
        return jax.nn.relu(h) if self.activation == "relu" else jnp.tanh(h)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time size"]]:
        def one(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            xw, start = inputs
            h = self.step(jnp.where(start, 0.0, h), xw)
            return h, h

        return jax.lax.scan(one, state, (self.inputs(xs), starts))

    def read(
        self, xs: Float[Array, "time in"]
    ) -> tuple[dict[str, MemoryMap], Float[Array, "time size"]]:
        _, hs = self.unroll(self.init_state(), xs, jnp.zeros(len(xs), bool))
        slope = jnp.where(hs > 0.0, 1.0, 0.0) if self.activation == "relu" else 1.0 - hs * hs
        keep = jnp.minimum(slope * like(jnp.abs(self._bounded()), hs), 1.0)
        return {"dh": MemoryMap(keep, "keep")}, hs

    def _bounded(self) -> Float[Array, " size"]:
        most = 2.0 ** (1.0 / self.longest)
        return jnp.clip(self.recurrent, -most, most)


class IndRNN(CellStack):
    """The independently recurrent network: a unit's only recurrent input is itself.

        h_t = relu(x_t W + b + u * h_{t-1}),   |u| <= 2^{1 / T}

    So u alone decides how far back a gradient reaches, separately for each unit; units are combined
    in the layer above. The state of a layer is h.

    Shapes: x [input_size] to h [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        activation: "relu", or "tanh", with which h stays below 1.
        longest: steps T in which the content of a unit can at most double.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1 or an unknown choice.

    Source: Li et al. (2018), "Independently recurrent neural network", and their cell in PyTorch
    (Sunnydreamrain/IndRNN_pytorch), where u starts uniform from 0 to 1 too. Deviations: there is no
    batch norm, whose averages would couple episodes. The bound is part of the equation, so a u
    beyond it has no gradient; their training clips the parameter, to 5^{1 / T} by default, and lets
    u start below that. POPGym's code (Morad et al., 2023a) also clips it, always has relu whatever
    its settings say, and has a second bias, uniform from 0 to 1.
    """

    @takes_options_of(make_cells, num_layers=2)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        activation: Activation = "relu",
        longest: int = 1024,
        **options: Unpack[CellOptions],
    ):
        cell = partial(IndRNNCell, activation=activation, longest=longest)
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))
