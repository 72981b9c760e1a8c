"""One transformer layer around any attention: norms, gates and the feed-forward net."""

import abc
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, UserError, require_at_least, require_choice
from clew.memory.base import State
from clew.memory.kernels import Backend
from clew.memory.parts import initial
from clew.memory.parts.blocks import MLP, Init, LayerNorm
from clew.memory.parts.gates import AbstractGate, GateName, make_gate
from clew.memory.parts.maps import MemoryMap, prefixed

NormPlace = Literal["before", "after", "around", "none"]
NORM_PLACES = ("before", "after", "around", "none")


class Mixer(eqx.Module):
    """The attention of a layer, of any kind; it has the interface of a memory.

    It includes the norm before it.
    """

    @abc.abstractmethod
    def init_state(self) -> State:
        """Zeros."""

    @abc.abstractmethod
    def step(
        self, state: Any, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        """One observation."""

    @abc.abstractmethod
    def unroll(
        self, state: Any, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time n"]]:
        """A chunk."""

    def refresh(self, state: State) -> State:
        """The unchanged state: by default nothing in it was derived from the parameters."""
        return state

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """How an episode is read; empty by default."""
        return {}


A = TypeVar("A", bound=Mixer)


class LayerState(NamedTuple):
    """The attention's state, and the states of gates that carry something through time."""

    attention: State
    attention_gate: State
    mlp_gate: State


class LayerOptions(TypedDict, total=False):
    """The options of a `Layer`, by the names of its arguments."""

    gate: GateName
    norm: NormPlace
    residual_weight: bool
    inner_residual: bool
    crossed_states: bool


class Layer(eqx.Module, Generic[A]):
    """One transformer layer: an attention and a feed-forward net, each behind a gate.

    With act and weight as below, the norms are placed as follows:

        before    y = gate_1(x, f(attention(x)))             out = gate_2(y, f(mlp(norm_2(y))))
        after     y = norm_1(gate_1(x, f(attention(x))))     out = norm_2(gate_2(y, f(mlp(y))))
        around    y = gate_1(x, f(norm_1(attention(x))))     out = gate_2(y, f(mlp(norm_2(y))))
        none      y = gate_1(x, f(attention(x)))             out = gate_2(y, f(mlp(y)))

    where f(a) = weight act(a). "before" is GTrXL's (the attention norms its own input), "after" the
    canonical transformer's, "none" ReZero's, and "around" that of Makkink's GTrXL.

    `act` is relu before a GRU gate, as in Parisotto et al. (2020), and otherwise the identity.
    `weight` is 1, or with `residual_weight` one learned number that starts at 0 and is the same for
    both sublayers: Bachlechner et al. (2020), Eq. 6, zeta in Makkink (2021), Eq. 2.36.

    With `inner_residual` the attention's output is norm_0(x + attention(x)) wherever it stands
    above, as in Makkink's published code. With `crossed_states` a temporal gate 1 continues from
    the h of gate 2, a slip of that code with which its results were made. `backend` is used by a
    temporal gate.
    """

    attention: A
    attention_gate: AbstractGate
    attention_norm: LayerNorm | None
    inner_norm: LayerNorm | None
    mlp: MLP
    mlp_gate: AbstractGate
    mlp_norm: LayerNorm | None
    weight: Float[Array, ""] | None
    norm: str = eqx.field(static=True)
    relu_before_gate: bool = eqx.field(static=True)
    crossed_states: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        ffn_size: int | None,
        attention: A,
        *,
        key: PRNGKeyArray,
        init: Init,
        gate: GateName = "gru",
        norm: NormPlace = "before",
        residual_weight: bool = False,
        inner_residual: bool = False,
        crossed_states: bool = False,
        backend: Backend = "auto",
    ):
        ffn_size = size if ffn_size is None else ffn_size
        require_at_least("ffn_size", ffn_size, 1, LARGEST_SIZE)
        require_choice("norm", norm, NORM_PLACES)
        keys = jax.random.split(key, 3)
        self.attention = attention
        self.attention_gate = make_gate(gate, size, key=keys[0], init=init, backend=backend)
        self.attention_norm = LayerNorm(size) if norm in ("after", "around") else None
        self.inner_norm = LayerNorm(size) if inner_residual else None
        self.mlp = MLP(size, ffn_size, key=keys[1], init=init)
        self.mlp_gate = make_gate(gate, size, key=keys[2], init=init, backend=backend)
        self.mlp_norm = LayerNorm(size) if norm != "none" else None
        self.weight = initial.constant(()) if residual_weight else None
        self.norm = norm
        self.relu_before_gate = gate == "gru"
        self.crossed_states = crossed_states
        if crossed_states and gate != "temporal_gru":
            raise UserError(f"crossed_states needs gate='temporal_gru', got gate={gate!r}")

    @property
    def size(self) -> int:
        """Width of the residual stream."""
        return self.mlp.output.weight.shape[1]

    @property
    def recurrent(self) -> bool:
        """Whether a gate carries something through time."""
        return self.attention_gate.recurrent

    def init_state(self) -> LayerState:
        """The initial states of the attention and of the gates."""
        gates = (self.attention_gate.init_state(), self.mlp_gate.init_state())
        return LayerState(self.attention.init_state(), *gates)

    def step(
        self, state: LayerState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[LayerState, Float[Array, " n"]]:
        """One observation."""
        attention, attended = self.attention.step(state.attention, x, start)
        gates, out = self.join(state[1:], x, attended, start)
        return LayerState(attention, *gates), out

    def unroll(
        self, state: LayerState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[LayerState, Float[Array, "time n"]]:
        """A chunk."""
        attention, attended = self.attention.unroll(state.attention, xs, starts)
        if self.crossed_states:
            gates, out = jax.lax.scan(
                lambda gates, inputs: self.join(gates, *inputs), state[1:], (xs, attended, starts)
            )
            return LayerState(attention, *gates), out
        gate_1, ys = self.attention_gate.unroll(
            state.attention_gate, xs, self._attention_term(xs, attended), starts
        )
        ys = self._norm_1(ys)
        gate_2, out = self.mlp_gate.unroll(state.mlp_gate, ys, self._mlp_term(ys), starts)
        return LayerState(attention, gate_1, gate_2), self._norm_2(out)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The maps of the attention, and of the gate after it."""
        maps = self.attention.maps(xs)
        if self.crossed_states:  # the gates depend on each other, so neither can run a chunk alone
            return maps
        start = jnp.zeros(len(xs), bool)
        _, attended = self.attention.unroll(self.attention.init_state(), xs, start)
        gate = self.attention_gate.maps(xs, self._attention_term(xs, attended))
        return maps | prefixed("gate ", gate)

    def refresh(self, state: LayerState) -> LayerState:
        """The attention's state, rebuilt for the current parameters."""
        return state._replace(attention=self.attention.refresh(state.attention))

    def join(
        self, gates: tuple[State, ...], x: Array, attended: Array, start: Array
    ) -> tuple[tuple[State, State], Array]:
        """y and out of one observation, from what the attention gave for it."""
        first = gates[1] if self.crossed_states else gates[0]
        gate_1, y = self.attention_gate.step(first, x, self._attention_term(x, attended), start)
        y = self._norm_1(y)
        gate_2, out = self.mlp_gate.step(gates[1], y, self._mlp_term(y), start)
        return (gate_1, gate_2), self._norm_2(out)

    def _attention_term(self, x: Array, attended: Array) -> Array:
        """f(attention(x)), or f(norm_1(attention(x)))."""
        if self.inner_norm is not None:
            attended = self.inner_norm(x + attended)
        if self.norm == "around" and self.attention_norm is not None:
            attended = self.attention_norm(attended)
        return self._f(attended)

    def _norm_1(self, y: Array) -> Array:
        return self.attention_norm(y) if self.norm == "after" and self.attention_norm else y

    def _mlp_term(self, y: Array) -> Array:
        """f(mlp(norm_2(y))), or f(mlp(y))."""
        before = self.norm in ("before", "around") and self.mlp_norm is not None
        return self._f(self.mlp(self.mlp_norm(y) if before and self.mlp_norm else y))

    def _norm_2(self, out: Array) -> Array:
        return self.mlp_norm(out) if self.norm == "after" and self.mlp_norm else out

    def _f(self, a: Array) -> Array:
        """weight act(a)."""
        a = jax.nn.relu(a) if self.relu_before_gate else a
        return a if self.weight is None else jnp.broadcast_to(self.weight, a.shape) * a
