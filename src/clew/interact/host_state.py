"""Where acting in Gymnasium environments stands, as a checkpoint holds it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, UInt32

from clew.memory.base import State


class HostState(NamedTuple):
    """What of acting can be kept; the environments themselves cannot."""

    memory: State
    """Before what the environments show next, each leaf [B, ...]."""
    statistics: PyTree[UInt32[Array, "..."]]
    """What the wrappers have learned, `packed`."""


def packed(statistics: PyTree[np.ndarray]) -> PyTree[UInt32[Array, "..."]]:
    """Arrays of float64, which JAX would round, as pairs of 32 bits on a new last axis."""

    def pack(array: np.ndarray) -> Array:
        whole = np.asarray(array, np.float64)
        return jnp.asarray(np.frombuffer(whole.tobytes(), np.uint32).reshape(*whole.shape, 2))

    return jax.tree.map(pack, statistics)


def unpacked(statistics: PyTree[UInt32[Array, "..."]]) -> PyTree[np.ndarray]:
    """What `packed` was given."""

    def unpack(array: Array) -> np.ndarray:
        bits = np.asarray(array)
        return np.frombuffer(bits.tobytes(), np.float64).reshape(bits.shape[:-1])

    return jax.tree.map(unpack, statistics)


def of_seeds(trees: Sequence[Any]) -> Any:
    """One tree of all seeds: theirs as first axis, unless there is only one."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def environment_seed(*entropy: int) -> int:
    """The seed of a stream of environments, from whole numbers that tell it from all others."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
