"""Softmax attention over a band of the past: a ring of cached keys and values, and a chunk.

The observation at time t attends to those at t - window .. t of its own episode, when acting and
when learning alike, so that the length of a chunk never changes a policy.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import UserError, require_at_least, require_choice
from clew.memory.kernels import Scan, uses_kernel
from clew.memory.kernels.window import RingInputs, WindowInputs, attend_ring, read_ring, read_window
from clew.memory.parts.band import Band, clean, clear_at_start, count_visible, join_chunk, skew
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.memory.parts.maps import MemoryMap, window_map
from clew.memory.parts.ring import WindowState, ring_after
from clew.memory.parts.window_products import Gradient, WindowProducts


class WindowAttention(WindowProducts):
    """Multi-head attention over a window of the own episode.

        a_t = softmax_j( ((q_t + u) . k_j + (q_t + v) . W_R R_{t-j}) / sqrt(head) ) values_j W_O

    over j = t - window .. t, with q, k and values from norm(x), R the sinusoids of the distance,
    and u, v biases of the whole memory. Without relative positions R, u and v are absent.

    With `gradient="current"` no gradient passes into the inputs of earlier steps, however they came
    into the window: what is remembered is a constant, only its projections learn. The values are
    the same. So it is in Algorithm 3 of Pramanik (2023) and in Makkink's (2021) published code.

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
    scan: Scan = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int,
        head_size: int,
        window: int,
        relative: bool,
        norm: bool,
        init: Init,
        bias: bool,
        owns_biases: bool = True,
        query_norm: bool = True,
        banded: bool = True,
        gradient: Gradient = "full",
        scan: Scan = "auto",
    ):
        require_at_least("num_heads", num_heads, 1)
        require_at_least("head_size", head_size, 1)
        require_at_least("window", window, 1)
        require_choice("gradient", gradient, ("full", "current"))
        uses_kernel(scan)
        if scan == "kernel" and gradient != "full":
            raise UserError(f"scan='kernel' needs gradient='full', got gradient={gradient!r}")
        wide = num_heads * head_size
        keys = jax.random.split(key, 5)
        self.norm = LayerNorm(size) if norm else None
        self.query = Linear(size, wide, key=keys[0], init=init, bias=bias)
        self.key = Linear(size, wide, key=keys[1], init=init, bias=bias)
        self.value = Linear(size, wide, key=keys[2], init=init, bias=bias)
        self.output = Linear(wide, size, key=keys[3], init=init, bias=bias)
        self.distance = Linear(size, wide, key=keys[4], init=init, bias=bias) if relative else None
        zeros = jnp.zeros((num_heads, head_size), jnp.float32)
        self.content_bias = zeros if relative and owns_biases else None
        self.distance_bias = zeros if relative and owns_biases else None
        self.window = window
        self.num_heads = num_heads
        self.head_size = head_size
        self.query_norm = query_norm
        self.banded = banded
        self.gradient = gradient
        self.scan = scan

    def init_state(self) -> WindowState:
        """An empty ring."""
        slots, size = self.window + 1, self.query.weight.shape[0]
        ring = jnp.zeros((self.num_heads, slots, self.head_size), jnp.float32)
        zero = jnp.array(0, jnp.int32)
        return WindowState(jnp.zeros((slots, size), jnp.float32), ring, ring, zero, zero)

    def step(
        self, state: WindowState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[WindowState, Float[Array, " n"]]:
        """Writes the input into the ring, in place, and attends from it."""
        after, at = self._written(state, x, start)
        query, ring = self._rows(self.query(self._asking(x))), (after.keys, after.values)
        inputs = RingInputs(query, *ring, at, after.length, *self._places(self.window, x))
        read = read_ring(inputs) if self._uses_kernel() else attend_ring(inputs, *self._own(x))
        return after, self.output(read.reshape(-1))

    def attend(
        self,
        x: Float[Array, " n"],
        keys: Float[Array, "heads window head"],
        values: Float[Array, "heads window head"],
        visible: Bool[Array, " window"],
    ) -> Float[Array, " n"]:
        """Attends from an input to itself and to the inputs before it, the oldest first.

        `keys` and `values` are numbers also where not `visible`.
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
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
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
        """The whole chunk in one banded pass: by the kernel, or in blocks of about a window."""
        time = len(xs)
        reach = self.window if self.banded else self.window + time - 1
        band = Band.cut(state.position, state.length, starts, self.window, reach)
        stored = self._stored(xs)
        key, value = self.keys_values(stored)
        after = ring_after(band, state, stored, key, value)
        if self._uses_kernel():
            counts = count_visible(state.length, starts, self.window, reach)
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
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        attended = jnp.einsum("hbtj,hbjm->hbtm", weights, band.windows(values))
        if own_value is not None:
            attended += band.of_own(weights) * band.blocks(own_value)
        attended = band.propagate_nonfinite(attended, visible, keys_fine & values_fine)
        rows = jnp.moveaxis(attended, 0, 2).reshape(-1, self.num_heads * self.head_size)[:time]
        return after, self.output(rows)

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
        """The weights of every head over an episode."""
        return {"attention": MemoryMap(window_map(self, xs), "attention")}

    def _uses_kernel(self) -> bool:
        # Stopped gradients are differences of products, which the kernels do not know.
        return self.gradient == "full" and uses_kernel(self.scan)
