"""A chunk for halting blocks with recurrent gates: one observation after another.

The plain gradient of such a loop would add to every weight at every reading, and store the whole
window of every observation. Here the loop is differentiated only with respect to what it carries;
the parameters get their gradient afterwards, from all observations at once, as in any chunk. That
is possible because no gradient passes into the inputs of earlier steps (`gradient="current"`): what
an attention remembers is then a constant in the loop.

The rings of all readings have the same position. `Windows` holds their keys and values in order of
time, with room for the chunk, so that everything a step may see is in one slice.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import State, select
from clew.memory.parts.attention import Band, WindowState, join_chunk
from clew.memory.parts.halting import Halting, Pondering
from clew.memory.parts.stack import WindowLayers

Gates = tuple[tuple[State, State], ...]
Banks = tuple[WindowState, ...]
"""For each layer the rings of all readings, along a first axis."""


class Windows(NamedTuple):
    """The keys and values that may be attended to, for each layer: the rings', then the chunk's."""

    keys: tuple[Float[Array, "steps heads past_and_time head"], ...]
    values: tuple[Float[Array, "steps heads past_and_time head"], ...]


class Block(NamedTuple):
    """The layers that are applied at every reading, and how often."""

    layers: WindowLayers
    halting: Halting


class Outcome(NamedTuple):
    """The results of a chunk."""

    gates: Gates
    """After the last observation."""
    blend: Float[Array, "time n"]
    readings: Float[Array, " time"]
    remainder: Float[Array, " time"]
    inputs: Float[Array, "time layers steps n"]
    """Of every layer at every reading; constants through which no gradient passes."""


class _Nudges(NamedTuple):
    """Zeros that are added to the results of a reading, so that both have the same gradient."""

    stream: Float[Array, "time steps n"]
    probability: Float[Array, "time steps"]
    gates: Any  # Gates, each leaf [time, steps, ...]


class _Kept(NamedTuple):
    """What the backward pass needs from the forward pass."""

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
    bands = _cut_bands(block.layers, banks, starts)
    initial = _initial_gates(block)

    def one(carry: tuple[Gates, Windows], inputs: Any) -> tuple:
        (gates, windows), (t, stream, where, start) = carry, inputs
        gates = select(start, initial, gates)
        after = _ponder(block, bands, windows, gates, stream, where, t, None)
        new, before = after.gates
        windows = _add(block.layers, windows, after.inputs, t)
        outputs = (after.blend, after.readings, after.remainder, after.inputs, before)
        return (new, windows), outputs

    times = jnp.arange(len(starts), dtype=jnp.int32)
    (gates, windows), outputs = jax.lax.scan(
        one, (gates, _past(bands, banks)), (times, streams, where, starts)
    )
    blend, readings, remainder, inputs, before = outputs
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
    outputs = cotangent[0]
    bands, initial = _cut_bands(block.layers, banks, starts), _initial_gates(block)
    times = jnp.arange(len(starts), dtype=jnp.int32)

    def again(gates: Gates, streams: Array, nudges: _Nudges) -> tuple:
        """The loop with the remembered inputs as constants."""

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
        (outputs.gates, (outputs.blend, outputs.readings, outputs.remainder))
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
    seen = [_seen_at(band, t) for band in bands]
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
            old_keys, old_values = (
                _rows_before(rows[number], visible, t) for rows in (keys, values)
            )
            attended = layer.attention.attend(y, old_keys, old_values, visible)
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


def _cut_bands(layers: WindowLayers, banks: Banks, starts: Bool[Array, " time"]) -> list[Band]:
    """One for each layer."""
    windows = [layer.attention.window for layer in layers]
    return [
        Band.cut(bank.position[0], bank.length[0], starts, window, window)
        for bank, window in zip(banks, windows, strict=True)
    ]


def _past(bands: list[Band], banks: Banks) -> Windows:
    """The keys and values from before the chunk, and zeros for the chunk."""
    keys = [_room(band, bank.keys) for band, bank in zip(bands, banks, strict=True)]
    values = [_room(band, bank.values) for band, bank in zip(bands, banks, strict=True)]
    return Windows(tuple(keys), tuple(values))


def _add(
    layers: WindowLayers, windows: Windows, inputs: Float[Array, "layers steps n"], t: Array
) -> Windows:
    """The windows with the keys and values of the t-th observation."""
    keys, values = [], []
    for layer, old_keys, old_values, rows in zip(layers, *windows, inputs, strict=True):
        key, value = jax.vmap(layer.attention.keys_values)(rows)
        at = layer.attention.window + t
        keys.append(old_keys.at[:, :, at].set(key))
        values.append(old_values.at[:, :, at].set(value))
    return Windows(tuple(keys), tuple(values))


def _seen_at(band: Band, t: Array) -> Bool[Array, " window"]:
    """Which of the steps before the t-th are of its episode."""
    near = jax.lax.dynamic_slice_in_dim(band.episodes, t, band.window + 1)
    return near[:-1] == near[-1]


def _rows_before(
    rows: Float[Array, "heads past_and_time head"], visible: Bool[Array, " window"], t: Array
) -> Float[Array, "heads window head"]:
    """The rows before the t-th, zeros for those that it does not see, whatever they are."""
    near = jax.lax.dynamic_slice_in_dim(rows, t, len(visible), axis=1)
    return jnp.where(jnp.broadcast_to(visible[None, :, None], near.shape), near, 0.0)


def _room(band: Band, rings: Array) -> Array:
    rows = jnp.zeros((rings.shape[1], band.time, rings.shape[3]), rings.dtype)
    return jax.vmap(partial(join_chunk, band), in_axes=(0, None))(rings, rows)
