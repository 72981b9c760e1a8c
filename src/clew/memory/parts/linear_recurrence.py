"""Linear recurrences, s_t = keep_t * s_{t-1} + add_t and a_t = read(s_t), over a chunk.

A model defines what a step keeps, adds and reads. The steps, one after the other or with all states
at once, follow from that; a model brings its own chunks of matrix products, see
`clew.memory.parts.chunkwise`.
"""

from typing import Any, ClassVar, Literal, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from clew.errors import require_choice
from clew.memory.kernels import Form
from clew.memory.parts import chunkwise
from clew.memory.parts.scans import checkpointed_scan, linear_scan, scan_pieces

S = TypeVar("S", bound=PyTree)

ScanBackend = Literal["auto", "associative", "xla"]
"""What computes all states of a chunk: "xla" step by step, "associative" in parallel over time, and
"auto" in parallel only on an accelerator. Both are the same function within rounding."""

Chunk = tuple[PyTree[Array], Float[Array, "time heads head"]]
"""The state after several steps, and a_t of each of them."""


class LinearRecurrence(Protocol):
    """One step of a recurrence, for all heads, given the inputs of that step."""

    states_at_once: ClassVar[int]
    """Steps whose states are held together by the associative scan."""

    def decay(self, inputs: Any, /) -> tuple[PyTree[Array], PyTree[Array]]:
        """The factors by which a step keeps every array of the state, and what it adds."""
        ...

    def read(self, state: Any, inputs: Any, /) -> Float[Array, "heads head"]:
        """a_t of all heads."""
        ...


class ChunkwiseRecurrence(LinearRecurrence, Protocol):
    """A recurrence whose chunks can also be computed by matrix products."""

    def read_chunks(self, state: Any, inputs: Any, starts: Bool[Array, " time"], /) -> Chunk:
        """Several steps in parallel, by matrix products."""
        ...


def states_of(
    keep: S, add: S, state: S, starts: Bool[Array, " time"], backend: ScanBackend = "auto"
) -> S:
    """All states s_t = keep_t * s_{t-1} + add_t of a chunk, real or complex.

    This makes a cell with a diagonal state parallel in time: the last state is the state after the
    chunk, and the cell's outputs are one product of all states.

    Args:
        keep: leaves [time, ...], that broadcast against those of `add`.
        add: leaves [time, ...].
        state: before the chunk, leaves [...].
        starts: where the state before a step counts as zero.

    Raises:
        UserError: for an unknown form.
    """
    if _parallel(backend):
        return linear_scan(keep, add, state, starts)

    def one(state: S, step: tuple[S, S, Array]) -> tuple[S, S]:
        keep, add, start = step
        old = jax.tree.map(lambda s: jnp.where(start, 0.0, s), state)
        state = jax.tree.map(lambda k, s, a: k * s + a, keep, old, add)
        return state, state

    return jax.lax.scan(one, state, (keep, add, starts))[1]


def _parallel(backend: ScanBackend) -> bool:
    require_choice("backend", backend, ("auto", "associative", "xla"))
    return backend == "associative" or (backend == "auto" and jax.default_backend() != "cpu")


def advance(
    recurrence: LinearRecurrence, state: Any, inputs: Any, start: Bool[Array, ""]
) -> tuple[Any, Float[Array, "heads head"]]:
    """One step, from zeros where an episode starts: s_t and a_t."""
    keep, add = recurrence.decay(inputs)
    old = jax.tree.map(lambda s: jnp.where(start, 0.0, s), state)
    state = jax.tree.map(lambda k, s, a: k * s + a, keep, old, add)
    return state, recurrence.read(state, inputs)


def advance_chunk(
    recurrence: ChunkwiseRecurrence,
    form: Form,
    state: Any,
    inputs: Any,
    starts: Bool[Array, " time"],
) -> Chunk:
    """A chunk in any form but "kernel"; the gradient stores few of its states."""

    def by_products(state: Any, piece: tuple[Any, Array]) -> Chunk:
        return recurrence.read_chunks(state, *piece)

    if form == "chunkwise":
        return scan_pieces(by_products, state, (inputs, starts), chunkwise.PIECE)
    backend = "associative" if form == "associative" else "xla"
    return advance_states(recurrence, backend, state, inputs, starts)


def advance_states(
    recurrence: LinearRecurrence,
    backend: ScanBackend,
    state: Any,
    inputs: Any,
    starts: Bool[Array, " time"],
) -> Chunk:
    """A chunk by its states; the gradient stores few of them.

    Raises:
        UserError: for an unknown form.
    """

    def one_by_one(state: Any, step: tuple[Any, Array]) -> tuple[Any, Array]:
        return advance(recurrence, state, *step)

    def all_at_once(state: Any, piece: tuple[Any, Array]) -> Chunk:
        inputs, starts = piece
        states = linear_scan(*jax.vmap(recurrence.decay)(inputs), state, starts)
        last = jax.tree.map(lambda s: s[-1], states)
        return last, jax.vmap(recurrence.read)(states, inputs)

    if _parallel(backend):
        return scan_pieces(all_at_once, state, (inputs, starts), recurrence.states_at_once)
    return checkpointed_scan(one_by_one, state, (inputs, starts))
