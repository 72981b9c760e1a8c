"""A chunk for blocks that halt and whose gates carry something on: one observation after another.

Left to itself, the gradient of such a loop would add to every weight at every reading, and keep
the whole window of every observation. Here the loop is differentiated only by what it carries; the
parameters get their gradient afterwards, from all observations at once, as in any chunk. That is
possible where no gradient passes into the inputs of earlier steps (`gradient="current"`): then
what an attention remembers is a constant to the loop.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import State, select
from clew.memory.parts.attention import Band
from clew.memory.parts.halting import Halting, Pondering
from clew.memory.parts.halting_cache import (
    Banks,
    Windows,
    add,
    cut_bands,
    past,
    rows_before,
    seen_at,
)
from clew.memory.parts.layer import Layer

Gates = tuple[tuple[State, State], ...]


class Block(NamedTuple):
    """What is applied at every reading, and how often that is."""

    layers: tuple[Layer, ...]
    halting: Halting


class Outcome(NamedTuple):
    """What a chunk comes to."""

    gates: Gates
    """After the last observation."""
    blend: Float[Array, "time n"]
    readings: Float[Array, " time"]
    remainder: Float[Array, " time"]
    inputs: Float[Array, "time layers steps n"]
    """Of every layer at every reading; constants, no gradient passes through them."""


class _Nudges(NamedTuple):
    """Zeros that are added to what a reading gives, so that their gradient is that of it."""

    stream: Float[Array, "time steps n"]
    probability: Float[Array, "time steps"]
    gates: Any  # Gates, each leaf [time, steps, ...]


class _Kept(NamedTuple):
    """What the backward pass needs of the forward one."""

    windows: Windows
    inputs: Float[Array, "time layers steps n"]
    gates: Any  # Gates before every reading, each leaf [time, steps, ...]
    readings: Float[Array, " time"]


def sequential_halting(
    block: Block,
    banks: Banks,
    gates: Gates,
    streams: Float[Array, "time n"],
    where: Float[Array, "time n"] | None,
    starts: Bool[Array, " time"],
) -> Outcome:
    """Reads a chunk, each observation until it halts.

    Args:
        block: with position biases in every layer, and `gradient="current"` in its attentions.
        banks: for each layer the rings of all readings, along a first axis.
        gates: what the gates carry.
        streams: what is to be read.
        where: the encoded positions, or None for no coordinates.
        starts: which observations open an episode.
    """
    return _read(block, banks, gates, streams, where, starts)[0]


def _read_and_keep(
    block: Block, banks: Banks, gates: Gates, streams: Array, where: Any, starts: Array
) -> tuple[Outcome, _Kept]:
    bands = cut_bands(block.layers, banks, starts)
    initial = _initial_gates(block)

    def one(carry: tuple[Gates, Windows], inputs: Any) -> tuple:
        (gates, windows), (t, stream, where, start) = carry, inputs
        gates = select(start, initial, gates)
        after = _ponder(block, bands, windows, gates, stream, where, t, None)
        new, before = after.gates
        windows = add(block.layers, windows, after.inputs, t)
        told = (after.blend, after.readings, after.remainder, after.inputs, before)
        return (new, windows), told

    times = jnp.arange(len(starts), dtype=jnp.int32)
    (gates, windows), told = jax.lax.scan(
        one, (gates, past(bands, banks)), (times, streams, where, starts)
    )
    blend, readings, remainder, inputs, before = told
    return Outcome(gates, blend, readings, remainder, inputs), _Kept(
        windows, inputs, before, readings
    )


_read = jax.custom_vjp(_read_and_keep)


def _forward(
    block: Block, banks: Banks, gates: Gates, streams: Array, where: Any, starts: Array
) -> tuple[tuple[Outcome, _Kept], tuple]:
    result = _read_and_keep(block, banks, gates, streams, where, starts)
    return result, (block, banks, gates, streams, where, starts, result[1])


def _backward(residuals: tuple, cotangent: tuple[Outcome, _Kept]) -> tuple:
    block, banks, gates, streams, where, starts, kept = residuals
    told = cotangent[0]
    bands, initial = cut_bands(block.layers, banks, starts), _initial_gates(block)
    times = jnp.arange(len(starts), dtype=jnp.int32)

    def again(gates: Gates, streams: Array, nudges: _Nudges) -> tuple:
        """The loop with what is remembered as a constant."""

        def one(gates: Gates, inputs: Any) -> tuple:
            t, stream, where, start, nudges = inputs
            gates = select(start, initial, gates)
            after = _ponder(block, bands, kept.windows, gates, stream, where, t, nudges)
            return after.gates[0], (after.blend, after.readings, after.remainder)

        return jax.lax.scan(one, gates, (times, streams, where, starts, nudges))

    steps = block.halting.max_steps
    nothing = _Nudges(
        jnp.zeros((len(streams), steps, streams.shape[1]), streams.dtype),
        jnp.zeros((len(streams), steps), streams.dtype),
        jax.tree.map(jnp.zeros_like, kept.gates),
    )
    _, carried_back = jax.vjp(again, gates, streams, nothing)
    d_gates, d_streams, received = carried_back(
        (told.gates, (told.blend, told.readings, told.remainder))
    )
    numbers, rest = eqx.partition(banks, eqx.is_inexact_array)

    def more(number: Array, sums: tuple[Block, Any]) -> tuple[Block, Any]:
        d_block, d_numbers = sums
        one = partial(_reading, number, rest=rest, kept=kept, starts=starts)
        _, back = jax.vjp(one, block, jax.tree.map(lambda x: x[number], numbers))
        of_block, of_numbers = back(jax.tree.map(lambda x: x[:, number], received))
        d_numbers = jax.tree.map(lambda all, x: all.at[number].set(x), d_numbers, of_numbers)
        return jax.tree.map(jnp.add, d_block, of_block), d_numbers

    last = jnp.max(kept.readings).astype(jnp.int32)
    zeros = jax.tree.map(jnp.zeros_like, (block, numbers))
    d_block, d_banks = jax.lax.fori_loop(0, last, more, zeros)
    return d_block, d_banks, d_gates, d_streams, None, None


_read.defvjp(_forward, _backward)


def _reading(
    number: Array, block: Block, numbers: Any, *, rest: Any, kept: _Kept, starts: Array
) -> _Nudges:
    """One reading of all observations, from inputs and gates as they were found."""
    banks = eqx.combine(numbers, jax.tree.map(lambda x: x[number], rest))
    inputs, gates = kept.inputs[:, :, number], jax.tree.map(lambda x: x[:, number], kept.gates)
    reached = (number < kept.readings)[:, None]
    y = inputs[:, 0]
    probability = block.halting.probability(y)
    new = []
    for i, (layer, bank, gate) in enumerate(zip(block.layers, banks, gates, strict=True)):
        x = jnp.where(reached, y, inputs[:, i])
        attended = layer.attention.unroll(bank, x, starts)[1]
        gate, y = jax.vmap(layer.join)(gate, x, attended, jnp.zeros_like(starts))
        new.append(gate)
    return _Nudges(y, probability, tuple(new))


def _ponder(
    block: Block,
    bands: list[Band],
    windows: Windows,
    gates: Gates,
    stream: Array,
    where: Array | None,
    t: Array,
    nudges: _Nudges | None,
) -> Pondering:
    """One observation; the `gates` of the outcome are those after it, and before every reading."""
    seen = [seen_at(band, t) for band in bands]
    steps = block.halting.max_steps

    def read(number: Array, carried: Any, u: Array, running: Array) -> tuple:
        gates, before = carried
        now = jax.lax.stop_gradient(gates)
        before = jax.tree.map(lambda all, x: all.at[number].set(x), before, now)
        inputs, new, y = [], [], u
        for layer, keys, values, visible, gate in zip(
            block.layers, *windows, seen, gates, strict=True
        ):
            inputs.append(y)
            past = (rows_before(rows[number], visible, t) for rows in (keys, values))
            attended = layer.attention.attend(y, *past, visible)  # pyright: ignore[reportAttributeAccessIssue]
            gate, y = layer.join(gate, y, attended, jnp.zeros((), bool))
            new.append(gate)
        new = tuple(new)
        if nudges is not None:
            y = y + nudges.stream[number]
            new = jax.tree.map(lambda x, nudge: x + nudge[number], new, nudges.gates)
        return (new, before), jnp.stack(inputs), y

    before = jax.tree.map(lambda x: jnp.zeros((steps, *x.shape), x.dtype), gates)
    return block.halting.ponder(
        stream,
        where,
        read,
        (gates, before),
        len(block.layers),
        nudges=None if nudges is None else nudges.probability,
    )


def _initial_gates(block: Block) -> Gates:
    return tuple((*layer.init_state()[1:],) for layer in block.layers)  # pyright: ignore[reportReturnType]
