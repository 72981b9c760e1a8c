"""Gates, which join the residual stream x and a sublayer's output y."""

import abc
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_choice
from clew.memory.base import State, select
from clew.memory.gru import GRUCell
from clew.memory.kernels import Backend
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.repeated import like

GateName = Literal["residual", "gru", "temporal_gru"]
GATES = ("residual", "gru", "temporal_gru")


class AbstractGate(eqx.Module):
    """gate(x, y), with a state where it carries something through time."""

    recurrent: ClassVar[bool] = False
    """Whether the gate carries something through time."""

    @abc.abstractmethod
    def init_state(self) -> State:
        """The state before any observation."""

    @abc.abstractmethod
    def step(
        self, state: State, x: Float[Array, " n"], y: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        """One observation."""

    @abc.abstractmethod
    def unroll(
        self,
        state: State,
        xs: Float[Array, "time n"],
        ys: Float[Array, "time n"],
        starts: Bool[Array, " time"],
    ) -> tuple[State, Float[Array, "time n"]]:
        """A chunk."""

    def maps(self, xs: Float[Array, "time n"], ys: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """How the gate treats every step of an episode, by name; empty by default."""
        return {}


class AbstractDepthGate(AbstractGate):
    """gate(x, y) at one time step, on any leading axes; its state is empty."""

    @abc.abstractmethod
    def __call__(
        self, x: Float[Array, "*lead n"], y: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        """The stream after the gate."""

    def init_state(self) -> State:
        return ()

    def step(
        self, state: State, x: Float[Array, " n"], y: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        return state, self(x, y)

    def unroll(
        self,
        state: State,
        xs: Float[Array, "time n"],
        ys: Float[Array, "time n"],
        starts: Bool[Array, " time"],
    ) -> tuple[State, Float[Array, "time n"]]:
        return state, self(xs, ys)


class Residual(AbstractDepthGate):
    """The plain residual connection, gate(x, y) = x + y."""

    def __call__(
        self, x: Float[Array, "*lead n"], y: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        return x + y


class GRUGate(AbstractDepthGate):
    """The gate of GTrXL, a GRU over depth whose hidden state is the residual stream.

        r = sigmoid(y W_r + x U_r)          z = sigmoid(y W_z + x U_z - b)
        h = tanh(y W_g + (r * x) U_g)       gate(x, y) = (1 - z) * x + z * h

    with x the stream and y the layer's output. `update` holds [W_r | W_z | W_g], `stream` [U_r |
    U_z] and `candidate` U_g. The only bias is b, which starts at 2 so that the gate starts near the
    identity.

    Source: Parisotto et al. (2020), section 3.2, "Gated-Recurrent-Unit-type gating".
    """

    update: Linear
    stream: Linear
    candidate: Linear
    bias: Float[Array, " n"]

    def __init__(self, size: int, *, key: PRNGKeyArray, init: Init):
        keys = jax.random.split(key, 6)
        square = [Linear(size, size, key=k, init=init, bias=False) for k in keys]
        self.update = _beside(square[:3])
        self.stream = _beside(square[3:5])
        self.candidate = square[5]
        self.bias = initial.constant(size, 2.0)

    def __call__(
        self, x: Float[Array, "*lead n"], y: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        r, z, y_g = self._parts(x, y)
        h = jnp.tanh(y_g + self.candidate(r * x))
        return x + z * (h - x)

    def maps(self, xs: Float[Array, "time n"], ys: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """How far the gate is open, z: 0 leaves the stream as it is."""
        return {"z": MemoryMap(self._parts(xs, ys)[1], "gate")}

    def _parts(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        y_r, y_z, y_g = jnp.split(self.update(y), 3, axis=-1)
        x_r, x_z = jnp.split(self.stream(x), 2, axis=-1)
        r = jax.nn.sigmoid(y_r + x_r)
        z = jax.nn.sigmoid(y_z + x_z - like(self.bias, x))
        return r, z, y_g


class TemporalGRU(AbstractGate):
    """A GRU over time instead of a gate: h_t = gru(x_t + y_t, h_{t-1}) is the output.

    The GRU is that of `GRU` with all biases. Its h is a second memory beside the attention's
    window, and its output is bounded by 1: there is no identity map from the layer's input to its
    output.

    Source: the published code of Makkink (2021), which calls it the gate of GTrXL; the gate of
    Parisotto et al. (2020) is `GRUGate`.
    """

    cell: GRUCell
    recurrent: ClassVar[bool] = True

    def __init__(self, size: int, *, key: PRNGKeyArray, init: Init, backend: Backend = "auto"):
        self.cell = GRUCell(size, size, key=key, init=init, all_biases=True, backend=backend)

    def init_state(self) -> State:
        return self.cell.init_state()

    def step(
        self, state: State, x: Float[Array, " n"], y: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        before = select(start, self.cell.init_state(), state)
        after = self.cell.advance(before, x + y)
        return after, self.cell.output(after)

    def unroll(
        self,
        state: State,
        xs: Float[Array, "time n"],
        ys: Float[Array, "time n"],
        starts: Bool[Array, " time"],
    ) -> tuple[State, Float[Array, "time n"]]:
        return self.cell.unroll(state, xs + ys, starts)

    def maps(self, xs: Float[Array, "time n"], ys: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        return self.cell.read(xs + ys)[0]


def make_gate(
    name: GateName, size: int, *, key: PRNGKeyArray, init: Init, backend: Backend = "auto"
) -> AbstractGate:
    """Builds the gate called `name`, one of `GATES`."""
    require_choice("gate", name, GATES)
    if name == "residual":
        return Residual()
    if name == "gru":
        return GRUGate(size, key=key, init=init)
    return TemporalGRU(size, key=key, init=init, backend=backend)


def _beside(parts: list[Linear]) -> Linear:
    """One product in place of several without bias, [W_1 | W_2 | ...]."""
    weight = jnp.concatenate([part.weight for part in parts], axis=1)
    return eqx.tree_at(lambda linear: linear.weight, parts[0], weight)
