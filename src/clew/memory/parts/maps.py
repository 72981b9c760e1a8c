"""How a memory reads an episode: attention, gates, decay."""

from collections.abc import Mapping
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from clew.errors import require_choice

Kind = Literal["attention", "keep", "gate"]
KINDS = ("attention", "keep", "gate")


class MemoryMap(eqx.Module):
    """One quantity at every step of an episode.

    `kind` says what `values` are and how they are plotted:

    - "attention" [units, time, time]: the weight that step t gives to what was read at step s,
      for every head; rows are t, columns s, zero for s > t.
    - "keep" [time, units]: the factor in [0, 1] by which step t multiplies the previous content.
      The product over s + 1 .. t says how much of what was held at s is left at t.
    - "gate" [time, units]: any other number of each step, such as how far a gate is open.

    Raises:
        UserError: for an unknown kind.
    """

    values: Array
    kind: Kind = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_choice("kind", self.kind, KINDS)


def prefixed(prefix: str, maps: Mapping[str, MemoryMap]) -> dict[str, MemoryMap]:
    """The same maps with a prefix before each name, such as that of a layer."""
    return {f"{prefix}{name}": found for name, found in maps.items()}


def left(keep: Float[Array, "time units"]) -> Float[Array, "time time"]:
    """How much of what was held at s is left at t: the mean over units of keep[s+1] .. keep[t].

    Zero for s > t, one for s = t. Computed as a running product along t for every s, without
    logarithms, so that a factor of exactly 0 needs no special case.

    Args:
        keep: factors in [0, 1].
    """
    time = len(keep)
    first = jnp.eye(time, dtype=keep.dtype)[:, :, None]

    def one(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        factors, opened = inputs
        now = before * factors[None] + opened
        return now, jnp.mean(now, axis=1)

    nothing = jnp.zeros((time, keep.shape[1]), keep.dtype)
    return jax.lax.scan(one, nothing, (keep, jnp.broadcast_to(first, (time, *nothing.shape))))[1]
