"""Softmax attention over a window of the past: a ring of cached keys and values, and a chunk.

The observation at time t attends to those at t - window .. t of its own episode, in acting and in
learning alike, so the length of a chunk never changes a policy.

`WindowAttention` is the mathematics. `WindowState` is the ring that it keeps, and `Band` does the
index work of a chunk: masks, blocks of queries, and the shift from distance to key. The names of
the axes: `past` keys come before the chunk, `time` keys are in it; a chunk is cut into blocks of
queries, and the window of a block is the set of keys that any of its queries may see.
"""

import math
from typing import Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from clew.errors import LARGEST_SIZE, UserError, require_at_least, require_choice
from clew.memory.base import State
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.window import RingInputs, WindowInputs, attend_ring, read_ring, read_window
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, check_heads
from clew.memory.parts.layer import Mixer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.positions import count_positions, sinusoids
from clew.memory.parts.softmax import softmax

Gradient = Literal["full", "current"]
Tree = TypeVar("Tree", bound=PyTree)


_BLOCK = 64  # below this, smaller blocks cost more in overhead than they save in masked scores


class WindowState(NamedTuple):
    """A ring of the last `window + 1` inputs, and their projections.

    `hidden` is the definition; keys and values are projected from it with the parameters, and
    `refresh` projects them again after these change.
    """

    hidden: Float[Array, "slots n"]
    keys: Float[Array, "heads slots head"]
    values: Float[Array, "heads slots head"]
    position: Int[Array, ""]  # the slot that the next input goes to
    length: Int[Array, ""]  # how many slots hold inputs of this episode


def compact_windows(state: State) -> State:
    """A state whose windows, wherever they are in it, hold only their inputs."""
    bare = {"keys": (), "values": ()}
    return jax.tree.map(
        lambda leaf: leaf._replace(**bare) if isinstance(leaf, WindowState) else leaf,
        state,
        is_leaf=_is_window,
    )


def expand_windows(compacted: State, fresh: State) -> State:
    """The state that `compact_windows` was given, with zeros for the keys and values.

    Args:
        compacted: the output of `compact_windows`.
        fresh: the memory's state before any observation, which gives the shapes.
    """
    return jax.tree.map(
        lambda leaf, own: (
            leaf._replace(keys=own.keys, values=own.values)
            if isinstance(leaf, WindowState)
            else leaf
        ),
        compacted,
        fresh,
        is_leaf=_is_window,
    )


def _is_window(leaf: Any) -> bool:
    return isinstance(leaf, WindowState)


class WindowAttention(Mixer):
    """Multi-head attention over a window of the own episode.

        a_t = softmax_j( ((q_t + u) . k_j + (q_t + v) . W_R R_{t-j}) / sqrt(head) ) values_j W_O

    over j = t - window .. t, with q, k and values from norm(x), R the sinusoids of the distance,
    and u, v biases that all layers share, 0 at the start (in the code of Dai et al. normal with
    standard deviation 0.02). Without relative positions R, u and v are absent.

    With `gradient="current"` no gradient passes into the inputs of earlier steps, however they
    entered the window: the remembered inputs are constants, and only their projections learn. The
    values are the same. Algorithm 3 of Pramanik (2023) and Makkink's (2021) published code do so.

    Shapes: x [size] to a [size]. Source: Dai et al. (2019), section 3.3; Vaswani et al. (2017).
    """

    norm: LayerNorm | None
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    distance: Linear | None
    content_bias: Float[Array, "heads head"] | None
    distance_bias: Float[Array, "heads head"] | None
    window: int = eqx.field(static=True)
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    query_norm: bool = eqx.field(static=True)
    banded: bool = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int,
        head_size: int,
        window: int,
        norm: bool,
        init: Init,
        bias: bool,
        relative: bool = True,
        owns_biases: bool = True,
        query_norm: bool = True,
        banded: bool = True,
        gradient: Gradient = "full",
        backend: Backend = "auto",
    ):
        check_heads(num_heads, head_size)
        require_at_least("window", window, 1, LARGEST_SIZE)
        require_choice("gradient", gradient, ("full", "current"))
        uses_kernel(backend)
        if backend == "kernel" and gradient != "full":
            raise UserError(f"backend='kernel' needs gradient='full', got gradient={gradient!r}")
        wide = num_heads * head_size
        keys = jax.random.split(key, 5)
        self.norm = LayerNorm(size) if norm else None
        self.query = Linear(size, wide, key=keys[0], init=init, bias=bias)
        self.key = Linear(size, wide, key=keys[1], init=init, bias=bias)
        self.value = Linear(size, wide, key=keys[2], init=init, bias=bias)
        self.output = Linear(wide, size, key=keys[3], init=init, bias=bias)
        self.distance = Linear(size, wide, key=keys[4], init=init, bias=bias) if relative else None
        owned, heads = relative and owns_biases, (num_heads, head_size)
        self.content_bias = initial.constant(heads) if owned else None
        self.distance_bias = initial.constant(heads) if owned else None
        self.window = window
        self.num_heads = num_heads
        self.head_size = head_size
        self.query_norm = query_norm
        self.banded = banded
        self.gradient = gradient
        self.backend = backend

    def init_state(self) -> WindowState:
        slots, size, dtype = self.window + 1, self.query.weight.shape[0], self.query.weight.dtype
        ring, integer = (self.num_heads, slots, self.head_size), jnp.int32
        hidden, keys, values = (jnp.zeros(shape, dtype) for shape in ((slots, size), ring, ring))
        return WindowState(hidden, keys, values, jnp.zeros((), integer), jnp.zeros((), integer))

    def step(
        self, state: WindowState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[WindowState, Float[Array, " n"]]:
        """Writes the input into the ring, in place, and attends from it."""
        after, at = self._written(state, x, start)
        query, ring = self._rows(self.query(self._asking(x))), (after.keys, after.values)
        inputs = RingInputs(query, *ring, at, after.length, *self._places(self.window, x))
        read = (
            read_ring(inputs) if self._uses_kernel(inputs) else attend_ring(inputs, *self._own(x))
        )
        return after, self.output(read.reshape(-1))

    def attend(
        self,
        x: Float[Array, " n"],
        keys: Float[Array, "heads window head"],
        values: Float[Array, "heads window head"],
        visible: Bool[Array, " window"],
    ) -> Float[Array, " n"]:
        """Attends from an input to itself and to the inputs before it, the oldest first.

        `keys` and `values` are finite also where not `visible`.
        """
        key, value = self.keys_values(x)
        keys = jnp.concatenate([keys, key[:, None]], axis=1)
        values = jnp.concatenate([values, value[:, None]], axis=1)
        content, by_distance = self.queries(x)
        scores = jnp.einsum("hm,hjm->hj", content, keys)
        if self.distance is not None:
            far = self.distances(self.window + 1)[:, ::-1]
            scores += jnp.einsum("hm,hdm->hd", by_distance, far)
        seen = jnp.broadcast_to(jnp.append(visible, True), scores.shape)
        weights = softmax(jnp.where(seen, scores, -jnp.inf))
        return self.output(jnp.einsum("hj,hjm->hm", weights, values).reshape(-1))

    def write(
        self, state: WindowState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> WindowState:
        """The state that `step` leaves, without attending."""
        return self._written(state, x, start)[0]

    def _written(
        self, state: WindowState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[WindowState, Int[Array, ""]]:
        """The ring with the input in it, and the slot that it went to."""
        slots = self.window + 1
        hidden, keys, values = clear_at_start(start, (state.hidden, state.keys, state.values))
        length = jnp.minimum(jnp.where(start, 0, state.length) + 1, slots)
        stored = self._stored(x)
        key, value = self.keys_values(stored)
        at = jnp.where(start, 0, state.position)
        hidden = hidden.at[at].set(stored)
        keys = keys.at[:, at].set(key)
        values = values.at[:, at].set(value)
        return WindowState(hidden, keys, values, (at + 1) % slots, length), at

    def unroll(
        self, state: WindowState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[WindowState, Float[Array, "time n"]]:
        """The whole chunk in one banded pass: by the kernel, or in blocks of about a window's
        length."""
        time = len(xs)
        reach = self.window if self.banded else self.window + time - 1
        band = Band.cut(state.position, state.length, starts, self.window, reach)
        stored = self._stored(xs)
        key, value = self.keys_values(stored)
        after = ring_after(band, state, stored, key, value)
        if self._uses_kernel(self.query, state, xs):
            # An input sees itself and its episode's within `reach`; of the ring's, `window`.
            before, _ = count_positions(jnp.minimum(state.length, self.window), starts)
            counts = jnp.minimum(before + 1, reach + 1).astype(jnp.int32)
            query = self._rows(self.query(self._asking(xs)))
            chunk = (query, jnp.moveaxis(key, 0, 1), jnp.moveaxis(value, 0, 1))
            ring = (state.keys, state.values, state.position, state.length)
            distances, *biases = self._places(reach, xs)
            inputs = WindowInputs(*chunk, *ring, counts, jnp.moveaxis(distances, 1, 0), *biases)
            return after, self.output(read_window(inputs).reshape(time, -1))
        keys, keys_fine = clean(join_chunk(band, state.keys, key))
        values, values_fine = clean(join_chunk(band, state.values, value))
        visible = band.visible()
        content, by_distance = self.queries(xs)
        scores = jnp.einsum("hbtm,hbjm->hbtj", band.blocks(content), band.windows(keys))
        if self.distance is not None:
            far = self.distances(reach + 1)[:, ::-1]
            scores += skew(jnp.einsum("hbtm,hdm->hbtd", band.blocks(by_distance), far))
        own_key, own_value = self._own(xs)
        if own_key is not None:
            scores += band.on_own(jnp.sum(content * own_key, axis=-1))
        seen = jnp.broadcast_to(visible, scores.shape)
        weights = softmax(jnp.where(seen, scores, -jnp.inf))
        attended = jnp.einsum("hbtj,hbjm->hbtm", weights, band.windows(values))
        if own_value is not None:
            attended += band.of_own(weights) * band.blocks(own_value)
        attended = band.propagate_nonfinite(attended, visible, keys_fine & values_fine)
        rows = jnp.moveaxis(attended, 0, 2).reshape(-1, self.num_heads, self.head_size)[:time]
        return after, self.output(rows.reshape(time, -1))

    def remember(
        self, state: WindowState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> WindowState:
        """The state that `unroll` leaves, without attending."""
        band = Band.cut(state.position, state.length, starts, self.window, self.window)
        stored = self._stored(xs)
        return ring_after(band, state, stored, *self.keys_values(stored))

    def refresh(self, state: WindowState) -> WindowState:
        """Projects the keys and values again from the hidden states."""
        keys, values = self.keys_values(state.hidden)
        return state._replace(keys=keys, values=values)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The weights of every head over an episode, every pair at once."""
        times = jnp.arange(len(xs), dtype=jnp.int32)
        distance = times[:, None] - times[None, :]
        keys, _ = self.keys_values(xs)
        content, by_distance = self.queries(xs)
        scores = jnp.einsum("htm,hjm->htj", content, keys)
        if self.distance is not None:
            far = jnp.einsum("htm,hdm->htd", by_distance, self.distances(len(xs)))
            index = jnp.broadcast_to(jnp.maximum(distance, 0)[None], scores.shape)
            scores += jnp.take_along_axis(far, index, axis=2)
        reach = self.window if self.banded else len(xs)
        seen = jnp.broadcast_to((distance >= 0) & (distance <= reach), scores.shape)
        weights = softmax(jnp.where(seen, scores, -jnp.inf))
        return {"attention": MemoryMap(weights, "attention")}

    def _uses_kernel(self, *arrays: Any) -> bool:
        # Stopped gradients are differences of products, which the kernels do not support.
        return self.gradient == "full" and uses_kernel(self.backend, *arrays)

    def _stored(self, x: Float[Array, "*time n"]) -> Float[Array, "*time n"]:
        return x if self.gradient == "full" else jax.lax.stop_gradient(x)

    def _own(self, x: Float[Array, "*time n"]) -> tuple[Array | None, Array | None]:
        """Zeros with the gradient of a stopped input's own key and value."""
        if self.gradient == "full":
            return None, None
        stopped = self.keys_values(self._stored(x))
        own = tuple(a - b for a, b in zip(self.keys_values(x), stopped, strict=True))
        return own[0], own[1]

    def keys_values(self, x: Float[Array, "*time n"]) -> tuple[Array, Array]:
        """The key and the value of every input, heads first."""
        normed = x if self.norm is None else self.norm(x)
        return self._heads(self.key(normed)), self._heads(self.value(normed))

    def queries(self, x: Float[Array, "*time n"]) -> tuple[Array, Array]:
        """The queries, scaled, with the content bias and with the distance bias."""
        query = self._heads(self.query(self._asking(x)))
        scale = 1.0 / math.sqrt(self.head_size)
        biases = self._biases()
        if biases is None:
            return query * scale, query * scale
        u, v = (jnp.broadcast_to(b if query.ndim == 2 else b[:, None], query.shape) for b in biases)
        return (query + u) * scale, (query + v) * scale

    def distances(self, count: int) -> Float[Array, "heads count head"]:
        """The projected sinusoids of the distances from 0."""
        return jnp.moveaxis(self._distance_rows(count), 1, 0)

    def _distance_rows(self, count: int) -> Float[Array, "count heads head"]:
        assert self.distance is not None
        table = sinusoids(np.arange(count), self.query.weight.shape[0])
        return self._rows(self.distance(jnp.asarray(table, self.distance.weight.dtype)))

    def _places(self, reach: int, like: Array) -> tuple[Array, Array, Array]:
        """The distances up to `reach` [reach + 1, heads, head] and both biases, for the kernels."""
        biases = self._biases()
        if biases is None:
            nothing = jnp.zeros((self.num_heads, self.head_size), like.dtype)
            return jnp.zeros((0, *nothing.shape), like.dtype), nothing, nothing
        return self._distance_rows(reach + 1), *biases

    def _biases(self) -> tuple[Array, Array] | None:
        if self.content_bias is None or self.distance_bias is None:
            assert self.distance is None, "an attention that shares its biases was used alone"
            return None
        return self.content_bias, self.distance_bias

    def _asking(self, x: Float[Array, "*time n"]) -> Float[Array, "*time n"]:
        return self.norm(x) if self.norm is not None and self.query_norm else x

    def _rows(self, x: Float[Array, "*time wide"]) -> Float[Array, "*time heads head"]:
        return x.reshape(*x.shape[:-1], self.num_heads, self.head_size)

    def _heads(self, x: Float[Array, "*time wide"]) -> Array:
        return jnp.moveaxis(self._rows(x), -2, 0)


class Band(eqx.Module):
    """Which query sees which key in a chunk that follows a ring of cached inputs.

    Episodes are numbered from the chunk's beginning: 0 is the current one, and each start opens the
    next; slots that hold no input, or none any more, have negative numbers.
    """

    ring_order: Int[Array, " slots"]  # the ring's slots from the oldest to the newest
    episodes: Int[Array, " past_and_time"]
    position_after: Int[Array, ""]
    length_after: Int[Array, ""]
    window: int = eqx.field(static=True)
    reach: int = eqx.field(static=True)
    time: int = eqx.field(static=True)
    block: int = eqx.field(static=True)
    count: int = eqx.field(static=True)

    @classmethod
    def cut(
        cls,
        position: Int[Array, ""],
        length: Int[Array, ""],
        starts: Bool[Array, " time"],
        window: int,
        reach: int,
    ) -> "Band":
        """Numbers the episodes and cuts the chunk into blocks of about `reach` queries."""
        time, slots = len(starts), window + 1
        count = max(1, round(time / max(_BLOCK, reach)))
        block = -(-time // count)
        order = (position + jnp.arange(slots, dtype=jnp.int32)) % slots
        seen = jnp.arange(slots, dtype=jnp.int32) >= slots - length
        of_chunk = jnp.cumsum(starts.astype(jnp.int32))
        of_past = jnp.where(seen[1:], 0, -1).astype(jnp.int32)
        pads = (reach - window, count * block - time)
        before, after = (jnp.full(n, -2 - i, jnp.int32) for i, n in enumerate(pads))
        last_start = jnp.max(jnp.where(starts, jnp.arange(time, dtype=jnp.int32), -1))
        since = time - jnp.maximum(last_start, 0)
        opened = last_start >= 0
        grown = jnp.where(opened, since, length + time)
        written = jnp.where(opened, since, position + time)
        return cls(
            ring_order=order,
            episodes=jnp.concatenate([before, of_past, of_chunk, after]),
            position_after=(written % slots).astype(jnp.int32),
            length_after=jnp.minimum(grown, slots).astype(jnp.int32),
            window=window,
            reach=reach,
            time=time,
            block=block,
            count=count,
        )

    def blocks(self, rows: Float[Array, "heads time m"]) -> Float[Array, "heads count block m"]:
        """The chunk's rows by block; the last block is padded with zeros."""
        padded = jnp.pad(rows, ((0, 0), (0, self.count * self.block - self.time), (0, 0)))
        return padded.reshape(rows.shape[0], self.count, self.block, rows.shape[2])

    def windows(
        self, rows: Float[Array, "heads past_and_time m"]
    ) -> Float[Array, "heads count keys m"]:
        """For every block, the rows that its queries may see: `reach` before it, and its own."""
        return jnp.stack([rows[:, self._span(i)] for i in range(self.count)], axis=1)

    def visible(self) -> Bool[Array, "1 count block keys"]:
        """Whether a query sees a key: same episode, not later, at most `reach` steps before."""
        key = jnp.arange(self.reach + self.block, dtype=jnp.int32)[None, :]
        query = jnp.arange(self.block, dtype=jnp.int32)[:, None]
        near = (key >= query) & (key <= query + self.reach)
        of_keys = jnp.stack([self.episodes[self._span(i)] for i in range(self.count)])
        same = of_keys[:, None, :] == of_keys[:, self.reach :, None]
        return (same & jnp.broadcast_to(near, same.shape))[None]

    def on_own(self, scores: Float[Array, "heads time"]) -> Float[Array, "heads count block keys"]:
        """Scores of every query with its own key, at that key's place, and 0 elsewhere."""
        rows = self.blocks(scores[..., None])
        own = self._own_key()
        return jnp.where(own, jnp.broadcast_to(rows, (*rows.shape[:3], own.shape[-1])), 0.0)

    def of_own(
        self, weights: Float[Array, "heads count block keys"]
    ) -> Float[Array, "heads count block 1"]:
        """The weight that every query gives to its own key."""
        return jnp.sum(jnp.where(self._own_key(), weights, 0.0), axis=-1, keepdims=True)

    def _own_key(self) -> Bool[Array, "1 1 block keys"]:
        return jnp.eye(self.block, self.reach + self.block, self.reach, dtype=bool)[None, None]

    def propagate_nonfinite(
        self,
        attended: Float[Array, "heads count block m"],
        visible: Bool[Array, "1 count block keys"],
        fine: Bool[Array, " past_and_time"],
    ) -> Float[Array, "heads count block m"]:
        """Sets each output to NaN that saw a key or value which was not finite before `clean`."""
        fine_keys = jnp.stack([fine[self._span(i)] for i in range(self.count)])
        spoiled = jnp.any(visible[0] & ~jnp.broadcast_to(fine_keys[:, None], visible[0].shape), -1)
        return jnp.where(
            jnp.broadcast_to(spoiled[None, :, :, None], attended.shape), jnp.nan, attended
        )

    def _span(self, i: int) -> slice:
        return slice(i * self.block, (i + 1) * self.block + self.reach)


def join_chunk(
    band: Band, ring: Float[Array, "heads slots m"], chunk: Float[Array, "heads time m"]
) -> Float[Array, "heads past_and_time m"]:
    """The ring's rows from old to new without the oldest, then the chunk's, padded like the
    band."""
    past = ring[:, band.ring_order[1:]]
    rows = jnp.concatenate([past, chunk], axis=1)
    padding = (band.reach - band.window, band.count * band.block - band.time)
    return jnp.pad(rows, ((0, 0), padding, (0, 0)))


def join_rings(
    band: Band, ring: Float[Array, "heads slots m"], chunk: Float[Array, "heads time m"]
) -> Float[Array, "heads slots m"]:
    """The ring after the chunk, as if its rows had been written one by one."""
    slots = ring.shape[1]
    rows = jnp.concatenate([ring[:, band.ring_order], chunk], axis=1)[:, -slots:]
    kept = jnp.arange(slots, dtype=jnp.int32) >= slots - band.length_after
    rows = jnp.where(jnp.broadcast_to(kept[None, :, None], rows.shape), rows, 0.0)
    return rows[:, (jnp.arange(slots, dtype=jnp.int32) - band.position_after) % slots]


def ring_after(
    band: Band, state: WindowState, hidden: Array, key: Array, value: Array
) -> WindowState:
    """The ring after a chunk of inputs with their keys and values."""
    return WindowState(
        join_rings(band, state.hidden[None], hidden[None])[0],
        join_rings(band, state.keys, key),
        join_rings(band, state.values, value),
        band.position_after,
        band.length_after,
    )


def skew(by_distance: Float[Array, "heads count block reach1"]) -> Array:
    """Moves row t by t columns: from scores by (reversed) distance to scores by key.

    Column c of row t goes to column t + c of reach + block columns; the others become 0.
    """
    *lead, block, columns = by_distance.shape
    width = columns - 1 + block
    padded = jnp.pad(by_distance, [(0, 0)] * (len(lead) + 1) + [(0, block)])
    flat = padded.reshape(*lead, block * (width + 1))
    return flat[..., : block * width].reshape(*lead, block, width)


def clean(rows: Float[Array, "heads keys m"]) -> tuple[Array, Bool[Array, " keys"]]:
    """The rows with zeros where not finite, and which keys were entirely finite.

    A masked key has weight 0, but 0 times NaN is NaN: masked rows must be finite.
    """
    finite = jnp.isfinite(rows)
    return jnp.where(finite, rows, 0.0), jnp.all(finite, axis=(0, 2))


@jax.custom_jvp
def clear_at_start(start: Bool[Array, ""], rings: Tree) -> Tree:
    """Zeros for the rings where an episode starts, otherwise the rings, mostly without a copy.

    A `where` would copy the rings at every step. A loop of zero or one iterations copies them only
    when an episode starts, and under `vmap` when one starts anywhere in the batch.
    """

    def turn(carry: tuple[Array, Tree]) -> tuple[Array, Tree]:
        pending, rings = carry
        return jnp.zeros_like(pending), jax.tree.map(jnp.zeros_like, rings)

    return jax.lax.while_loop(lambda carry: carry[0], turn, (start, rings))[1]


@clear_at_start.defjvp
def _clear_tangent(
    primals: tuple[Bool[Array, ""], Tree], tangents: tuple[Array, Tree]
) -> tuple[Tree, Tree]:
    (start, rings), (_, change) = primals, tangents
    return clear_at_start(start, rings), jax.tree.map(lambda d: jnp.where(start, 0.0, d), change)
