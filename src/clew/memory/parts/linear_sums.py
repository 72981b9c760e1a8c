"""The sums over time of linear attention: by steps, by square products, compensated."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from clew.memory.base import select
from clew.memory.parts.chunkwise import without_nonfinite
from clew.memory.parts.products import exact_einsum

PIECE = 64
"""Steps of a square product; larger ones cost more than they save."""


class LinearState(NamedTuple):
    """One layer's state: the sum of outer products C, and the sum of keys s."""

    matrix: Float[Array, "heads head head"]
    normaliser: Float[Array, "heads head"]
    lost: tuple[Array, ...] = ()
    """The rounding errors of both sums, if the memory compensates for them."""

    def add(self, matrix: Array, normaliser: Array) -> "LinearState":
        """The sums with one more term each."""
        if not self.lost:
            return LinearState(self.matrix + matrix, self.normaliser + normaliser)
        c, c_lost = _add_exactly(self.matrix, matrix + self.lost[0])
        s, s_lost = _add_exactly(self.normaliser, normaliser + self.lost[1])
        return LinearState(c, s, (c_lost, s_lost))

    def read(
        self, query: Float[Array, "time heads head"]
    ) -> tuple[Float[Array, "time heads head"], Float[Array, "time heads"]]:
        """C q and s . q."""
        matrix, normaliser, lost = self
        if lost:  # as the next addition does
            matrix, normaliser = matrix + lost[0], normaliser + lost[1]
        above = exact_einsum("hvm,thm->thv", matrix, query)
        return above, exact_einsum("hm,thm->th", normaliser, query)


def _add_exactly(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and its rounding error."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def read_piece(
    epsilon: float, state: LinearState, inputs: tuple[Array, Array, Array, Array]
) -> tuple[LinearState, Float[Array, "time heads head"]]:
    """Several steps at once: what they see of each other, and what they see of the state.

    Args:
        epsilon: added to the denominator.
        state: before them.
        inputs: phi(q), phi(k) and v [time, heads, head], and where episodes start.
    """
    query, key, value, starts = inputs
    fine = without_nonfinite(state, (key, value), starts)
    state, (key, value) = fine.state, fine.inputs
    episode = jnp.cumsum(starts.astype(jnp.int32))
    seen = jnp.tril(episode[:, None] == episode[None, :])
    weights = exact_einsum("thm,jhm->htj", query, key)
    weights = jnp.where(jnp.broadcast_to(seen, weights.shape), weights, 0.0)
    going_on = episode == 0
    old_above, old_below = state.read(jnp.where(going_on[:, None, None], query, 0.0))
    above = exact_einsum("htj,jhv->thv", weights, value) + old_above
    below = jnp.sum(weights, axis=-1).T + old_below + epsilon
    last = (episode == episode[-1])[:, None, None]
    key, value = jnp.where(last, key, 0.0), jnp.where(last, value, 0.0)
    kept = select(going_on[-1], state, jax.tree.map(jnp.zeros_like, state))
    after = kept.add(exact_einsum("jhv,jhm->hvm", value, key), jnp.sum(key, axis=0))
    # Padding steps have zero queries: 0 / 0 without an epsilon.
    below = jnp.where(below == 0.0, 1.0, below)
    return fine.spoil(above / below[:, :, None], after)
