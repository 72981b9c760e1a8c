"""The Universal Transformer: one block of layers, applied as often as each observation needs."""

from typing import Any, ClassVar, NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.memory.base import (
    State,
    check_episode,
    check_state,
    check_step_input,
    check_unroll_input,
    select,
)
from clew.memory.parts.attention import WindowState
from clew.memory.parts.blocks import Linear, with_drawn_bias
from clew.memory.parts.halting import Blend, Halting, Pondering, Unreached
from clew.memory.parts.layer import Layer, LayerOptions, LayerState, NormPlace
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.positions import count_positions, encode
from clew.memory.parts.sequential_halting import Block, sequential_halting
from clew.memory.parts.stack import (
    LayeredMemory,
    WindowLayers,
    WindowOptions,
    share_biases,
    window_stack,
)

Metrics = dict[str, Array]


class UniversalState(NamedTuple):
    """The inputs of every layer at every pondering step, and the states of its gates."""

    banks: tuple[WindowState, ...]
    """For each layer the rings of all pondering steps, along a first axis."""
    gates: tuple[tuple[State, State], ...]
    position: Int[Array, ""]
    """Of the next observation in its episode."""


class UniversalOptions(WindowOptions, total=False):
    """The options of every `AbstractUniversal`; `universal_block` describes them."""

    max_steps: int
    threshold: float
    halting: bool
    coordinates: bool


class AbstractUniversal(LayeredMemory):
    """The recurrence of the Universal Transformer, for any block of layers over windows.

        u_n = s_{n-1} + P_t + P_n     s_n = block(u_n)     y_t = sum_n w_n s_n

    with the weights w_n and the number of readings from `Halting`.

    The n-th reading of an observation attends to the n-th readings of earlier observations. Where
    an earlier one halted sooner, its last s is used.

    A chunk ponders until all of its observations have halted; the readings after that cost
    nothing, neither forward nor backward.
    """

    halting: Halting
    coordinates: bool = eqx.field(static=True)
    shardable: ClassVar[bool] = False  # Equinox's checkpointed loop refuses to be traced there

    def set_block(
        self,
        input_size: int,
        embedding: Linear | None,
        layers: WindowLayers,
        halting: Halting,
        coordinates: bool,
    ) -> None:
        """Sets every field from the output of `universal_block`; for constructors."""
        self.set_layers(input_size, embedding, layers)
        self.halting, self.coordinates = halting, coordinates

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The readings N of every observation, and N + w_N, which a loss may penalise."""
        return self.halting.metric_names

    def init_state(self) -> UniversalState:

        def rings(layer: Layer) -> WindowState:
            empty = layer.attention.init_state()
            return jax.tree.map(lambda x: jnp.stack([x] * self.halting.max_steps), empty)

        gates = tuple((*layer.init_state()[1:],) for layer in self.layers)
        banks = tuple(rings(layer) for layer in self.layers)
        return UniversalState(banks, gates, jnp.array(0, jnp.int32))  # pyright: ignore[reportArgumentType]

    def step(
        self, state: UniversalState, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[UniversalState, Float[Array, " out"]]:
        """One observation x_t: s_0 = e, then u_n and s_n until it halts, and y_t."""
        x = check_step_input(self, x, start, state)
        state, after = self._read_one(select(start, self.init_state(), state), x)
        return state, after.blend

    def unroll(
        self, state: UniversalState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[UniversalState, Float[Array, "time out"]]:
        """A chunk, all observations at once; one after another where a gate is recurrent."""
        return self.unroll_with_metrics(state, xs, starts)[:2]

    def unroll_with_metrics(
        self, state: UniversalState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[UniversalState, Float[Array, "time out"], Metrics]:
        xs = check_unroll_input(self, xs, starts, state)
        if not any(layer.recurrent for layer in self.layers):
            return self._read_together(state, xs, starts)
        if all(layer.attention.gradient == "current" for layer in self.layers):
            return self._read_in_order(state, xs, starts)

        def one(state: UniversalState, inputs: tuple[Array, Array]) -> tuple:
            x, start = inputs
            state, after = self._read_one(select(start, self.init_state(), state), x)
            return state, (after.blend, self.halting.metrics(after.readings, after.remainder))

        state, (ys, metrics) = jax.lax.scan(one, state, (xs, starts))
        return state, ys, metrics

    def _read_one(
        self, state: UniversalState, x: Float[Array, " in"]
    ) -> tuple[UniversalState, Pondering]:
        """One observation that does not open an episode."""
        layers, going_on = share_biases(self.layers), jnp.zeros((), bool)

        def block(n: Array, gates: Any, u: Array, running: Array) -> tuple:
            inputs, new_gates, s = [], [], u
            for layer, banks, gate in zip(layers, state.banks, gates, strict=True):
                inputs.append(s)
                new, s = layer.step(LayerState(_at(banks, n), *gate), s, going_on)
                new_gates.append((*new[1:],))
            return tuple(new_gates), jnp.stack(inputs), s

        s_0, p_t = self._enter(x, state.position)
        after = self.halting.ponder(s_0, p_t, block, state.gates, len(layers))
        banks = tuple(
            jax.vmap(layer.attention.write, in_axes=(0, 0, None))(bank, inputs, going_on)
            for layer, bank, inputs in zip(layers, state.banks, after.inputs, strict=True)
        )
        new = UniversalState(banks, after.gates, state.position + 1)  # pyright: ignore[reportArgumentType]
        return new, after

    def _read_together(
        self, state: UniversalState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[UniversalState, Float[Array, "time out"], Metrics]:
        """A chunk, its n-th readings at once."""
        layers = share_biases(self.layers)
        positions, position = count_positions(state.position, starts)

        def block(n: Array, gates: State, u: Array, running: Array) -> tuple:
            inputs, s = [], u
            for layer, banks in zip(layers, state.banks, strict=True):
                s = jnp.where(running[:, None], s, u)
                inputs.append(s)
                s = layer.unroll(LayerState(_at(banks, n), (), ()), s, starts)[1]
            return gates, jnp.stack(inputs), s

        s_0, p_t = self._enter(xs, positions)
        after = self.halting.ponder(s_0, p_t, block, (), len(layers))
        new = UniversalState(self._remember(state, after.inputs, starts), state.gates, position)
        return new, after.blend, self.halting.metrics(after.readings, after.remainder)

    def _read_in_order(
        self, state: UniversalState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[UniversalState, Float[Array, "time out"], Metrics]:
        """A chunk, one observation after another, with the gradients of all of them at once."""
        positions, position = count_positions(state.position, starts)
        s_0, p_t = self._enter(xs, positions)
        block = Block(share_biases(self.layers), self.halting)
        read = sequential_halting(block, state.banks, state.gates, s_0, p_t, starts)
        inputs = jnp.moveaxis(jax.lax.stop_gradient(read.inputs), 0, 2)
        new = UniversalState(self._remember(state, inputs, starts), read.gates, position)
        return new, read.blend, self.halting.metrics(read.readings, read.remainder)

    def _enter(self, x: Array, position: Array) -> tuple[Array, Array | None]:
        """s_0 = e, and P_t with coordinates."""
        e = self.embed(x)
        where = encode(position, self.output_size, e.dtype) if self.coordinates else None
        return e, where

    def _remember(
        self, state: UniversalState, inputs: Array, starts: Bool[Array, " time"]
    ) -> tuple[WindowState, ...]:
        """The rings after a chunk of inputs [layers, steps, time, n]."""
        return tuple(
            jax.vmap(layer.attention.remember, in_axes=(0, 0, None))(bank, rows, starts)
            for layer, bank, rows in zip(self.layers, state.banks, inputs, strict=True)
        )

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """Each layer's attention, the mean over the readings taken, and how many those were."""

        def one(state: UniversalState, x: Array) -> tuple[UniversalState, tuple[Array, Array]]:
            state, after = self._read_one(state, x)
            return state, (after.inputs, after.readings)

        _, (inputs, readings) = jax.lax.scan(one, self.init_state(), check_episode(self, xs))
        number = jnp.arange(self.halting.max_steps, dtype=readings.dtype)[None, :]
        share = jnp.where(number < readings[:, None], 1.0 / readings[:, None], 0.0)
        found = {"readings": MemoryMap(readings[:, None], "gate")}
        for index, layer in enumerate(share_biases(self.layers)):
            maps = jax.vmap(layer.attention.maps)(jnp.moveaxis(inputs[:, index], 1, 0))
            mean = jnp.einsum("rhts,tr->hts", maps["attention"].values, share)
            found[f"layer {index + 1}: attention"] = MemoryMap(mean, "attention")
        return found

    def refresh(self, state: UniversalState) -> UniversalState:
        check_state(self, state)
        banks = tuple(
            jax.vmap(layer.attention.refresh)(bank)
            for layer, bank in zip(self.layers, state.banks, strict=True)
        )
        return state._replace(banks=banks)


def _at(banks: WindowState, number: Int[Array, ""]) -> WindowState:
    return jax.tree.map(lambda x: x[number], banks)


@takes_options_of(window_stack, num_layers=1)
def universal_block(
    input_size: int,
    key: PRNGKeyArray,
    layer: LayerOptions,
    blend: Blend = "mean",
    unreached: Unreached = "copy",
    max_steps: int = 6,
    threshold: float = 0.9,
    halting: bool = True,
    coordinates: bool = True,
    **options: Unpack[WindowOptions],
) -> tuple[Linear | None, WindowLayers, Halting, bool]:
    """Builds the parts of an `AbstractUniversal`.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        layer: options of each layer of the block.
        blend: how the readings are combined, see `Halting`.
        unreached: what later observations see of an observation at readings after it halted: a
            "copy" of its last s, as published, or "zero".
        max_steps: maximum number of readings of an observation.
        threshold: sum of halting probabilities beyond which an observation halts, 0 to 1.
        halting: False applies the block max_steps times to every observation and returns the last
            output.
        coordinates: whether P_t and P_n are added; the attention's relative positions are always
            there.
        options: passed to `window_stack`.

    Returns:
        Embedding, layers, halting, coordinates.
    """
    embedding, layers = window_stack(input_size, key, layer=layer, spare_keys=1, **options)
    init = options.get("init", "orthogonal")
    unit_key = jax.random.split(key, 2 + len(layers))[1]
    unit = Linear(layers[0].size, 1, key=unit_key, init=init) if halting else None
    return embedding, layers, Halting(unit, max_steps, threshold, blend, unreached), coordinates


class Universal(AbstractUniversal):
    """A block of layers shared by all depths, with adaptive halting for every observation.

        e = x W + b
        u_n = s_{n-1} + P_t + P_n        s_0 = e,  P the sinusoids of the position and of n
        y = norm_1(u + attention(u))        in each layer
        s = norm_2(y + mlp(y))

    halted and blended by `Halting`, with `WindowAttention` over the n-th readings of
    t - window .. t.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is max_steps rings of window + 1
    inputs with their keys and values.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        norm: "after" as above, "before", "around" or "none", see `Layer`.
        options: passed to `universal_block`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dehghani et al. (2019), section 2; Graves (2016), sections 2-2.2; Makkink (2021),
    section 2.2.7.

    Deviations: causal, with relative positions over a window, as in all of Makkink's models; the
    weights of the readings sum to 1 (in the listing of Dehghani et al. they do not). Makkink's
    published code drops the coordinates, blends as in that listing, and fills with zeros, see
    `clew.lab.studies.makkink.models.PublishedUniversal`.
    """

    @takes_options_of(universal_block)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        norm: NormPlace = "after",
        **options: Unpack[UniversalOptions],
    ):
        layer: LayerOptions = {"gate": "residual", "norm": norm}
        self.set_block(input_size, *universal_block(input_size, key, layer, **options))
        if self.embedding is not None and not self.coordinates:
            self.embedding = with_drawn_bias(self.embedding, key=key)
