"""The mLSTM: an LSTM whose cell is a matrix, with exponential gates."""

import math
from typing import NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_rate
from clew.memory.parts.blocks import Init, LayerNorm, Linear, as_precise, begin_open, check_heads
from clew.memory.parts.chunkwise import without_nonfinite
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import ConvolvedMixer, GatedOutput, in_heads
from clew.memory.parts.matrix_recurrence import (
    CHUNK,
    MatrixBackend,
    MatrixInputs,
    choose_matrix_form,
    run_kernel,
    sum_between,
)
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.products import exact_einsum
from clew.memory.parts.scans import checkpointed_scan, scan_pieces


class MLSTMState(NamedTuple):
    """The cell of every head, divided by exp(m), and m."""

    cell: Float[Array, "heads value key"]
    """C, and in its last row n"""
    m: Float[Array, " heads"]


class MLSTMInputs(NamedTuple):
    """The inputs of the recurrence's steps, with or without a leading time axis."""

    query: Float[Array, "*time heads key"]
    key: Float[Array, "*time heads key"]
    value: Float[Array, "*time heads value"]
    """v, and behind it 1, so that n is a row of C"""
    log_f: Float[Array, "*time heads"]
    log_i: Float[Array, "*time heads"]


def advance(
    state: MLSTMState, inputs: MLSTMInputs, start: Bool[Array, ""], epsilon: float
) -> tuple[MLSTMState, Float[Array, "heads head"]]:
    """One step, Eq. 19-21 with the stabiliser: C_t, n_t, m_t and h~_t."""
    query, key, value, log_f, log_i = inputs
    m, log_keep = _stabilise(state.m, log_f, log_i, start)
    f, i, cell = jnp.exp(log_keep), jnp.exp(log_i - m), jnp.where(start, 0.0, state.cell)
    cell = f[:, None, None] * cell + i[:, None, None] * value[:, :, None] * key[:, None, :]
    read = exact_einsum("hvk,hk->hv", cell, query)
    return MLSTMState(cell, m), _normalised(read, m, epsilon)


def _stabilise(m: Array, log_f: Array, log_i: Array, start: Array) -> tuple[Array, Array]:
    """m_t from m_{t-1}, and the log decay of C divided by exp(m_{t-1})."""
    since = log_f + jnp.where(start, 0.0, m)
    m = jnp.maximum(jnp.maximum(since, log_i), 0.0)
    return m, since - m


def read_chunk(
    state: MLSTMState, inputs: MLSTMInputs, starts: Bool[Array, " time"], epsilon: float
) -> tuple[MLSTMState, Float[Array, "time heads head"]]:
    """Several steps by matrix products.

    A step j weighs exp(w[t, j]) at t, with w[t, j] = log f_{j+1} + ... + log f_t + log i_j, and the
    state before them exp(e[t]), with e[t] = log f_1 + ... + log f_t + m. Then m_t is the largest of
    w[t, j], e[t] and 0, as in the steps.
    """
    fine = without_nonfinite(state, inputs, starts)
    (cell, old), (query, key, value, log_f, log_i) = fine.state, fine.inputs
    between, since = sum_between(jnp.where(starts[:, None], -jnp.inf, log_f))
    w = between + log_i.T[:, None, :]
    e = since.T + old[:, None]
    m = jnp.maximum(jnp.maximum(e, jnp.max(w, axis=-1)), 0.0)
    d, e = jnp.exp(w - m[:, :, None]), jnp.exp(e - m)
    scores = d * exact_einsum("thk,jhk->htj", query, key)
    read = e.T[:, :, None] * exact_einsum("hvk,thk->thv", cell, query)
    read += exact_einsum("htj,jhv->thv", scores, value)
    late = value * d[:, -1].T[:, :, None]
    added = exact_einsum("jhv,jhk->hvk", late, key)
    after = MLSTMState(e[:, -1, None, None] * cell + added, m[:, -1])
    return fine.spoil(_normalised(read, m.T, epsilon), after)


def advance_chunk(
    backend: MatrixBackend,
    state: MLSTMState,
    inputs: MLSTMInputs,
    starts: Bool[Array, " time"],
    epsilon: float,
) -> tuple[MLSTMState, Float[Array, "time heads head"]]:
    """A chunk of steps; the gradient stores few of their states.

    Raises:
        UserError: for an unknown form, and for a kernel that cannot be built.
    """
    form = choose_matrix_form(backend, state, inputs)
    if form == "kernel":
        return _run_kernel(state, inputs, starts, epsilon)
    if form == "xla":
        return checkpointed_scan(
            lambda state, step: advance(state, *step, epsilon=epsilon), state, (inputs, starts)
        )
    return scan_pieces(
        lambda state, piece: read_chunk(state, *piece, epsilon=epsilon),
        state,
        (inputs, starts),
        CHUNK,
    )


def _run_kernel(
    state: MLSTMState, inputs: MLSTMInputs, starts: Bool[Array, " time"], epsilon: float
) -> tuple[MLSTMState, Float[Array, "time heads head"]]:
    """Computes m of every step first; with f and i relative to it the rest is a sum with decay."""
    query, key, value, log_f, log_i = inputs

    def one(m: Array, step: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        m, log_keep = _stabilise(m, *step)
        return m, (log_keep, m)

    last, (log_keep, m) = jax.lax.scan(one, state.m, (log_f, log_i, starts))
    value = value * jnp.exp(log_i - m)[:, :, None]
    cell, read = run_kernel(state.cell, MatrixInputs(query, key, value, log_keep), starts)
    return MLSTMState(cell, last), _normalised(read, m, epsilon)


def _normalised(
    read: Float[Array, "*lead heads value"], m: Float[Array, "*lead heads"], epsilon: float
) -> Float[Array, "*lead heads head"]:
    """C q / max(|n . q|, 1), where C and n are divided by exp(m)."""
    below = jnp.maximum(jnp.abs(read[..., -1:]), jnp.exp(-m)[..., None])
    return read[..., :-1] / (below + epsilon)


class MLSTMMixer(ConvolvedMixer):
    """The recurrence of an `MLSTM`, see there.

    `reads` holds [q | k], each [heads, head], and `gates` [i | f], each [heads].
    """

    norm: LayerNorm
    convolution: ShortConvolution | None
    reads: Linear
    values: Linear
    gates: Linear
    output: GatedOutput
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        conv: int,
        chrono: int,
        epsilon: float,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_rate("epsilon", epsilon)
        choose_matrix_form(backend)
        keys, wide = jax.random.split(key, 6), num_heads * head_size
        self.norm = LayerNorm(size)
        self.convolution = ShortConvolution(size, conv, key=keys[0]) if conv else None
        self.reads = Linear(size, 2 * wide, key=keys[1], init=init, blocks=2)
        self.values = Linear(size, wide, key=keys[2], init=init)
        gates = Linear(size, 2 * num_heads, key=keys[3], init=init, blocks=2)
        self.gates = _begin_kept(gates, num_heads, chrono, key=keys[3])
        norm = LayerNorm(head_size)
        self.output = GatedOutput(
            size, num_heads, norm, keys=(keys[4], keys[5]), init=init, activation="sigmoid"
        )
        self.num_heads, self.head_size = num_heads, head_size
        self.epsilon, self.backend = float(epsilon), backend

    def init_heads(self) -> MLSTMState:
        """Zeros, of single precision at least."""
        heads, head = self.num_heads, self.head_size
        dtype = jnp.promote_types(self.values.weight.dtype, jnp.float32)
        return MLSTMState(jnp.zeros((heads, head + 1, head), dtype), jnp.zeros(heads, dtype))

    def project(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        return x

    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead n"]) -> MLSTMInputs:
        """q, k, v and the logarithms of the gates."""
        seen = read if self.convolution is None else jax.nn.silu(read)
        parts = (*jnp.split(self.reads(seen), 2, axis=-1), self.values(x))
        query, key, value = (in_heads(part, self.num_heads) for part in parts)
        value = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
        log_i, f = jnp.split(self.gates(x), 2, axis=-1)
        scale = 1.0 / math.sqrt(self.head_size)
        return MLSTMInputs(query, key * scale, value, jax.nn.log_sigmoid(f), log_i)

    def advance(
        self, heads: MLSTMState, terms: MLSTMInputs, start: Bool[Array, ""]
    ) -> tuple[MLSTMState, Float[Array, "heads head"]]:
        terms, dtype = as_precise(heads.m.dtype, terms.value.dtype, terms)
        heads, read = advance(heads, terms, start, self.epsilon)
        return heads, read.astype(dtype)

    def advance_chunk(
        self, heads: MLSTMState, terms: MLSTMInputs, starts: Bool[Array, " time"]
    ) -> tuple[MLSTMState, Float[Array, "time heads head"]]:
        terms, dtype = as_precise(heads.m.dtype, terms.value.dtype, terms)
        heads, read = advance_chunk(self.backend, heads, terms, starts, self.epsilon)
        return heads, read.astype(dtype)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """f and log i of every head and step."""
        log_i, f = jnp.split(self.gates(self.norm(xs)), 2, axis=-1)
        return {"f": MemoryMap(jax.nn.sigmoid(f), "keep"), "log i": MemoryMap(log_i, "gate")}


def _begin_kept(gates: Linear, num_heads: int, chrono: int, *, key: PRNGKeyArray) -> Linear:
    """Biases of f from 3 to 6, or with `chrono` as `begin_open` says."""
    assert gates.bias is not None
    own, kept = slice(num_heads, 2 * num_heads), np.linspace(3.0, 6.0, num_heads, dtype=np.float32)
    gates = eqx.tree_at(lambda made: made.bias, gates, gates.bias.at[own].set(kept))
    return begin_open(gates, chrono, key=key, keeping=own)


class MLSTM(MixerStack):
    """The mLSTM of xLSTM: a matrix of values by keys with exponential gates and a normaliser.

        C_t = f_t C_{t-1} + i_t v_t k_t'
        n_t = f_t n_{t-1} + i_t k_t
        h~_t = C_t q_t / max(abs(n_t' q_t), 1)
        y_t = (norm(h~_t) * sigmoid(x_t W_o + b_o)) W
        i_t = exp(x_t w_i + b_i)
        f_t = sigmoid(x_t w_f + b_f)

    per head, with v read from x, q and k / sqrt(d) from silu(conv(x)), in the layers of
    `mixer_stack`. The state has C and n divided by exp(m), with m_t = max(log f_t + m_{t-1}, log
    i_t, 0), so that no i is too large; h~ is unchanged. A layer holds heads (head_size + 1)
    head_size + heads numbers, and the (conv - 1) hidden_size inputs that the convolution still
    sees.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a key, a query and a value.
        conv: width of the short convolution in steps; 0 for none, and for q and k straight from x.
        chrono: steps that the longest memories last at the start, see `initial.lasting`; with 0
            the biases of f go from 3 to 6.
        epsilon: added to the denominator, computed from the divided numbers.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Beck et al. (2024), "xLSTM", Eq. 19-27 with Eq. 15 for m, and appendix A.4 for the
    convolution. The paper also allows f = exp; the authors' code has only the sigmoid, with which
    m_t is the same in chunks, and adds epsilon = 1e-6, as here. In that code m may be negative, and
    exp(-m), which takes the place of the 1, overflows. Deviations: the heads are normed before o,
    as in their code; no skip connection around the cell, and a feed-forward net after each block
    instead of a block of twice the width; the gates read x, where in their code they read q, k and
    v with weights that start at 0; and weights start orthogonal.
    """

    @stacks(MLSTMMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        conv: int = 4,
        chrono: int = 0,
        epsilon: float = 1e-6,
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
