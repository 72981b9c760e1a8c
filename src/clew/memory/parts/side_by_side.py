"""Memories beside each other, each with its own part of the input and of the output."""

from itertools import accumulate

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import AbstractMemory, State
from clew.memory.parts.maps import MemoryMap, prefixed


class SideBySide(AbstractMemory):
    """Memories that read one input after the other's and know nothing of each other.

        x = [x_1, ..., x_n]    y_i = memory_i(x_i)    y = [y_1, ..., y_n]

    The state is a tuple of their states. A metric that several have is their mean.

    Shapes: x [sum of their input_size] to y [sum of their output_size].

    Args:
        memories: from first to last.
    """

    memories: tuple[AbstractMemory, ...]
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, *memories: AbstractMemory):
        self.memories = memories
        self.input_size = sum(memory.input_size for memory in memories)
        self.output_size = sum(memory.output_size for memory in memories)

    def _parts(self, x: Float[Array, "*lead in"]) -> list[Float[Array, "*lead _"]]:
        ends = list(accumulate(memory.input_size for memory in self.memories))
        return jnp.split(x, ends[:-1], axis=-1)

    def init_state(self) -> State:
        return tuple(memory.init_state() for memory in self.memories)

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        of_each = zip(self.memories, state, self._parts(x), strict=True)
        states, ys = zip(*(m.step(s, part, start) for m, s, part in of_each), strict=True)
        return states, jnp.concatenate(ys)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        return self.unroll_with_metrics(state, xs, starts)[:2]

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for memory in self.memories for n in memory.metric_names))

    def unroll_with_metrics(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"], dict[str, Float[Array, " time"]]]:
        of_each = zip(self.memories, state, self._parts(xs), strict=True)
        read = [m.unroll_with_metrics(s, part, starts) for m, s, part in of_each]
        states, ys, metrics = zip(*read, strict=True)
        of_name = {n: jnp.stack([m[n] for m in metrics if n in m]) for n in self.metric_names}
        means = {name: jnp.mean(values, axis=0) for name, values in of_name.items()}
        return states, jnp.concatenate(ys, axis=-1), means

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        of_each = enumerate(zip(self.memories, self._parts(xs), strict=True), start=1)
        found = [prefixed(f"memory {i}: ", memory.maps(part)) for i, (memory, part) in of_each]
        return {name: each for maps in found for name, each in maps.items()}

    def refresh(self, state: State) -> State:
        return tuple(m.refresh(s) for m, s in zip(self.memories, state, strict=True))

    def compact(self, state: State) -> State:
        return tuple(m.compact(s) for m, s in zip(self.memories, state, strict=True))

    def expand(self, compacted: State) -> State:
        return tuple(m.expand(s) for m, s in zip(self.memories, compacted, strict=True))
