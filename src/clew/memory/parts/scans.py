"""Recurrences over a chunk of time whose states are recomputed and not stored."""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

Carry = TypeVar("Carry", bound=PyTree)


def checkpointed_scan(
    f: Callable[[Carry, PyTree], tuple[Carry, PyTree]],
    init: Carry,
    inputs: PyTree,
    chunk: int | None = None,
) -> tuple[Carry, PyTree]:
    """`jax.lax.scan` that keeps one carry a chunk for the backward pass, not one a step.

    The backward pass runs a chunk again to have its carries, so that memory is
    O((time / chunk + chunk) carries) instead of O(time carries), for one more forward pass.

    Args:
        f: maps (carry, input of one step) to (carry, output of one step). Inputs that are all
            zero must leave the carry as it is, for the last chunk is filled up with them.
        init: the carry before the first step.
        inputs: leaves [time, ...].
        chunk: steps between two kept carries; about sqrt(time) by default.

    Returns:
        The carry after the last step, and the outputs [time, ...].
    """
    time = jax.tree.leaves(inputs)[0].shape[0]
    size = chunk or max(1, round(math.sqrt(time)))
    # A bound method of a module cannot be hashed, as jax.checkpoint and scan need; a closure can.
    step = jax.checkpoint(lambda carry, value: f(carry, value), prevent_cse=False)
    if time <= size:
        return jax.lax.scan(step, init, inputs)

    def one_chunk(carry: Carry, steps: PyTree) -> tuple[Carry, PyTree]:
        return jax.lax.scan(step, carry, steps)

    return scan_pieces(one_chunk, init, inputs, size)


def scan_pieces(
    f: Callable[[Carry, PyTree], tuple[Carry, PyTree]], init: Carry, inputs: PyTree, size: int
) -> tuple[Carry, PyTree]:
    """Scans over pieces of `size` steps; the backward pass recomputes what is inside a piece.

    Args:
        f: maps (carry, inputs [size, ...]) to (carry, outputs [size, ...]). Inputs that are all
            zero must leave the carry as it is, for the last piece is filled up with them.
        init: the carry before the first step.
        inputs: leaves [time, ...].
        size: steps in a piece; shorter chunks are one piece.

    Returns:
        The carry after the last step, and the outputs [time, ...].
    """
    time = jax.tree.leaves(inputs)[0].shape[0]
    size = min(size, time)
    count = -(-time // size)

    def cut(x: Array) -> Array:
        padded = jnp.pad(x, [(0, count * size - time)] + [(0, 0)] * (x.ndim - 1))
        return padded.reshape(count, size, *x.shape[1:])

    piece = jax.checkpoint(lambda carry, steps: f(carry, steps), prevent_cse=False)
    carry, outputs = jax.lax.scan(piece, init, jax.tree.map(cut, inputs))
    return carry, jax.tree.map(lambda y: y.reshape(count * size, *y.shape[2:])[:time], outputs)
