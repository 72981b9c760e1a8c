"""Recurrences over a chunk of time whose states are recomputed and not stored."""

import functools
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
    chunks = -(-time // size)
    padding = chunks * size - time

    def cut(x: Array) -> Array:
        widths = [(0, padding)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, widths).reshape(chunks, size, *x.shape[1:])

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one_chunk(carry: Carry, steps: PyTree) -> tuple[Carry, PyTree]:
        return jax.lax.scan(step, carry, steps)

    carry, outputs = jax.lax.scan(one_chunk, init, jax.tree.map(cut, inputs))
    joined = jax.tree.map(lambda y: y.reshape(chunks * size, *y.shape[2:])[:time], outputs)
    return carry, joined
