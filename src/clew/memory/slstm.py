"""The sLSTM: an LSTM with exponential gates, a normaliser, and heads that read their own output."""

from typing import Literal, NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least, require_choice
from clew.memory.base import select
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, check_heads
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import ConvolvedMixer, in_heads
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.products import exact_einsum

ForgetGate = Literal["sigmoid", "exp"]

NOTHING = -1e30
"""m before any observation: exp(NOTHING - m_1) is 0 for every m_1."""


class SLSTMState(NamedTuple):
    """Each [heads, head]: c and n divided by exp(m), h and m."""

    c: Float[Array, "heads head"]
    n: Float[Array, "heads head"]
    h: Float[Array, "heads head"]
    m: Float[Array, "heads head"]


class SLSTMMixer(ConvolvedMixer):
    """The recurrence of an `SLSTM`, see there.

    `gates` holds [i | f], which read the output of the convolution, and `inputs` [z | o], each
    [heads, head]; `recurrent` holds the recurrent weights of all four, [z | o | i | f].
    """

    norm: LayerNorm
    convolution: ShortConvolution | None
    gates: Linear
    inputs: Linear
    recurrent: Float[Array, "heads head wide"]
    output_norm: LayerNorm
    output: Linear
    forget: ForgetGate = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        conv: int,
        forget: ForgetGate,
        chrono: int,
    ):
        check_heads(num_heads, head_size)
        require_choice("forget", forget, ("sigmoid", "exp"))
        require_at_least("chrono", chrono, 0)
        keys, wide = jax.random.split(key, 5), num_heads * head_size
        self.norm = LayerNorm(size)
        self.convolution = ShortConvolution(size, conv, key=keys[0]) if conv else None
        gates = Linear(size, 2 * wide, key=keys[1], init=init, blocks=2)
        bias = _forget_biases(keys[2], num_heads, head_size, chrono, forget)
        bias = jnp.concatenate([initial.constant(wide), bias])
        self.gates = eqx.tree_at(lambda made: made.bias, gates, bias)
        self.inputs = Linear(size, 2 * wide, key=keys[3], init=init, blocks=2)
        self.recurrent = initial.constant((num_heads, head_size, 4 * head_size))
        self.output_norm = LayerNorm(head_size)
        self.output = Linear(wide, size, key=keys[4], init=init, bias=False)
        self.forget = forget

    def init_heads(self) -> SLSTMState:
        """Zeros, and an m below all others."""
        heads, head, _ = self.recurrent.shape
        shape, dtype = (heads, head), self.recurrent.dtype
        c, n, h, m = (jnp.full(shape, begin, dtype) for begin in (0.0, 0.0, 0.0, NOTHING))
        return SLSTMState(c, n, h, m)

    def project(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        return x

    def terms(
        self, x: Float[Array, "*lead n"], read: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead heads wide"]:
        """What the input adds to z, o, i and f."""
        heads = len(self.recurrent)
        seen = read if self.convolution is None else jax.nn.silu(read)
        parts = [
            in_heads(part, heads)
            for product in (self.inputs(x), self.gates(seen))
            for part in jnp.split(product, 2, axis=-1)
        ]
        return jnp.concatenate(parts, axis=-1)

    def advance(
        self, heads: SLSTMState, terms: Float[Array, "heads wide"], start: Bool[Array, ""]
    ) -> tuple[SLSTMState, Float[Array, "heads head"]]:
        c, n, h, m = select(start, self.init_heads(), heads)
        z, o, log_i, log_f = self._gates(h, terms)
        before, m = log_f + m, jnp.maximum(log_f + m, log_i)
        f, i = jnp.exp(before - m), jnp.exp(log_i - m)
        c, n = f * c + i * z, f * n + i
        h = o * c / n
        return SLSTMState(c, n, h, m), h

    def advance_chunk(
        self,
        heads: SLSTMState,
        terms: Float[Array, "time heads wide"],
        starts: Bool[Array, " time"],
    ) -> tuple[SLSTMState, Float[Array, "time heads head"]]:
        return jax.lax.scan(lambda s, step: self.advance(s, *step), heads, (terms, starts))

    def finish(
        self,
        y: Float[Array, "*lead heads head"],
        x: Float[Array, "*lead n"],
        read: Float[Array, "*lead n"],
    ) -> Float[Array, "*lead n"]:
        """The norm and the last product."""
        return self.output(self.output_norm(y).reshape(*x.shape[:-1], -1))

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The share of c / n that was there before the step, and how far o is open."""
        xs, fresh = self.norm(xs), self.init_state()
        starts, read = jnp.zeros(len(xs), bool), xs
        if self.convolution is not None:
            _, read = self.convolution.unroll(fresh.convolved, xs, starts)

        def one(state: SLSTMState, terms: Array) -> tuple[SLSTMState, tuple[Array, Array]]:
            _, o, log_i, _ = self._gates(state.h, terms)
            after, _ = self.advance(state, terms, jnp.array(False))
            return after, (1.0 - jnp.exp(log_i - after.m) / after.n, o)

        _, maps = jax.lax.scan(one, fresh.heads, self.terms(xs, read))
        kept, o = (x.reshape(len(xs), -1) for x in maps)
        return {"kept": MemoryMap(kept, "keep"), "o": MemoryMap(o, "gate")}

    def _gates(
        self, h: Float[Array, "heads head"], terms: Float[Array, "heads wide"]
    ) -> tuple[Array, Array, Array, Array]:
        """z, o, log i and log f."""
        again = exact_einsum("hj,hjw->hw", h, self.recurrent)
        z, o, log_i, f = jnp.split(terms + again, 4, axis=-1)
        log_f = jax.nn.log_sigmoid(f) if self.forget == "sigmoid" else f
        return jnp.tanh(z), jax.nn.sigmoid(o), log_i, log_f


def _forget_biases(
    key: PRNGKeyArray, num_heads: int, head_size: int, chrono: int, forget: ForgetGate
) -> Float[Array, " wide"]:
    """Biases of f: those of the authors' code, or with 1 - f a forgetting gate of `lasting`."""
    if chrono:
        require_at_least("chrono", chrono, 2)
        kept = -initial.lasting(key, num_heads * head_size, chrono)
        return kept if forget == "sigmoid" else jax.nn.log_sigmoid(kept)
    place = np.arange(head_size) / max(head_size - 1, 1)
    biases = np.tile(5.0 - 12.0 * place**0.3, num_heads)
    return jnp.array(np.minimum(biases, 0.0) if forget == "exp" else biases, jnp.float32)


class SLSTM(MixerStack):
    """The sLSTM of xLSTM: exponential gates, a normaliser, and heads that read their own output.

        c_t = f_t * c_{t-1} + i_t * z_t
        n_t = f_t * n_{t-1} + i_t
        h_t = o_t * c_t / n_t
        z_t = tanh(x_t W_z + h_{t-1} R_z + b_z)
        i_t = exp(u_t W_i + h_{t-1} R_i + b_i)
        f_t = sigmoid(u_t W_f + h_{t-1} R_f + b_f)
        o_t = sigmoid(x_t W_o + h_{t-1} R_o + b_o)

    with u = silu(conv(x)), and an R for each head, in the layers of `mixer_stack`; a layer adds
    norm(h_t) W. The state has c and n divided by exp(m), with m_t = max(log f_t + m_{t-1}, log
    i_t), so that no i is too large; h is unchanged. A layer holds 4 heads head_size numbers, and
    the (conv - 1) hidden_size inputs that the convolution still sees. A chunk is read step by step,
    because the gates read h.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: size of a head's c.
        conv: width of the short convolution in steps; 0 for none, and for i and f straight from x.
        forget: "sigmoid", or "exp" for f = exp(...), which the paper allows too.
        chrono: steps that the longest memories last at the start, see `initial.lasting`; with 0
            the biases of f go from 5 to -7 within a head, most of them below 0.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Beck et al. (2024), "xLSTM", Eq. 8-17, and appendix A.4 for the convolution; R starts at
    0, and the biases of f as in the first layer of the authors' code, whose deeper layers have more
    of them above 0, and none with "exp". The paper does not say what m is at the start; the code
    skips the comparison where n is 0, and a very low m has the same effect. Deviations: a product W
    after the norm, a feed-forward net with relu, one scale of the norm for all heads, and weights
    start orthogonal.
    """

    @stacks(SLSTMMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        conv: int = 4,
        forget: ForgetGate = "sigmoid",
        chrono: int = 0,
        **options: Unpack[MixerOptions],
    ): ...
