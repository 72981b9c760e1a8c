"""One block of layers applied again and again, as often as it chooses itself."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from clew.memory.base import AbstractMemory, State, check_step_input, check_unroll_input, select
from clew.memory.parts.attention import WindowState
from clew.memory.parts.blocks import Linear
from clew.memory.parts.halting import Halting, Pondering
from clew.memory.parts.layer import Layer, LayerState
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.positions import count_positions, encode
from clew.memory.parts.sequential_halting import Block, sequential_halting
from clew.memory.parts.stack import share_biases

Metrics = dict[str, Array]


class AdaptiveState(NamedTuple):
    """What every layer has read at every pondering step, and what its gates carry."""

    banks: tuple[WindowState, ...]
    """For each layer the rings of all pondering steps, along a first axis."""
    gates: tuple[tuple[State, State], ...]
    position: Int[Array, ""]
    """Of the next observation in its episode."""


class AdaptiveStack(AbstractMemory):
    """A block of layers that each observation goes through until it halts; see `Halting`.

    The n-th reading of an observation attends to the n-th readings of earlier ones. Where an
    earlier one halted before, its last s stands (`unreached="copy"`), or zeros do ("zero").

    A chunk ponders until all of its observations have halted; the readings after that cost
    nothing, neither forward nor backward.
    """

    embedding: Linear | None
    layers: tuple[Layer, ...]
    halting: Halting
    coordinates: bool = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    shardable: ClassVar[bool] = False  # Equinox's checkpointed loop refuses to be traced there

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The steps N of every observation, and N + w_N, which a learner may make it pay for."""
        return ("ponder_steps", "ponder_cost") if self.halting.unit is not None else ()

    def init_state(self) -> AdaptiveState:
        """Empty rings for every pondering step, and position 0."""

        def rings(layer: Layer) -> WindowState:
            empty = layer.attention.init_state()
            return jax.tree.map(lambda x: jnp.stack([x] * self.halting.max_steps), empty)

        gates = tuple((*layer.init_state()[1:],) for layer in self.layers)
        banks = tuple(rings(layer) for layer in self.layers)
        return AdaptiveState(banks, gates, jnp.array(0, jnp.int32))  # pyright: ignore[reportArgumentType]

    def step(
        self, state: AdaptiveState, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[AdaptiveState, Float[Array, " out"]]:
        """One observation, as often as it takes."""
        check_step_input(self, x, start)
        state, (y, _) = self._read_one(state, x, start)
        return state, y

    def unroll(
        self, state: AdaptiveState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[AdaptiveState, Float[Array, "time out"]]:
        """A chunk, all observations at once; one after another where a gate is recurrent."""
        return self.unroll_with_metrics(state, xs, starts)[:2]

    def unroll_with_metrics(
        self, state: AdaptiveState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[AdaptiveState, Float[Array, "time out"], Metrics]:
        """`unroll`, and the metrics of every observation."""
        check_unroll_input(self, xs, starts)
        if any(layer.recurrent for layer in self.layers):
            if all(layer.attention.gradient == "current" for layer in self.layers):  # pyright: ignore[reportAttributeAccessIssue]
                return self._read_in_order(state, xs, starts)
            state, (ys, metrics) = jax.lax.scan(
                lambda state, inputs: self._read_one(state, *inputs), state, (xs, starts)
            )
            return state, ys, metrics
        layers = share_biases(self.layers)
        positions, position = count_positions(state.position, starts)

        def read(number: Array, gates: State, u: Array, running: Array) -> tuple:
            inputs, y = [], u
            for layer, banks in zip(layers, state.banks, strict=True):
                y = jnp.where(running[:, None], y, u)
                inputs.append(y)
                y = layer.unroll(LayerState(_at(banks, number), (), ()), y, starts)[1]
            return gates, jnp.stack(inputs), y

        after = self._ponder(xs, positions, read, ())
        banks = self._remember(state, after.inputs, starts)
        new = AdaptiveState(banks, state.gates, position)
        return new, after.blend, self.halting.metrics(after.readings, after.remainder)

    def _read_in_order(
        self, state: AdaptiveState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[AdaptiveState, Float[Array, "time out"], Metrics]:
        positions, position = count_positions(state.position, starts)
        streams, where = self._enter(xs, positions)
        block = Block(share_biases(self.layers), self.halting)
        read = sequential_halting(block, state.banks, state.gates, streams, where, starts)
        inputs = jnp.moveaxis(jax.lax.stop_gradient(read.inputs), 0, 2)
        new = AdaptiveState(self._remember(state, inputs, starts), read.gates, position)
        return new, read.blend, self.halting.metrics(read.readings, read.remainder)

    def _remember(
        self, state: AdaptiveState, inputs: Array, starts: Bool[Array, " time"]
    ) -> tuple[WindowState, ...]:
        """The rings after a chunk of inputs [layers, steps, time, n]."""
        return tuple(
            jax.vmap(layer.attention.remember, in_axes=(0, 0, None))(bank, rows, starts)  # pyright: ignore[reportAttributeAccessIssue]
            for layer, bank, rows in zip(self.layers, state.banks, inputs, strict=True)
        )

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """Each layer's attention, the mean over the readings taken, and how many those were."""

        def one(state: AdaptiveState, x: Array) -> tuple[AdaptiveState, tuple[Array, Array]]:
            state, after = self._ponder_one(state, x)
            return state, (after.inputs, after.readings)

        _, (inputs, readings) = jax.lax.scan(one, self.init_state(), xs)
        number = jnp.arange(self.halting.max_steps, dtype=readings.dtype)[None, :]
        share = jnp.where(number < readings[:, None], 1.0 / readings[:, None], 0.0)
        found = {"readings": MemoryMap(readings[:, None], "gate")}
        for index, layer in enumerate(share_biases(self.layers)):
            maps = jax.vmap(layer.attention.maps)(jnp.moveaxis(inputs[:, index], 1, 0))
            mean = jnp.einsum("rhts,tr->hts", maps["attention"].values, share)
            found[f"layer {index + 1}: attention"] = MemoryMap(mean, "attention")
        return found

    def refresh(self, state: AdaptiveState) -> AdaptiveState:
        """All keys and values, projected again."""
        banks = tuple(
            jax.vmap(layer.attention.refresh)(bank)
            for layer, bank in zip(self.layers, state.banks, strict=True)
        )
        return state._replace(banks=banks)

    def _read_one(
        self, state: AdaptiveState, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[AdaptiveState, tuple[Float[Array, " out"], Metrics]]:
        state, after = self._ponder_one(select(start, self.init_state(), state), x)
        return state, (after.blend, self.halting.metrics(after.readings, after.remainder))

    def _ponder_one(
        self, state: AdaptiveState, x: Float[Array, " in"]
    ) -> tuple[AdaptiveState, Pondering]:
        layers, going_on = share_biases(self.layers), jnp.zeros((), bool)

        def read(number: Array, gates: Any, u: Array, running: Array) -> tuple:
            inputs, new_gates, y = [], [], u
            for layer, banks, gate in zip(layers, state.banks, gates, strict=True):
                inputs.append(y)
                new, y = layer.step(LayerState(_at(banks, number), *gate), y, going_on)
                new_gates.append((*new[1:],))
            return tuple(new_gates), jnp.stack(inputs), y

        after = self._ponder(x, state.position, read, state.gates)
        banks = tuple(
            jax.vmap(layer.attention.write, in_axes=(0, 0, None))(bank, inputs, going_on)  # pyright: ignore[reportAttributeAccessIssue]
            for layer, bank, inputs in zip(layers, state.banks, after.inputs, strict=True)
        )
        new = AdaptiveState(banks, after.gates, state.position + 1)  # pyright: ignore[reportArgumentType]
        return new, after

    def _ponder(self, x: Array, position: Array, read: Any, gates: State) -> Pondering:
        stream, where = self._enter(x, position)
        return self.halting.ponder(stream, where, read, gates, len(self.layers))

    def _enter(self, x: Array, position: Array) -> tuple[Array, Array | None]:
        """What is to be read, and where it stands if that is told."""
        stream = x if self.embedding is None else self.embedding(x)
        return stream, encode(position, self.output_size) if self.coordinates else None


def _at(banks: WindowState, number: Int[Array, ""]) -> WindowState:
    return jax.tree.map(lambda x: x[number], banks)
