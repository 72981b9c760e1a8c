"""A sound toy memory, and toys that are broken in one way each."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.memory import AbstractMemory, scan_steps, select
from clew.memory.lru import LRU


class Average(AbstractMemory):
    """A sound memory: h = a h + (1 - a) x W, y = tanh(h U), with a count of the steps."""

    write: jax.Array
    read: jax.Array
    keep: jax.Array
    input_size: int = eqx.field(static=True, default=3)
    output_size: int = eqx.field(static=True, default=2)

    def init_state(self) -> Any:
        """Zeros, and no steps."""
        return jnp.zeros(4), jnp.array(0, jnp.int32)

    def forget(self, state: Any, start: Any) -> Any:
        """The reset."""
        return select(start, self.init_state(), state)

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        hidden, count = self.forget(state, start)
        hidden = self.keep * hidden + (1.0 - self.keep) * (x @ self.write)
        return (hidden, count + 1), jnp.tanh(hidden @ self.read)

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """A chunk."""
        return scan_steps(self, state, xs, starts)


class LearnedStart(Average):
    """Sound too: the initial state is a parameter."""

    first: jax.Array = eqx.field(default_factory=lambda: jnp.arange(4.0))

    def init_state(self) -> Any:
        """The parameter."""
        return self.first, jnp.array(0, jnp.int32)


class WindowState(NamedTuple):
    """The last four inputs, the newest last, and what was projected from them."""

    hidden: jax.Array
    keys: jax.Array
    values: jax.Array
    seen: jax.Array


class Window(AbstractMemory):
    """A sound memory with a cache: attention to the last four inputs, whose keys it keeps."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    input_size: int = eqx.field(static=True, default=3)
    output_size: int = eqx.field(static=True, default=2)

    def init_state(self) -> Any:
        """Nothing seen."""
        empty = (jnp.zeros((4, n), self.key.dtype) for n in (3, 4, 2))
        return WindowState(*empty, jnp.zeros(4, bool))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state = select(start, Window.init_state(self), state)
        rows = (x, x @ self.key, x @ self.value, jnp.ones((), bool))
        state = jax.tree.map(
            lambda ring, row: jnp.concatenate([ring[1:], row[None]]), state, WindowState(*rows)
        )
        scores = jnp.where(state.seen, state.keys @ (x @ self.query), -jnp.inf)
        return state, jax.nn.softmax(scores) @ state.values

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """A chunk."""
        return scan_steps(self, state, xs, starts)

    def refresh(self, state: Any) -> Any:
        """Keys and values, projected again."""
        return state._replace(keys=state.hidden @ self.key, values=state.hidden @ self.value)


class Waves(Window):
    """Sound too: what it caches as values is complex, and is read as its real part."""

    def init_state(self) -> Any:
        """Nothing seen."""
        return super().init_state()._replace(values=jnp.zeros((4, 2), self.value.dtype))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state = select(start, self.init_state(), state)
        state, y = super().step(state, x, jnp.array(False))
        return state, y.real


class Keys(Window):
    """The same without the inputs, so that keys stay as they were made."""

    def init_state(self) -> Any:
        """Nothing seen."""
        return super().init_state()[1:]

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state, y = super().step(WindowState(jnp.zeros((4, 3), x.dtype), *state), x, start)
        return state[1:], y

    def refresh(self, state: Any) -> Any:
        """Nothing."""
        return state


class KeepsObservations(Average):
    """Sound, with the last observations, which nothing reads."""

    def init_state(self) -> Any:
        """Nothing seen."""
        return *super().init_state(), jnp.zeros((4, 3))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        hidden, count, last = self.forget(state, start)
        hidden = self.keep * hidden + (1.0 - self.keep) * (x @ self.write)
        last = jnp.concatenate([last[1:], x[None]])
        return (hidden, count + 1, last), jnp.tanh(hidden @ self.read)


class ResetByProduct(Average):
    """NaN times zero is NaN."""

    def forget(self, state: Any, start: Any) -> Any:
        """Multiplies."""
        keep = jnp.where(start, 0, 1)
        return state[0] * keep.astype(state[0].dtype), state[1] * keep


class KeepsItsCount(Average):
    """The count is not reset, and changes the output."""

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """Leaks the old count."""
        hidden, _ = self.forget(state, start)
        old = state[1] % 2
        hidden = self.keep * hidden + (1.0 - self.keep) * (x @ self.write)
        return (hidden, state[1] + 1), jnp.tanh(hidden @ self.read + old.astype(hidden.dtype))


class ForgetsLate(Average):
    """Off by one: the state is reset after the start has been read."""

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """Reads first."""
        state, y = super().step(state, x, jnp.array(False))
        return self.forget(state, start), y


class ForgetsLateInChunks(Average):
    """Off by one only where a chunk is learnt from."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Shifts the flags."""
        late = jnp.concatenate([starts[:1], starts[:-1]])
        return scan_steps(self, state, xs, late)


class PeeksAhead(Average):
    """Sees the next observation of the chunk."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Mixes x[t + 1] in."""
        return scan_steps(self, state, xs + 0.1 * jnp.roll(xs, -1, axis=0), starts)


class PeeksAtStarts(Average):
    """Sees whether the next observation opens an episode, as a flag shifted by one would."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Mixes start[t + 1] in."""
        state, ys = scan_steps(self, state, xs, starts)
        return state, ys + 0.1 * jnp.roll(starts, -1).at[-1].set(False)[:, None]


class IgnoresTheState(Average):
    """Every chunk begins anew."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Never reads `state`."""
        return scan_steps(self, self.init_state(), xs, starts)


class LosesTheState(Average):
    """Right outputs, but the state after a chunk is the one before."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Returns the old state."""
        return state, scan_steps(self, state, xs, starts)[1]


class StopsGradients(Average):
    """Right values, no gradient through the state within a chunk."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Cuts the chunk's history."""

        def step(state: Any, inputs: Any) -> Any:
            return self.step(jax.lax.stop_gradient(state), *inputs)

        return jax.lax.scan(step, state, (xs, starts))


class LongChunksDiffer(Average):
    """Another function from some length on."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Scales long chunks."""
        state, ys = scan_steps(self, state, xs, starts)
        return state, ys if len(xs) < 5 else 1.001 * ys


class StoresHalf(Average):
    """What it stores for replay is half of its state."""

    def compact(self, state: Any) -> Any:
        """Halves it."""
        return 0.5 * state[0], state[1]


class StoresLouder(LRU):
    """What it stores for replay is a thousandth larger than its state."""

    def compact(self, state: Any) -> Any:
        """Scales it."""
        return jax.tree.map(lambda array: array * 1.001, state)


class SpoilsByRefreshing(Average):
    """Refreshing changes the state."""

    def refresh(self, state: Any) -> Any:
        """Halves it."""
        return 0.5 * state[0], state[1]


@jax.custom_batching.custom_vmap
def _double(x: jax.Array) -> jax.Array:
    return 2.0 * x


@_double.def_vmap
def _double_batched(axis_size: int, in_batched: list[bool], x: jax.Array) -> tuple[Any, bool]:
    return 2.01 * x, True


class DiffersInABatch(Average):
    """Its own rule for `vmap` computes something else."""

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """Uses the rule where no gradient flows."""
        state, y = super().step(state, x, start)
        return state, y + jax.lax.stop_gradient(_double(jax.lax.stop_gradient(y)))


class WrongShape(Average):
    """One number too many in the outputs of a chunk."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Appends a column."""
        state, ys = scan_steps(self, state, xs, starts)
        return state, jnp.concatenate([ys, ys[:, :1]], axis=1)


class GrowsItsState(Average):
    """The state after a chunk has another type than before."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Counts in floats."""
        (hidden, count), ys = scan_steps(self, state, xs, starts)
        return (hidden, count.astype(jnp.float32)), ys


def build(kind: Any, **more: Any) -> Any:
    """A memory with random weights."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((3, 4), (3, 4), (3, 2)) if issubclass(kind, Window) else ((3, 4), (4, 2))
    weights = [jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=False)]
    if issubclass(kind, Window):
        return kind(*weights, **more)
    return kind(*weights, jnp.array([0.5, 0.8, 0.9, 0.95]), **more)
