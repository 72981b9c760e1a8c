"""The position of an observation in its episode, and its sinusoidal encoding."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int


def frequencies(size: int) -> np.ndarray:
    """The frequencies of `sinusoids`, in radians per step."""
    half = (size + 1) // 2
    return 10_000.0 ** (-2.0 * np.arange(half) / size)


def sinusoids(positions: np.ndarray, size: int) -> np.ndarray:
    """[sin | cos] of the positions at `size` / 2 frequencies from 1 down to 1 / 10,000.

    Source: Vaswani et al. (2017), section 3.5, in the order of Dai et al. (2019).
    """
    angles = positions[..., None] * frequencies(size)
    both = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return both[..., :size].astype(np.float32)


def encode(positions: Int[Array, "*time"], size: int, dtype: DTypeLike) -> Float[Array, "*time n"]:
    """`sinusoids` of positions that are known only when the program runs.

    Args:
        positions: of the observations.
        size: of each encoding.
        dtype: of the result; angles have at least float32, since half precision could not
            distinguish late positions.
    """
    wide = jnp.promote_types(dtype, jnp.float32)
    rates = jnp.asarray(frequencies(size), wide)
    angles = positions[..., None].astype(wide) * jnp.broadcast_to(
        rates, (*positions.shape, len(rates))
    )
    encoded = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return encoded[..., :size].astype(dtype)


def count_positions(
    position: Int[Array, ""], starts: Bool[Array, " time"]
) -> tuple[Int[Array, " time"], Int[Array, ""]]:
    """The position of every observation of a chunk in its episode, and that of the next one.

    Args:
        position: of the first observation, unless an episode starts with it.
        starts: which observations open an episode.
    """
    times = jnp.arange(len(starts), dtype=jnp.int32)
    last_start = jax.lax.cummax(jnp.where(starts, times, -1))
    positions = jnp.where(last_start < 0, position + times, times - last_start)
    return positions, positions[-1] + 1
