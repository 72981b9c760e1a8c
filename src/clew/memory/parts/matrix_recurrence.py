"""Recurrences whose state is a matrix for each head: sums with decay, and the delta rule.

    C_t = a_t C_{t-1} + v_t k_t'                                          (sums)
    C_t = C_{t-1} diag(a_t) + v_t k_t'                                    (a decay for every key)
    C_t = a_t C_{t-1} (I - b_t k_t k_t') + b_t v_t k_t'                   (delta rule)
    C_t = C_{t-1} (diag(a_t) - e_t s_t') + v_t k_t'                       (both for every key)
    y_t = C_t q_t

The delta rule is the sum with other values: u_t = b_t (v_t - a_t C_{t-1} k_t), the part of v_t that
the state does not yet return for k_t, instead of v_t. Within a chunk these values solve a
triangular system, so both are a few matrix products, see `read_chunk`. The last recurrence adds
-C_{t-1} e_t at s_t beside v_t at k_t, so it is a sum of two terms per step, the first of which is
solved for.

The decay between two steps of a chunk is a product of a's. As a quotient of products, or a
difference of sums of logarithms, it would lose its digits after a strong decay, and be 0 / 0 after
an a of 0. It is summed by halves instead, see `sum_between`: a may be 0, as at a start. With a
decay for every key it is multiplied by halves, see `clew.memory.parts.chunkwise`.

Keys may be rotated, as in rotary positions: `turn` is the angle by which every step rotates the
contents of the state. A score then depends on the number of steps in between, without a position
counter.
"""

import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.errors import UserError, require_choice
from clew.memory.kernels import uses_kernel
from clew.memory.kernels.matrix_recurrence import MatrixArrays, matrix_recurrence
from clew.memory.parts.chunkwise import (
    as_matrix,
    chunk_size,
    cut,
    decays,
    join,
    score,
    weigh,
    without_nonfinite,
)
from clew.memory.parts.products import exact_einsum
from clew.memory.parts.scans import checkpointed_scan, scan_pieces

CHUNK = 32
"""Steps that see each other through products; they see older steps through the state. On two cores
the gradient with 64 took a quarter longer."""

MatrixForm = Literal["kernel", "chunkwise", "xla"]
"""What computes a chunk: "kernel", compiled C++, "xla" step by step, "chunkwise" by products."""

MatrixBackend = Literal["auto", MatrixForm]
"""A `MatrixForm`, or "auto": the kernel where JAX runs on a CPU that has it and all floats have one
dtype, float32 or float64; otherwise "chunkwise". All are the same function within rounding; all but
"kernel" have forward-mode and second derivatives."""

BACKENDS = get_args(MatrixBackend)

Matrix = Float[Array, "heads value key"]


class Erase(NamedTuple):
    """What a step removes from the state beside its decay: the content of a key e, at all keys
    s."""

    key: Float[Array, "*time heads key"]
    """e"""
    share: Float[Array, "*time heads key"]
    """s"""


class MatrixInputs(NamedTuple):
    """The inputs of a matrix recurrence's steps, with or without a leading time axis."""

    query: Float[Array, "*time heads key"]
    key: Float[Array, "*time heads key"]
    value: Float[Array, "*time heads value"]
    log_keep: Float[Array, "*time heads"] | Float[Array, "*time heads key"]
    """log a, at most 0 and -inf where everything is forgotten; one per head, or one per key"""
    rate: Float[Array, "*time heads"] | None = None
    """b of the delta rule, which needs one a per head; None for sums"""
    turn: Float[Array, "*time heads half"] | None = None
    """angles by which this step rotates pairs of a key's numbers, see `turned`; None for none"""
    erase: Erase | None = None
    """what is erased from keys other than k; requires an a per key, no `turn` and no b; None for
    nothing"""


def advance(
    state: Matrix, inputs: MatrixInputs, start: Bool[Array, ""]
) -> tuple[Matrix, Float[Array, "heads value"]]:
    """One step, from zeros where an episode starts: C_t and y_t."""
    state, keep = jnp.where(start, 0.0, state), jnp.exp(inputs.log_keep)
    if inputs.turn is not None:
        state = turned(state, -inputs.turn[:, None])
    old, value = state, inputs.value
    state = state * (keep[:, None] if keep.ndim == 2 else keep[:, None, None])
    if inputs.erase is not None:
        held = exact_einsum("hvk,hk->hv", old, inputs.erase.key)
        state = state - held[:, :, None] * inputs.erase.share[:, None, :]
    if inputs.rate is not None:
        value = inputs.rate[:, None] * (value - exact_einsum("hvk,hk->hv", state, inputs.key))
    state = state + value[:, :, None] * inputs.key[:, None, :]
    return state, exact_einsum("hvk,hk->hv", state, inputs.query)


def choose_matrix_form(backend: MatrixBackend, *arrays: Any) -> MatrixForm:
    """What computes a chunk on JAX's default platform.

    Raises:
        UserError: for an unknown form, and for "kernel" where there is none, with the reason.
    """
    require_choice("backend", backend, BACKENDS)
    if backend == "xla" or backend == "chunkwise":
        return backend
    return "kernel" if uses_kernel(backend, *arrays) else "chunkwise"


def advance_chunk(
    backend: MatrixBackend, state: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Matrix, Float[Array, "time heads value"]]:
    """A chunk of steps; the gradient stores few of their states.

    Raises:
        UserError: for an unknown form, for a kernel that cannot be built, and for combinations of
            inputs that no form of a chunk supports.
    """
    _refuse_unknown(inputs)
    form = choose_matrix_form(backend, state, inputs)
    if form == "kernel":
        return run_kernel(state, inputs, starts)
    if form == "xla":
        return checkpointed_scan(lambda c, step: advance(c, *step), state, (inputs, starts))
    return scan_pieces(lambda c, piece: read_chunk(c, *piece), state, (inputs, starts), CHUNK)


def _refuse_unknown(inputs: MatrixInputs) -> None:
    """Refuses combinations that a single step could take but the forms of a chunk would misread."""
    of_keys = inputs.log_keep.ndim == inputs.key.ndim
    if inputs.rate is not None and of_keys:
        raise UserError("a delta rule (rate) needs one log_keep per head, got one per key")
    plain = inputs.rate is None and inputs.turn is None
    if inputs.erase is not None and not (of_keys and plain):
        raise UserError("erase needs one log_keep per key, and neither rate nor turn")


def run_kernel(
    state: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Matrix, Float[Array, "time heads value"]]:
    """A chunk by the kernel.

    Rotated keys are turned by the distance of their step from the state before the chunk.
    """
    query, key, value, log_keep, rate, turn, erase = inputs
    none = jnp.zeros((*value.shape[:2], 0), value.dtype)
    erased, share = erase or (none, none)
    keep = jnp.exp(log_keep if log_keep.ndim == key.ndim else log_keep[:, :, None])
    rate = none if rate is None else rate[:, :, None]
    angle = None if turn is None else jax.lax.associative_scan(_add_angles, turn)
    if angle is not None:
        query, key = turned(query, angle), turned(key, angle)
    arrays = MatrixArrays(query, key, value, keep, rate, erased, share, starts, state)
    read, after = matrix_recurrence(arrays)
    return after if angle is None else turned(after, -angle[-1, :, None]), read


def _add_angles(one: Array, other: Array) -> Array:
    """Adds angles modulo one turn, since the sum over a long chunk would lose its digits."""
    return jnp.remainder(one + other, 2.0 * math.pi)


def read_chunk(
    state: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Matrix, Float[Array, "time heads value"]]:
    """Several steps by matrix products.

    With d[t, j] = a_{j+1} ... a_t, and e[t] = a_1 ... a_t for the state C before them,

        y_t = e[t] C q_t + sum_{j <= t} d[t, j] (k_j . q_t) u_j
        C'  = e[T] C + sum_j d[T, j] u_j k_j'

    where u = v for sums, and for the delta rule the solution of

        u_t + b_t sum_{j < t} d[t, j] (k_j . k_t) u_j = b_t (v_t - e[t] C k_t)

    Rotated keys are turned by the distance of their step from the state before the chunk.

    Source: Yang et al. (2024), Parallelizing linear transformers with the delta rule, and Gated
    delta networks, section 3; their W and U are one system here, since C is known.
    """
    # A sum of finite logarithms may be -inf; a single -inf would count as a mistake.
    lowest = jnp.finfo(inputs.log_keep.dtype).min
    inputs = inputs._replace(log_keep=jnp.maximum(inputs.log_keep, lowest))
    fine = without_nonfinite(state, inputs, starts)
    old, inputs = fine.state, fine.inputs
    read = _read_keys if inputs.log_keep.ndim == inputs.key.ndim else _read_heads
    read = read if inputs.erase is None else _read_erased
    if inputs.turn is None:
        out, after = read(old, inputs, starts)
        return fine.spoil(out, after)
    angle = jnp.cumsum(inputs.turn, axis=0)
    query, key = turned(inputs.query, angle), turned(inputs.key, angle)
    out, after = read(old, inputs._replace(query=query, key=key), starts)
    return fine.spoil(out, turned(after, -angle[-1, :, None]))


def _read_heads(
    old: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Float[Array, "time heads value"], Matrix]:
    """y of several steps and the state after them, with one decay per head."""
    query, key, value, log_keep, rate, *_ = inputs
    between, since = sum_between(jnp.where(starts[:, None], -jnp.inf, log_keep))
    d, e = jnp.exp(between), jnp.exp(since)
    if rate is not None:
        value = rate[:, :, None] * (value - e[:, :, None] * exact_einsum("hvk,thk->thv", old, key))
        seen = d * exact_einsum("thk,jhk->htj", key, key) * rate.T[:, :, None]
        value = jnp.swapaxes(solve_unit_lower(seen, jnp.swapaxes(value, 0, 1)), 0, 1)
    scores = d * exact_einsum("thk,jhk->htj", query, key)
    out = e[:, :, None] * exact_einsum("hvk,thk->thv", old, query)
    out += exact_einsum("htj,jhv->thv", scores, value)
    late = value * d[:, -1].T[:, :, None]
    return out, e[-1][:, None, None] * old + exact_einsum("jhv,jhk->hvk", late, key)


def _read_keys(
    old: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Float[Array, "time heads value"], Matrix]:
    """The same with a decay per key; all steps are one chunk."""
    size = chunk_size(len(starts))
    query, key, value = (cut(x, size)[0] for x in (inputs.query, inputs.key, inputs.value))
    kept = decays(-jnp.expm1(inputs.log_keep), starts, size)
    pairs = score(query[None], key[None], kept)
    out = weigh(pairs, value[None])[0]
    out += exact_einsum("hvk,htk->htv", old, query * kept.before[0])
    late = exact_einsum("htv,htk->hvk", value, key * kept.after[0])
    return join(out[None], len(starts)), kept.whole[0][:, None] * old + late


def _read_erased(
    old: Matrix, inputs: MatrixInputs, starts: Bool[Array, " time"]
) -> tuple[Float[Array, "time heads value"], Matrix]:
    """The same where a step also adds u_t s_t' with u_t = -C_{t-1} e_t.

    As C_{t-1} is what step t - 1 sees, e is moved there, where it is a query like all others.
    """
    assert inputs.erase is not None
    size, share = chunk_size(len(starts)), inputs.erase.share
    erased = jnp.where(starts[:, None, None], 0.0, inputs.erase.key)
    moved = jnp.concatenate([erased[1:], jnp.zeros_like(erased[:1])])
    # Each of two queries with each of two keys, side by side like heads.
    queries = jnp.concatenate([inputs.query, inputs.query, moved, moved], axis=1)
    keys = jnp.concatenate([inputs.key, share, inputs.key, share], axis=1)
    kept = decays(jnp.tile(-jnp.expm1(inputs.log_keep), (1, 4, 1)), starts, size)
    pairs = as_matrix(score(cut(queries, size), cut(keys, size), kept))[0]
    of_keys, of_shares, seen, again = jnp.split(pairs, 4)
    query, moved, key, share, value = (
        cut(x, size)[0] for x in (inputs.query, moved, inputs.key, share, inputs.value)
    )
    before, after, whole = (jnp.split(x[0], 4)[0] for x in (kept.before, kept.after, kept.whole))
    first = exact_einsum("hvk,hk->hv", old, erased[0])
    held = exact_einsum("hvk,htk->htv", old, moved * before)
    held = _later(held + exact_einsum("htj,hjv->htv", seen, value)).at[:, 0].add(first)
    taken = solve_unit_lower(_later(again), -held)
    out = exact_einsum("htj,hjv->htv", of_keys, value) + exact_einsum(
        "htj,hjv->htv", of_shares, taken
    )
    out += exact_einsum("hvk,htk->htv", old, query * before)
    late = exact_einsum("htv,htk->hvk", value, key * after)
    late += exact_einsum("htv,htk->hvk", taken, share * after)
    return join(out[None], len(starts)), whole[:, None] * old + late


def _later(x: Float[Array, "heads time n"]) -> Float[Array, "heads time n"]:
    """The array shifted by one step, so that each step's entry is at the next one."""
    return jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], axis=1)


def turned(
    x: Float[Array, "*lead key"], angle: Float[Array, "*#lead half"]
) -> Float[Array, "*lead key"]:
    """Rotates the pairs (x_i, x_{i + key / 2}) by their angles."""
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = (jnp.broadcast_to(f(angle), first.shape) for f in (jnp.cos, jnp.sin))
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def sum_between(
    x: Float[Array, "time heads"],
) -> tuple[Float[Array, "heads time time"], Float[Array, "time heads"]]:
    """x_{j+1} + ... + x_t for all j <= t, -inf for the others; and x_1 + ... + x_t.

    A sequence is halved, and its halves again. The sum of a pair in different halves is that of the
    left half after j plus that of the right half up to t. There are only sums, so nothing cancels,
    and a -inf in x never meets one of the opposite sign.
    """
    time, heads = x.shape
    size = 1 << (time - 1).bit_length()
    before = jnp.pad(x, [(0, size - time), (0, 0)]).T[:, :, None]  # [heads, parts, steps of one]
    after = jnp.zeros_like(before)
    pairs = jnp.zeros((heads, size, 1, 1), x.dtype)
    while pairs.shape[1] > 1:
        (left, right), (b_left, b_right), (a_left, a_right) = map(_halves, (pairs, before, after))
        across = b_right[..., :, None] + a_left[..., None, :]
        top = jnp.concatenate([left, jnp.full_like(left, -jnp.inf)], axis=-1)
        pairs = jnp.concatenate([top, jnp.concatenate([across, right], axis=-1)], axis=-2)
        before, after = (
            jnp.concatenate([b_left, b_left[..., -1:] + b_right], axis=-1),
            jnp.concatenate([a_left + b_right[..., -1:], a_right], axis=-1),
        )
    return pairs[:, 0, :time, :time], before[:, 0, :time].T


def _halves(x: Array) -> tuple[Array, Array]:
    return x[:, ::2], x[:, 1::2]


def solve_unit_lower(
    lower: Float[Array, "heads time time"], right: Float[Array, "heads time n"]
) -> Float[Array, "heads time n"]:
    """u with u_t + sum_{j < t} lower[t, j] u_j = right_t, by halves.

    Only the entries below the diagonal of `lower` are read.

    This is not `jax.scipy.linalg.solve_triangular`, which on a CPU waits in one of XLA's threads
    for other threads of the pool: two calls at once, in a pool of two, deadlocked (jaxlib 0.10).
    """
    size = right.shape[1]
    if size == 1:
        return right
    half = size // 2
    first = solve_unit_lower(lower[:, :half, :half], right[:, :half])
    rest = right[:, half:] - exact_einsum("htj,hjn->htn", lower[:, half:, :half], first)
    return jnp.concatenate([first, solve_unit_lower(lower[:, half:, half:], rest)], axis=1)
