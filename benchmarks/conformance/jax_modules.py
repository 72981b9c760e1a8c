"""JAX modules of other libraries, in Equinox or Flax, as memories: they take and return a carry.

A library's own way to read a chunk becomes `unroll`, its own way to act becomes `step`; neither is
reimplemented here. Gradients are JAX's, through the library's functions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import AbstractMemory, State, select

Read = Callable[[Any, State, Array, Array], tuple[State, Array]]


class Calls(NamedTuple):
    """A library's own functions, without a batch axis."""

    begin: Callable[[Any], State]
    """The state before any observation, from the parameters."""
    read: Read
    """A chunk: parameters, state, observations [time, in] and starts [time] to state, outputs."""
    step: Read | None = None
    """Reads one observation [in] and its start; a chunk of one, if the library acts with that."""


class JaxModule(AbstractMemory):
    """A memory of another library.

    Its parameters are any tree of arrays, such as an Equinox module or Flax's "params".
    """

    parameters: Any
    calls: Calls = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def init_state(self) -> State:
        """The library's own carry before an episode."""
        return jax.tree.map(jnp.asarray, self.calls.begin(self.parameters))

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """The library's step, or its chunk of one observation."""
        if self.calls.step is not None:
            return self.calls.step(self.parameters, state, x, start)
        state, ys = self.calls.read(self.parameters, state, x[None], start[None])
        return state, ys[0]

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """The library's chunk."""
        return self.calls.read(self.parameters, state, xs, starts)


def cut_at_starts(
    begin: Callable[[Any], State],
    read: Callable[[Any, State, Array], tuple[State, Array]],
    step: Callable[[Any, State, Array], tuple[State, Array]],
) -> Calls:
    """The calls of a library without starts, as a careful caller makes them.

    A chunk in which no episode starts, except at its first observation, is read by the library; any
    other is read step by step, with a fresh state wherever an episode starts.
    """

    def one(parameters: Any, state: State, x: Array, start: Array) -> tuple[State, Array]:
        return step(parameters, select(start, begin(parameters), state), x)

    def chunk(parameters: Any, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        def whole(state: State) -> tuple[State, Array]:
            return read(parameters, select(starts[0], begin(parameters), state), xs)

        def by_steps(state: State) -> tuple[State, Array]:
            return jax.lax.scan(lambda s, data: one(parameters, s, *data), state, (xs, starts))

        return jax.lax.cond(starts[1:].any(), by_steps, whole, state)

    return Calls(begin, chunk, one)


def batch_of_one(tree: Any) -> Any:
    """Adds a batch axis to arrays, for libraries that require one."""
    return jax.tree.map(lambda array: jnp.asarray(array)[None], tree)


def alone(tree: Any) -> Any:
    """Removes the batch axis from the results of a batch of one."""
    return jax.tree.map(lambda array: array[0], tree)
