"""Linear attention with decay, chunk by chunk: matrix products instead of a recurrence over time.

The contribution of step j <= t to step t is a sum over the features n of keys and over the entries
v of values,

    score[t, j] = sum_n queries[t, n] keys[j, n] prod_{j < i <= t} keep[i, n]
    out[t, v]   = sum_{j <= t} score[t, j] values[j, v] prod_{j < i <= t} keep'[i, v]

The textbook form divides cumulative products of `keep`, from the start of the chunk to t and to j,
which underflow: a gate of 0.9 is 1e-46 after 1,000 steps, and one gate at 1 makes 0 / 0. Here a
chunk is halved, and its halves again, down to single steps. For a pair (t, j) there is one level at
which t lies in a right half and j in the left half beside it, and

    prod_{j < i <= t} keep[i] = prod_{i in the left half after j} keep[i]
                                prod_{i in the right half up to t} keep[i]

so that the scores between two halves are one matrix product, of keys that have decayed to the end
of the left half and of queries that have decayed from the start of the right one. No factor exceeds
1, nothing is divided, no logarithm is taken, and no pair with j > t is ever computed. A start is a
keep of 0.

Arrays are [chunks, heads, size, n] with `size` a power of two. Source: chunks of products as in
Yang et al. (2024), Gated Linear Attention; the halving in place of their division and logarithms is
that of parallel prefix sums (Blelloch, 1990).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.kernels.linear_recurrence import AReLiTConstants
from clew.memory.parts.features import Features, outer
from clew.memory.parts.products import exact_einsum
from clew.memory.parts.scans import linear_scan

CHUNK = 64
"""Steps that see each other through scores; they see older steps through the state. With longer
chunks the scores cost more than the state."""

PIECE = 256
"""Steps that are computed at once; the gradient stores a state between two such pieces."""


class Pairs(NamedTuple):
    """A number for every pair of a step and an earlier step (or itself) of the same chunk."""

    same: Float[Array, "chunks heads size"]
    """of each step with itself"""
    halves: tuple[Float[Array, "pairs half half"], ...]
    """of the steps of right halves with those of the left halves beside them, for halves of 1, 2,
    4, ... steps of all chunks and heads"""


class Decays(NamedTuple):
    """Products of the decay factors, over the steps of halves and of whole chunks."""

    halves: tuple[tuple[Array, Array], ...]
    """for each level, of right halves up to each step, and of left halves after each step"""
    before: Float[Array, "chunks heads size n"]
    """from the start of the chunk up to each step"""
    after: Float[Array, "chunks heads size n"]
    """after each step up to the end of the chunk"""

    @property
    def whole(self) -> Float[Array, "chunks heads n"]:
        """Over all steps of a chunk."""
        return self.before[..., -1, :]


def chunk_size(time: int) -> int:
    """Steps in a chunk: `CHUNK`, or the power of two that holds a shorter sequence."""
    return min(CHUNK, 1 << (time - 1).bit_length())


def cut(x: Float[Array, "time heads n"], size: int) -> Float[Array, "chunks heads size n"]:
    """The array in chunks of `size` steps, the last one padded with zeros."""
    count = -(-len(x) // size)
    padded = jnp.pad(x, [(0, count * size - len(x))] + [(0, 0)] * (x.ndim - 1))
    return jnp.swapaxes(padded.reshape(count, size, *x.shape[1:]), 1, 2)


def join(x: Float[Array, "chunks heads size n"], time: int) -> Float[Array, "time heads n"]:
    """The inverse of `cut`."""
    steps = jnp.swapaxes(x, 1, 2)
    return steps.reshape(-1, *steps.shape[2:])[:time]


def decays(gate: Float[Array, "time heads n"], starts: Bool[Array, " time"], size: int) -> Decays:
    """The products of 1 - gate, of 0 at a start, in chunks; each level's from the one below."""
    keep = jnp.where(cut(starts[:, None, None], size), 0.0, 1.0 - cut(gate, size))
    before, after, halves = keep, jnp.ones_like(keep), []
    for half in _levels(size):
        halves.append((_split(before, half)[1], _split(after, half)[0]))
        left, right = (part[..., -1:, :] for part in _split(before, half))
        before = _scaled(before, half, jnp.ones_like(left), left)
        after = _scaled(after, half, right, jnp.ones_like(right))
    return Decays(tuple(halves), before, after)


def score(
    queries: Float[Array, "chunks heads size n"],
    keys: Float[Array, "chunks heads size n"],
    decays: Decays | None = None,
) -> Pairs:
    """sum_n queries[t, n] keys[j, n], decayed from j to t; without `decays`, undecayed."""
    halves = []
    for level, half in enumerate(_levels(queries.shape[-2])):
        right, left = _split(queries, half)[1], _split(keys, half)[0]
        if decays is not None:
            before, after = decays.halves[level]
            right, left = right * before, left * after
        halves.append(exact_einsum("ptn,pjn->ptj", right, left))
    return Pairs(jnp.sum(queries * keys, axis=-1), tuple(halves))


def as_matrix(pairs: Pairs) -> Float[Array, "chunks heads size size"]:
    """The pairs as a triangular matrix [t, j], 0 where j > t."""
    matrix = pairs.same[..., None, None]
    for across in pairs.halves:
        left, right = matrix[..., ::2, :, :], matrix[..., 1::2, :, :]
        top = jnp.concatenate([left, jnp.zeros_like(left)], axis=-1)
        across = across.reshape(left.shape)
        matrix = jnp.concatenate([top, jnp.concatenate([across, right], axis=-1)], axis=-2)
    return matrix[..., 0, :, :]


def weigh(
    pairs: Pairs, values: Float[Array, "chunks heads size n"], decays: Decays | None = None
) -> Float[Array, "chunks heads size n"]:
    """sum_{j <= t} pairs[t, j] values[j], decayed from j to t; without `decays`, undecayed."""
    out = pairs.same[..., None] * values
    for level, half in enumerate(_levels(values.shape[-2])):
        left = _split(values, half)[0]
        if decays is not None:
            left = left * decays.halves[level][1]
        seen = exact_einsum("ptj,pjn->ptn", pairs.halves[level], left)
        if decays is not None:
            seen = seen * decays.halves[level][0]
        out = out + jnp.stack([jnp.zeros_like(seen), seen], axis=1).reshape(out.shape)
    return out


class GatedChunks(NamedTuple):
    """Gated features in chunks, with [eta, head] as one axis, and the products of their gates."""

    query: Float[Array, "chunks heads size k"]
    key: Float[Array, "chunks heads size k"]
    """gamma * k"""
    value: Float[Array, "chunks heads size v"]
    """beta * v"""
    of_keys: Decays
    of_values: Decays

    @classmethod
    def cut(cls, f: Features, starts: Bool[Array, " time"]) -> "GatedChunks":
        """The features of some steps."""
        size = chunk_size(len(starts))

        def wide(first: Array, second: Array) -> Array:
            return outer(first, second).reshape(*second.shape[:2], -1)

        gamma = wide(f.gamma_map, f.gamma)
        return cls(
            cut(wide(f.query_map, f.query), size),
            cut(gamma * wide(f.key_map, f.key), size),
            cut(f.beta * f.value, size),
            decays(gamma, starts, size),
            decays(f.beta, starts, size),
        )


def read_outer_products(
    state: tuple[Array, Array], features: Features, starts: Bool[Array, " time"], epsilon: float
) -> tuple[tuple[Array, Array], Float[Array, "time heads head"]]:
    """ReLiT's C_t, s_t and a_t of several steps, see `clew.memory.relit`.

    Args:
        state: C [heads, v, eta, k] and s [heads, eta, k] before them.
    """
    fine = without_nonfinite(state, features, starts)
    c = GatedChunks.cut(fine.inputs, starts)
    # What the steps of a chunk see of each other.
    pairs = score(c.query, c.key, c.of_keys)
    above = weigh(pairs, c.value, c.of_values)
    below = weigh(pairs, jnp.ones_like(c.value[..., :1]))
    # What the chunks leave behind, and what their steps see of the state before them.
    late_k, late_v = c.key * c.of_keys.after, c.value * c.of_values.after
    early_q = c.query * c.of_keys.before
    keep = (outer(c.of_values.whole, c.of_keys.whole), c.of_keys.whole)
    add = (exact_einsum("chtv,chtk->chvk", late_v, late_k), jnp.sum(late_k, axis=2))
    old = jax.tree.map(lambda s, a: s.reshape(a.shape[1:]), fine.state, add)
    after = linear_scan(keep, add, old)
    matrix, normaliser = _previous(old, after)
    above += c.of_values.before * exact_einsum("chvk,chtk->chtv", matrix, early_q)
    below += exact_einsum("chk,chtk->cht", normaliser, early_q)[..., None]
    above, below = (join(x, len(starts)) for x in (above, below))
    last = jax.tree.map(lambda s, like: s[-1].reshape(like.shape), after, state)
    return fine.spoil(above / (below + epsilon), last)


def read_vectors(
    state: tuple[Array, Array],
    features: Features,
    cosines: Float[Array, "time rows"],
    starts: Bool[Array, " time"],
    readout: AReLiTConstants,
) -> tuple[tuple[Array, Array], Float[Array, "time heads head"]]:
    """AReLiT's k~_t, v~_t and a_t of several steps, see `clew.memory.arelit`.

    Args:
        state: k~ [rows, heads, eta, k] and v~ [vectors, heads, v] before them.
        cosines: of the rows of k~ at every step; those of v~ are the last of them.
    """
    fine = without_nonfinite(state, features, starts)
    c = GatedChunks.cut(fine.inputs, starts)
    heads, size, vectors = c.value.shape[1], c.value.shape[2], len(state[1])
    rows = jnp.broadcast_to(cosines[:, None], (len(starts), heads, cosines.shape[1]))
    rows = cut(rows, size)
    skip = rows.shape[-1] - vectors
    # What the chunks leave behind, and the states before them [chunk, head, row, k].
    late_k, late_v = c.key * c.of_keys.after, c.value * c.of_values.after
    early_q = c.query * c.of_keys.before
    keep = (c.of_keys.whole[:, :, None], c.of_values.whole[:, :, None])
    add = (
        exact_einsum("chtr,chtk->chrk", rows, late_k),
        exact_einsum("chtr,chtv->chrv", rows[..., skip:], late_v),
    )
    old = jax.tree.map(lambda s, a: jnp.swapaxes(s, 0, 1).reshape(a.shape[1:]), fine.state, add)
    after = linear_scan(keep, add, old)
    keys, values = _previous(old, after)
    # k~ . q: of the steps of a chunk among each other, and of the state.
    kq = weigh(score(c.query, c.key, c.of_keys), rows)
    kq += exact_einsum("chrk,chtk->chtr", keys, early_q)
    wkq = kq[..., skip:] * jnp.asarray(readout.weights, kq.dtype)[None, None, None]
    above = weigh(score(wkq, rows[..., skip:]), c.value, c.of_values)
    above += c.of_values.before * exact_einsum("chrv,chtr->chtv", values, wkq)
    above, below = (join(x, len(starts)) for x in (above, kq[..., :1]))
    last = jax.tree.map(lambda s, like: jnp.swapaxes(s[-1], 0, 1).reshape(like.shape), after, state)
    return fine.spoil(above / (below / readout.scale + readout.epsilon), last)


def _previous(first: Any, after: Any) -> Any:
    """The states before each chunk, from the first one and those after each chunk."""
    return jax.tree.map(lambda f, a: jnp.concatenate([f[None], a[:-1]]), first, after)


class Finite(NamedTuple):
    """A state and inputs with zeros for non-finite values, and the steps that must see those."""

    state: Any
    inputs: Any
    spoiled: Bool[Array, " time"]

    def spoil(self, outputs: Array, after: Any) -> tuple[Any, Array]:
        """The state after the steps and their outputs, NaN where they see a non-finite value."""
        where = self.spoiled.reshape(-1, *[1] * (outputs.ndim - 1))
        after = jax.tree.map(lambda s: jnp.where(self.spoiled[-1], jnp.nan, s), after)
        return after, jnp.where(where, jnp.nan, outputs)


def without_nonfinite(state: Any, inputs: Any, starts: Bool[Array, " time"]) -> Finite:
    """Removes values that would pass a start, because 0 times infinity is not 0.

    Args:
        state: float arrays of any shape.
        inputs: float arrays [time, ...]. All inputs of a step with a non-finite number become 0,
            which must leave the state as it is.
    """
    steps = [jnp.all(jnp.isfinite(x), axis=range(1, x.ndim)) for x in jax.tree.leaves(inputs)]
    fine = jnp.all(jnp.stack(steps), axis=0)
    old = jnp.all(jnp.stack([jnp.all(jnp.isfinite(s)) for s in jax.tree.leaves(state)]))
    at = jnp.arange(1, len(starts) + 1)
    last_start = jax.lax.cummax(jnp.where(starts, at, 0))
    last_bad = jax.lax.cummax(jnp.where(fine, jnp.where(old, -1, 0), at))

    def finite(x: Array) -> Array:
        return jnp.where(fine.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0)

    state = jax.tree.map(lambda s: jnp.where(jnp.isfinite(s), s, 0.0), state)
    return Finite(state, jax.tree.map(finite, inputs), last_bad >= last_start)


def _levels(size: int) -> list[int]:
    return [1 << level for level in range(size.bit_length() - 1)]


def _halves(x: Array, half: int) -> Float[Array, "pairs 2 half n"]:
    """Pairs of halves, of all chunks and heads on one axis.

    With an axis for each of them, and one for a batch, XLA's sums over them on a CPU end in a
    segmentation fault (jaxlib 0.10: a buffer of its library has eight axes and no check).
    """
    return x.reshape(-1, 2, half, x.shape[-1])


def _split(x: Array, half: int) -> tuple[Array, Array]:
    """Left and right halves, [pairs, half, n]."""
    halves = _halves(x, half)
    return halves[:, 0], halves[:, 1]


def _scaled(x: Array, half: int, left: Array, right: Array) -> Array:
    """Left halves times `left`, right halves times `right`."""
    return (_halves(x, half) * jnp.stack([left, right], axis=1)).reshape(x.shape)
