"""Mixers with a short convolution, and mixers whose state is a matrix for each head."""

import abc
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.memory.base import State
from clew.memory.parts.blocks import Init, LayerNorm, Linear, RMSNorm, as_precise
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.layer import Mixer
from clew.memory.parts.matrix_recurrence import (
    Matrix,
    MatrixBackend,
    MatrixInputs,
    advance,
    advance_chunk,
)


class ConvolvedState(NamedTuple):
    """One layer's state: that of its heads, and the inputs that the convolution still sees."""

    heads: State
    convolved: State


class ConvolvedMixer(Mixer):
    """A product, an optional short convolution over time, a recurrence of heads, and a product.

    `step` and `unroll` follow from the model's definition of each. `read` below is the output of
    the convolution; without a convolution it is what would be its input.
    """

    norm: eqx.AbstractVar[LayerNorm]
    convolution: eqx.AbstractVar[ShortConvolution | None]
    output: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def project(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead channels"]:
        """The input of the convolution, from the normed input."""

    @abc.abstractmethod
    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead channels"]) -> Any:
        """The inputs of the recurrence."""

    @abc.abstractmethod
    def init_heads(self) -> State:
        """The state of the recurrence before any observation."""

    @abc.abstractmethod
    def advance(
        self, heads: Any, terms: Any, start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, "heads head"]]:
        """One step of the recurrence."""

    @abc.abstractmethod
    def advance_chunk(
        self, heads: Any, terms: Any, starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time heads head"]]:
        """The recurrence over a chunk."""

    def finish(
        self,
        y: Float[Array, "*lead heads head"],
        x: Float[Array, "*lead n"],
        read: Float[Array, "*lead channels"],
    ) -> Float[Array, "*lead n"]:
        """The mixer's output; by default through a `GatedOutput`."""
        return self.output(y, x)

    def init_state(self) -> ConvolvedState:
        """The heads' state, and zeros."""
        convolution = self.convolution
        return ConvolvedState(self.init_heads(), convolution.init_state() if convolution else ())

    def step(
        self, state: ConvolvedState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[ConvolvedState, Float[Array, " n"]]:
        x = self.norm(x)
        read, convolved = self.project(x), state.convolved
        if self.convolution is not None:
            convolved, read = self.convolution.step(convolved, read, start)
        heads, y = self.advance(state.heads, self.terms(x, read), start)
        return ConvolvedState(heads, convolved), self.finish(y, x, read)

    def unroll(
        self, state: ConvolvedState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[ConvolvedState, Float[Array, "time n"]]:
        """A chunk: products and convolution all at once, then the recurrence."""
        xs = self.norm(xs)
        read, convolved = self.project(xs), state.convolved
        if self.convolution is not None:
            convolved, read = self.convolution.unroll(convolved, read, starts)
        heads, y = self.advance_chunk(state.heads, self.terms(xs, read), starts)
        return ConvolvedState(heads, convolved), self.finish(y, xs, read)


class MatrixMixer(ConvolvedMixer):
    """A mixer with the recurrence of `matrix_recurrence`: `terms` are `MatrixInputs`.

    The input of the convolution is `inputs(x)`. Where one observation takes several steps of the
    recurrence, `terms` have an axis for them before that of the heads, and the last step is read.
    """

    inputs: eqx.AbstractVar[Linear]
    num_heads: eqx.AbstractVar[int]
    head_size: eqx.AbstractVar[int]
    backend: eqx.AbstractVar[MatrixBackend]

    @property
    def width_of_keys(self) -> int:
        """The width of keys: that of values, unless a model overrides it."""
        return self.head_size

    @property
    def steps_per_input(self) -> int:
        """Steps of the recurrence per observation: one, unless a model overrides it."""
        return 1

    def init_heads(self) -> Matrix:
        """Zeros, in single precision at least: half precision would lose what a long sum adds."""
        shape = (self.num_heads, self.head_size, self.width_of_keys)
        return jnp.zeros(shape, jnp.promote_types(self.inputs.weight.dtype, jnp.float32))

    def project(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead channels"]:
        return self.inputs(x)

    def advance(
        self, heads: Matrix, terms: MatrixInputs, start: Bool[Array, ""]
    ) -> tuple[Matrix, Float[Array, "heads value"]]:
        terms, dtype = as_precise(heads.dtype, terms.value.dtype, terms)
        steps = [terms]
        if self.steps_per_input > 1:
            steps = [jax.tree.map(lambda x, i=i: x[i], terms) for i in range(len(terms.key))]
        first, *rest = steps
        heads, y = advance(heads, first, start)
        for step in rest:
            heads, y = advance(heads, step, jnp.zeros_like(start))
        return heads, y.astype(dtype)

    def advance_chunk(
        self, heads: Matrix, terms: MatrixInputs, starts: Bool[Array, " time"]
    ) -> tuple[Matrix, Float[Array, "time heads value"]]:
        terms, dtype = as_precise(heads.dtype, terms.value.dtype, terms)
        steps = self.steps_per_input
        if steps > 1:
            terms = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), terms)
            starts = jnp.zeros((len(starts), steps), bool).at[:, 0].set(starts).reshape(-1)
        heads, ys = advance_chunk(self.backend, heads, terms, starts)
        return heads, (ys[steps - 1 :: steps] if steps > 1 else ys).astype(dtype)


class GatedOutput(eqx.Module):
    """(norm(y) * act(x G)) W_o, with each head normed separately; one scale serves all heads.

    Shapes: y [heads, head] and x [size] to [size].
    """

    norm: RMSNorm | LayerNorm
    gate: Linear
    output: Linear
    activation: Literal["silu", "sigmoid"] = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        num_heads: int,
        norm: RMSNorm | LayerNorm,
        *,
        keys: tuple[PRNGKeyArray, PRNGKeyArray],
        init: Init,
        activation: Literal["silu", "sigmoid"] = "silu",
    ):
        wide, bias = num_heads * norm.scale.size, activation == "sigmoid"
        self.norm = norm
        self.gate = Linear(size, wide, key=keys[0], init=init, bias=bias)
        self.output = Linear(wide, size, key=keys[1], init=init, bias=False)
        self.activation = activation

    def __call__(
        self, y: Float[Array, "*lead heads head"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        act = jax.nn.silu if self.activation == "silu" else jax.nn.sigmoid
        normed = self.norm(y).reshape(*x.shape[:-1], -1)
        return self.output(normed * act(self.gate(x)))


def in_heads(x: Float[Array, "*lead wide"], num_heads: int) -> Float[Array, "*lead heads head"]:
    """The last axis split into heads."""
    return jnp.reshape(x, (*x.shape[:-1], num_heads, -1))
