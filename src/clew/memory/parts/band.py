"""Index work of banded attention: rings, blocks, masks and the shift from distance to key.

The names of the axes: `past` keys come before the chunk, `time` in it; a chunk is cut into
blocks of queries, and the window of a block is the keys that any of its queries may see.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from clew.memory.parts.positions import count_positions

Tree = TypeVar("Tree", bound=PyTree)

_BLOCK = 64  # below this, smaller blocks cost more in overhead than they save in masked scores


class Band(eqx.Module):
    """Who sees whom in a chunk that follows a ring of cached inputs.

    Episodes are numbered from the chunk's beginning: 0 is the one going on, each start opens the
    next; inputs that are no longer, or not yet, anything have negative numbers.
    """

    ring_order: Int[Array, " slots"]  # the ring's slots from the oldest to the newest
    ring_seen: Bool[Array, " slots"]  # in that order: is it of the episode going on
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
        order = (position + jnp.arange(slots)) % slots
        seen = jnp.arange(slots) >= slots - length
        of_chunk = jnp.cumsum(starts.astype(jnp.int32))
        of_past = jnp.where(seen[1:], 0, -1).astype(jnp.int32)
        pads = (reach - window, count * block - time)
        before, after = (jnp.full(n, -2 - i, jnp.int32) for i, n in enumerate(pads))
        last_start = jnp.max(jnp.where(starts, jnp.arange(time), -1))
        since = time - jnp.maximum(last_start, 0)
        opened = last_start >= 0
        grown = jnp.where(opened, since, length + time)
        written = jnp.where(opened, since, position + time)
        return cls(
            ring_order=order,
            ring_seen=seen,
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
        """For every block the rows that its queries may see: `reach` before it, and its own."""
        return jnp.stack([rows[:, self._span(i)] for i in range(self.count)], axis=1)

    def visible(self) -> Bool[Array, "1 count block keys"]:
        """Whether a query sees a key: of its own episode, not later, at most `reach` before."""
        key = jnp.arange(self.reach + self.block)[None, :]
        query = jnp.arange(self.block)[:, None]
        near = (key >= query) & (key <= query + self.reach)
        of_keys = jnp.stack([self.episodes[self._span(i)] for i in range(self.count)])
        same = of_keys[:, None, :] == of_keys[:, self.reach :, None]
        return (same & jnp.broadcast_to(near, same.shape))[None]

    def on_own(self, scores: Float[Array, "heads time"]) -> Float[Array, "heads count block keys"]:
        """Scores of every query with its own key, at the place of that key, and 0 elsewhere."""
        rows = self.blocks(scores[..., None])
        own = self._own_key()
        return jnp.where(own, jnp.broadcast_to(rows, (*rows.shape[:3], own.shape[-1])), 0.0)

    def of_own(
        self, weights: Float[Array, "heads count block keys"]
    ) -> Float[Array, "heads count block 1"]:
        """What every query gives to its own key."""
        return jnp.sum(jnp.where(self._own_key(), weights, 0.0), axis=-1, keepdims=True)

    def _own_key(self) -> Bool[Array, "1 1 block keys"]:
        return jnp.eye(self.block, self.reach + self.block, self.reach, dtype=bool)[None, None]

    def propagate_nonfinite(
        self,
        attended: Float[Array, "heads count block m"],
        visible: Bool[Array, "1 count block keys"],
        fine: Bool[Array, " past_and_time"],
    ) -> Float[Array, "heads count block m"]:
        """Makes NaN what saw a key or value that was not finite before `clean`."""
        fine_keys = jnp.stack([fine[self._span(i)] for i in range(self.count)])
        spoiled = jnp.any(visible[0] & ~jnp.broadcast_to(fine_keys[:, None], visible[0].shape), -1)
        return jnp.where(
            jnp.broadcast_to(spoiled[None, :, :, None], attended.shape), jnp.nan, attended
        )

    def _span(self, i: int) -> slice:
        return slice(i * self.block, (i + 1) * self.block + self.reach)


def count_visible(
    length: Int[Array, ""], starts: Bool[Array, " time"], window: int, reach: int
) -> Int[Array, " time"]:
    """How many inputs each one of a chunk sees: itself, and those of its episode within `reach`.

    Args:
        length: inputs of the episode going on that the ring holds, `window` of them in sight.
        starts: which inputs open an episode.
    """
    before, _ = count_positions(jnp.minimum(length, window), starts)
    return jnp.minimum(before + 1, reach + 1).astype(jnp.int32)


def join_chunk(
    band: Band, ring: Float[Array, "heads slots m"], chunk: Float[Array, "heads time m"]
) -> Float[Array, "heads past_and_time m"]:
    """The ring's rows from old to new but the oldest, then the chunk's, padded as the band is."""
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
    kept = jnp.arange(slots) >= slots - band.length_after
    rows = jnp.where(jnp.broadcast_to(kept[None, :, None], rows.shape), rows, 0.0)
    return rows[:, (jnp.arange(slots) - band.position_after) % slots]


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
    """Zeros where not finite, and which keys were finite throughout.

    A masked key has weight 0, but 0 times NaN is NaN: what nobody sees must be a number.
    """
    finite = jnp.isfinite(rows)
    return jnp.where(finite, rows, 0.0), jnp.all(finite, axis=(0, 2))


@jax.custom_vjp
def clear_at_start(start: Bool[Array, ""], rings: Tree) -> Tree:
    """Zeros for the rings where an episode starts, else the rings, mostly without a copy.

    A `where` would copy the rings at every step. A loop of no or one turns copies them when an
    episode starts, and under `vmap` when one starts anywhere in the batch.
    """

    def turn(carry: tuple[Array, Tree]) -> tuple[Array, Tree]:
        pending, rings = carry
        return jnp.zeros_like(pending), jax.tree.map(jnp.zeros_like, rings)

    return jax.lax.while_loop(lambda carry: carry[0], turn, (start, rings))[1]


def _clear_forward(start: Bool[Array, ""], rings: Tree) -> tuple[Tree, Array]:
    return clear_at_start(start, rings), start


def _clear_backward(start: Array, cotangent: Tree) -> tuple[None, Tree]:
    return None, jax.tree.map(lambda g: jnp.where(start, 0.0, g), cotangent)


clear_at_start.defvjp(_clear_forward, _clear_backward)
