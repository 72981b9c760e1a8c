"""Parts that the models are put together from: products, norms, gates, layers, stacks.

Everything here works on any leading axes, so that a whole chunk of time goes through one product.
"""

import math
from typing import Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least, require_choice
from clew.memory.base import State

Init = Literal["orthogonal", "lecun"]
GateName = Literal["gru", "residual"]
NormPlace = Literal["before", "after"]


def like(vector: Float[Array, " n"], x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
    """A parameter vector repeated over the leading axes of `x`; broadcasting said aloud."""
    return jnp.broadcast_to(vector, x.shape)


class Linear(eqx.Module):
    """An affine map, y = x W + b, over the last axis.

    Shapes: weight [in, out], bias [out] or None; x [..., in] to y [..., out].

    `orthogonal` draws W with orthonormal rows or columns times sqrt(2) (Saxe et al., 2014), as
    Pramanik (2023) does; `lecun` draws a truncated normal of variance 1 / in. Biases start at 0.
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        key: PRNGKeyArray,
        init: Init = "orthogonal",
        bias: bool = True,
    ):
        require_choice("init", init, ("orthogonal", "lecun"))
        if init == "orthogonal":
            draw = jax.nn.initializers.orthogonal(math.sqrt(2.0))
        else:
            draw = jax.nn.initializers.lecun_normal()
        self.weight = draw(key, (input_size, output_size), jnp.float32)
        self.bias = jnp.zeros(output_size, jnp.float32) if bias else None

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        y = x @ self.weight
        return y if self.bias is None else y + like(self.bias, y)


class LayerNorm(eqx.Module):
    """Layer normalisation over the last axis, y = scale (x - mean) / sqrt(var + 1e-6) + offset.

    Source: Ba et al. (2016). The variance is the biased one.
    """

    scale: Float[Array, " n"]
    offset: Float[Array, " n"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size, jnp.float32)
        self.offset = jnp.zeros(size, jnp.float32)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-6) * like(self.scale, x) + like(self.offset, x)


class MLP(eqx.Module):
    """A position-wise feed-forward net, y = relu(x W_1 + b_1) W_2 + b_2."""

    hidden: Linear
    output: Linear

    def __init__(self, size: int, hidden_size: int, *, key: PRNGKeyArray, init: Init):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = Linear(size, hidden_size, key=hidden_key, init=init)
        self.output = Linear(hidden_size, size, key=output_key, init=init)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        return self.output(jax.nn.relu(self.hidden(x)))


class GRUGate(eqx.Module):
    """The gate of GTrXL, a GRU over depth whose hidden state is the residual stream.

        r = sigmoid(y W_r + x U_r)          z = sigmoid(y W_z + x U_z - b)
        h = tanh(y W_g + (r * x) U_g)       gate(x, y) = (1 - z) * x + z * h

    with x the stream and y the layer's output. `update` holds [W_r | W_z | W_g], `stream`
    [U_r | U_z] and `candidate` U_g; none has a bias but b, which starts at 2 so that the gate
    starts near the identity.

    Source: Parisotto et al. (2020), section 3.2, "Gated-Recurrent-Unit-type gating".
    """

    update: Linear
    stream: Linear
    candidate: Linear
    bias: Float[Array, " n"]

    def __init__(self, size: int, *, key: PRNGKeyArray, init: Init, bias: float = 2.0):
        keys = jax.random.split(key, 6)
        square = [Linear(size, size, key=k, init=init, bias=False) for k in keys]
        self.update = _beside(square[:3])
        self.stream = _beside(square[3:5])
        self.candidate = square[5]
        self.bias = jnp.full(size, bias, jnp.float32)

    def __call__(
        self, x: Float[Array, "*lead n"], y: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        y_r, y_z, y_g = jnp.split(self.update(y), 3, axis=-1)
        x_r, x_z = jnp.split(self.stream(x), 2, axis=-1)
        r = jax.nn.sigmoid(y_r + x_r)
        z = jax.nn.sigmoid(y_z + x_z - like(self.bias, x))
        h = jnp.tanh(y_g + self.candidate(r * x))
        return x + z * (h - x)


class Residual(eqx.Module):
    """The plain residual connection, gate(x, y) = x + y."""

    def __call__(
        self, x: Float[Array, "*lead n"], y: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        return x + y


def make_gate(name: GateName, size: int, *, key: PRNGKeyArray, init: Init) -> GRUGate | Residual:
    """Builds the gate called `name`: "gru" or "residual"."""
    require_choice("gate", name, ("gru", "residual"))
    return GRUGate(size, key=key, init=init) if name == "gru" else Residual()


def _beside(parts: list[Linear]) -> Linear:
    """One product that does the work of several without bias, [W_1 | W_2 | ...]."""
    weight = jnp.concatenate([part.weight for part in parts], axis=1)
    return eqx.tree_at(lambda linear: linear.weight, parts[0], weight)


class Attention(Protocol):
    """What a layer needs of its attention: the interface of a memory, norm included."""

    def init_state(self) -> State: ...
    def step(self, state: State, x: Array, start: Array) -> tuple[State, Array]: ...
    def unroll(self, state: State, xs: Array, starts: Array) -> tuple[State, Array]: ...
    def refresh(self, state: State) -> State: ...


class Layer(eqx.Module):
    """One transformer layer: an attention and a feed-forward net, each behind a gate.

    Norm before, as in GTrXL (the attention norms what it reads itself):

        y = gate_1(x, act(attention(x)))        out = gate_2(y, act(mlp(norm(y))))

    Norm after, as in the canonical transformer:

        y = norm_1(gate_1(x, act(attention(x))))     out = norm_2(gate_2(y, act(mlp(y))))

    `act` is relu before a GRU gate, as Parisotto et al. (2020) have it, and else the identity.
    """

    attention: Attention
    attention_gate: GRUGate | Residual
    attention_norm: LayerNorm | None
    mlp: MLP
    mlp_gate: GRUGate | Residual
    mlp_norm: LayerNorm
    relu_before_gate: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        ffn_size: int | None,
        attention: Attention,
        *,
        key: PRNGKeyArray,
        init: Init,
        gate: GateName = "gru",
        norm: NormPlace = "before",
    ):
        ffn_size = size if ffn_size is None else ffn_size
        require_at_least("ffn_size", ffn_size, 1)
        require_choice("norm", norm, ("before", "after"))
        keys = jax.random.split(key, 3)
        self.attention = attention
        self.attention_gate = make_gate(gate, size, key=keys[0], init=init)
        self.attention_norm = LayerNorm(size) if norm == "after" else None
        self.mlp = MLP(size, ffn_size, key=keys[1], init=init)
        self.mlp_gate = make_gate(gate, size, key=keys[2], init=init)
        self.mlp_norm = LayerNorm(size)
        self.relu_before_gate = gate == "gru"

    def init_state(self) -> State:
        """The attention's state; the rest of a layer has none."""
        return self.attention.init_state()

    def step(
        self, state: State, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " n"]]:
        """One observation."""
        state, attended = self.attention.step(state, x, start)
        return state, self._after_attention(x, attended)

    def unroll(
        self, state: State, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time n"]]:
        """A chunk."""
        state, attended = self.attention.unroll(state, xs, starts)
        return state, self._after_attention(xs, attended)

    def refresh(self, state: State) -> State:
        """The attention's state, rebuilt for the present parameters."""
        return self.attention.refresh(state)

    def _after_attention(
        self, x: Float[Array, "*lead n"], attended: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        act = jax.nn.relu if self.relu_before_gate else lambda a: a
        y = self.attention_gate(x, act(attended))
        if self.attention_norm is None:
            return self.mlp_gate(y, act(self.mlp(self.mlp_norm(y))))
        y = self.attention_norm(y)
        return self.mlp_norm(self.mlp_gate(y, act(self.mlp(y))))
