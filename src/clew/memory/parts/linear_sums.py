"""The sums over time of linear attention: by steps, by square products, compensated."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import select
from clew.memory.parts.products import exact_einsum

PIECE = 64
"""Steps of a square product; larger ones cost more than they save."""


class LinearState(NamedTuple):
    """One layer's state: the sum of outer products C, and the sum of keys s."""

    matrix: Float[Array, "heads head head"]
    normaliser: Float[Array, "heads head"]
    lost: tuple[Array, ...] = ()
    """What rounding took off both sums, if the memory compensates for it."""

    def add(self, matrix: Array, normaliser: Array) -> "LinearState":
        """The sums with one more term each."""
        if not self.lost:
            return LinearState(self.matrix + matrix, self.normaliser + normaliser)
        c, c_lost = _add_exactly(self.matrix, matrix + self.lost[0])
        s, s_lost = _add_exactly(self.normaliser, normaliser + self.lost[1])
        return LinearState(c, s, (c_lost, s_lost))

    def read(
        self, query: Float[Array, "time heads head"], going_on: Bool[Array, " time"]
    ) -> tuple[Float[Array, "time heads head"], Float[Array, "time heads"]]:
        """C q and s . q: zeros where an episode has started since.

        Selected twice, so that a NaN in the state stays out of the values and of the gradients.
        """
        matrix, normaliser, lost = self
        if lost:  # as the next addition does
            matrix, normaliser = matrix + lost[0], normaliser + lost[1]
        mask = going_on[:, None, None]
        asking = jnp.where(mask, query, 0.0)
        above = exact_einsum("hvm,thm->thv", matrix, asking)
        below = exact_einsum("hm,thm->th", normaliser, asking)
        return jnp.where(mask, above, 0.0), jnp.where(going_on[:, None], below, 0.0)


def _add_exactly(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what rounding took off it."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def read_piece(
    epsilon: float, state: LinearState, inputs: tuple[Array, Array, Array, Array]
) -> tuple[LinearState, Float[Array, "time heads head"]]:
    """Some steps at once: what they see of each other, and what they see of the state.

    Args:
        epsilon: added to the denominator.
        state: before them.
        inputs: phi(q), phi(k) and v [time, heads, head], and where episodes start.
    """
    query, key, value, starts = inputs
    fine = jnp.all(jnp.isfinite(key) & jnp.isfinite(value), axis=(1, 2))
    key, value = (jnp.where(jnp.isfinite(x), x, 0.0) for x in (key, value))
    episode = jnp.cumsum(starts.astype(jnp.int32))
    seen = jnp.tril(episode[:, None] == episode[None, :])
    weights = exact_einsum("thm,jhm->htj", query, key)
    weights = jnp.where(jnp.broadcast_to(seen, weights.shape), weights, 0.0)
    empty = jax.tree.map(jnp.zeros_like, state)
    state = select(starts[0], empty, state)
    going_on = episode == episode[0]
    old_above, old_below = state.read(query, going_on)
    above = exact_einsum("htj,jhv->thv", weights, value) + old_above
    below = jnp.sum(weights, axis=-1).T + old_below + epsilon
    last = (episode == episode[-1])[:, None, None]
    key, value = jnp.where(last, key, 0.0), jnp.where(last, value, 0.0)
    kept = select(going_on[-1], state, empty)
    after = kept.add(exact_einsum("jhv,jhm->hvm", value, key), jnp.sum(key, axis=0))
    # Zeros replaced what was not finite: the steps that see it, and no others, become NaN.
    # Steps that fill a piece up ask for nothing: 0 / 0 without an epsilon.
    below = jnp.where(below == 0.0, 1.0, below)
    spoiled = jnp.any(seen & ~jnp.broadcast_to(fine, seen.shape), axis=1)
    attended = jnp.where(spoiled[:, None, None], jnp.nan, above / below[:, :, None])
    after = jax.tree.map(lambda s: jnp.where(spoiled[-1], jnp.nan, s), after)
    return after, attended
