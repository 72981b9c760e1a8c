"""Toy memories, all of them sound: a running average, and a window with a cache."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.memory import AbstractMemory, scan_steps, select


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
    """The last four inputs, the newest last, and their projections."""

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
        """An empty window."""
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
        """Projects keys and values again."""
        return state._replace(keys=state.hidden @ self.key, values=state.hidden @ self.value)


class Waves(Window):
    """Sound too: the values that it caches are complex, and it reads their real part."""

    def init_state(self) -> Any:
        """An empty window."""
        return super().init_state()._replace(values=jnp.zeros((4, 2), self.value.dtype))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state = select(start, self.init_state(), state)
        state, y = super().step(state, x, jnp.array(False))
        return state, y.real


class Keys(Window):
    """The same without the inputs, so that old keys stay as they were computed."""

    def init_state(self) -> Any:
        """An empty window."""
        return super().init_state()[1:]

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state, y = super().step(WindowState(jnp.zeros((4, 3), x.dtype), *state), x, start)
        return state[1:], y

    def refresh(self, state: Any) -> Any:
        """Rebuilds nothing."""
        return state


class KeepsObservations(Average):
    """Sound, with the last observations, which nothing reads."""

    def init_state(self) -> Any:
        """An empty window."""
        return *super().init_state(), jnp.zeros((4, 3))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        hidden, count, last = self.forget(state, start)
        hidden = self.keep * hidden + (1.0 - self.keep) * (x @ self.write)
        last = jnp.concatenate([last[1:], x[None]])
        return (hidden, count + 1, last), jnp.tanh(hidden @ self.read)


def build(kind: Any, **more: Any) -> Any:
    """A memory with random weights."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((3, 4), (3, 4), (3, 2)) if issubclass(kind, Window) else ((3, 4), (4, 2))
    weights = [jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=False)]
    if issubclass(kind, Window):
        return kind(*weights, **more)
    return kind(*weights, jnp.array([0.5, 0.8, 0.9, 0.95]), **more)
