"""Recurrences over a chunk of time: with recomputed states, or all in parallel."""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Carry = TypeVar("Carry", bound=PyTree)


def checkpointed_scan(
    f: Callable[[Carry, PyTree], tuple[Carry, PyTree]], init: Carry, inputs: PyTree
) -> tuple[Carry, PyTree]:
    """`jax.lax.scan` that stores one carry per chunk for the backward pass, not one per step.

    A chunk is about sqrt(time) steps, and the backward pass recomputes its carries, so memory is
    O(sqrt(time) carries) instead of O(time carries), at the cost of one more forward pass.

    Args:
        f: maps (carry, input of one step) to (carry, output of one step). Inputs that are all zero
            must leave the carry unchanged, since the last chunk is padded with them.
        init: the carry before the first step.
        inputs: leaves [time, ...].

    Returns:
        The carry after the last step, and the outputs [time, ...].
    """
    time = jax.tree.leaves(inputs)[0].shape[0]
    # A bound method of a module cannot be hashed, as jax.checkpoint and scan need; a closure can.
    step = jax.checkpoint(lambda carry, value: f(carry, value), prevent_cse=False)

    def one_chunk(carry: Carry, steps: PyTree) -> tuple[Carry, PyTree]:
        return jax.lax.scan(step, carry, steps)

    return scan_pieces(one_chunk, init, inputs, round(math.sqrt(time)))


def scan_pieces(
    f: Callable[[Carry, PyTree], tuple[Carry, PyTree]], init: Carry, inputs: PyTree, size: int
) -> tuple[Carry, PyTree]:
    """Scans over pieces of `size` steps; the backward pass recomputes the inside of a piece.

    Args:
        f: maps (carry, inputs [size, ...]) to (carry, outputs [size, ...]). Inputs that are all
            zero must leave the carry unchanged, since the last piece is padded with them.
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


def linear_scan(
    keep: Carry, add: Carry, init: Carry, starts: Bool[Array, " time"] | None = None
) -> Carry:
    """The states s_t = keep_t * s_{t-1} + add_t of all steps, in parallel.

    Two consecutive steps are one step of the same kind, s -> keep_2 keep_1 s + (keep_2 add_1 +
    add_2), so 2 log2(time) rounds of multiplications replace the steps. Nothing is divided. A start
    selects instead of multiplying, so nothing before it leaks through, even if it is not finite.

    Args:
        keep: leaves [time, ...], that broadcast against those of `add`.
        add: leaves [time, ...].
        init: the state before the first step.
        starts: where the state before a step counts as zero.

    Returns:
        The states after every step, [time, ...].

    Source: Blelloch (1990), Prefix sums and their applications.
    """
    first = jax.tree.leaves(add)[0]
    flags = jnp.zeros(len(first), bool) if starts is None else starts

    def without(started: Array, tree: Carry) -> Carry:
        if starts is None:
            return tree

        def one(x: Array) -> Array:
            return jnp.where(started.reshape(-1, *[1] * (x.ndim - 1)), 0.0, x)

        return jax.tree.map(one, tree)

    def join(left: tuple, right: tuple) -> tuple:
        earlier, keep_1, add_1 = left
        later, keep_2, add_2 = right
        keep_1, add_1 = without(later, keep_1), without(later, add_1)
        added = jax.tree.map(lambda k, a, b: k * a + b, keep_2, add_1, add_2)
        return earlier | later, jax.tree.map(jnp.multiply, keep_2, keep_1), added

    old = jax.tree.map(lambda s: s[None], init)
    _, keep_1, add_1 = (jax.tree.map(lambda x: x[:1], tree) for tree in (flags, keep, add))
    opened = jax.tree.map(lambda k, s, a: k * s + a, keep_1, without(flags[:1], old), add_1)
    add = jax.tree.map(lambda o, a: jnp.concatenate([o, a[1:]]), opened, add)
    return jax.lax.associative_scan(join, (flags, keep, add))[2]
