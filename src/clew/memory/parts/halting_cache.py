"""What the layers of a halting block remember, at every reading, of the steps of a chunk.

The rings of all readings stand at the same place; `Windows` holds their keys and values in the
order of time, with room for the chunk, so that a step finds what it may see in one slice.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.parts.attention import Band, WindowState, join_chunk
from clew.memory.parts.layer import Layer

Banks = tuple[WindowState, ...]
"""For each layer the rings of all readings, along a first axis."""


class Windows(NamedTuple):
    """What may be attended to, the rows of the rings before those of the chunk, for each layer."""

    keys: tuple[Float[Array, "steps heads past_and_time head"], ...]
    values: tuple[Float[Array, "steps heads past_and_time head"], ...]


def cut_bands(layers: tuple[Layer, ...], banks: Banks, starts: Bool[Array, " time"]) -> list[Band]:
    """One for each layer."""
    windows = [layer.attention.window for layer in layers]  # pyright: ignore[reportAttributeAccessIssue]
    return [
        Band.cut(bank.position[0], bank.length[0], starts, window, window)
        for bank, window in zip(banks, windows, strict=True)
    ]


def past(bands: list[Band], banks: Banks) -> Windows:
    """What is remembered before the chunk, and zeros for the chunk."""
    keys = [_room(band, bank.keys) for band, bank in zip(bands, banks, strict=True)]
    values = [_room(band, bank.values) for band, bank in zip(bands, banks, strict=True)]
    return Windows(tuple(keys), tuple(values))


def add(
    layers: tuple[Layer, ...],
    windows: Windows,
    inputs: Float[Array, "layers steps n"],
    t: Array,
) -> Windows:
    """The windows with the keys and values of the t-th observation."""
    keys, values = [], []
    for layer, old_keys, old_values, rows in zip(layers, *windows, inputs, strict=True):
        key, value = jax.vmap(layer.attention.keys_values)(rows)  # pyright: ignore[reportAttributeAccessIssue]
        at = layer.attention.window + t  # pyright: ignore[reportAttributeAccessIssue]
        keys.append(old_keys.at[:, :, at].set(key))
        values.append(old_values.at[:, :, at].set(value))
    return Windows(tuple(keys), tuple(values))


def seen_at(band: Band, t: Array) -> Bool[Array, " window"]:
    """Which of the steps before the t-th are of its episode."""
    near = jax.lax.dynamic_slice_in_dim(band.episodes, t, band.window + 1)
    return near[:-1] == near[-1]


def rows_before(
    rows: Float[Array, "heads past_and_time head"], visible: Bool[Array, " window"], t: Array
) -> Float[Array, "heads window head"]:
    """The rows before the t-th, zeros for those that it does not see, whatever they are."""
    near = jax.lax.dynamic_slice_in_dim(rows, t, len(visible), axis=1)
    return jnp.where(jnp.broadcast_to(visible[None, :, None], near.shape), near, 0.0)


def _room(band: Band, rings: Array) -> Array:
    rows = jnp.zeros((rings.shape[1], band.time, rings.shape[3]), rings.dtype)
    return jax.vmap(partial(join_chunk, band), in_axes=(0, None))(rings, rows)
