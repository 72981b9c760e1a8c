"""The smallest case in which a memory breaks a law, looking only at outputs."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from clew.memory.base import AbstractMemory, State, scan_steps

LENGTHS = (1, 2, 3, 4, 6, 8, 17, 64)
AFTER = 6
"""Observations before the chunk, if there are any, and after it."""


class Case(NamedTuple):
    """Two ways of reading the same observations."""

    length: int
    """of the chunk"""
    starts: tuple[int, ...]
    """where episodes start in it"""
    warm: bool
    """whether observations were read before it"""

    def __str__(self) -> str:
        state = f"after {AFTER} observations" if self.warm else "from a fresh state"
        start = "a start at " + " and ".join(map(str, self.starts)) if self.starts else "no start"
        return f"a chunk of {self.length} {state}, {start}"


class Found(NamedTuple):
    """The smallest case, and how far the two ways differ."""

    case: Case
    at: int
    """the first output that differs; those from `case.length` on belong to later steps"""
    is_: float
    should_be: float
    deviation: float
    """relative to the largest output, as in the laws"""


Way = Callable[[AbstractMemory, State, Array, Array, Array], tuple[Array, Array]]
"""Maps memory, previous state, observations, starts, and chunk length to two output sequences."""


def _stream(memory: AbstractMemory, state: State, xs: Array, starts: Array, n: Any) -> Any:
    after, head = memory.unroll(state, xs[:n], starts[:n])
    _, tail = scan_steps(memory, after, xs[n:], starts[n:])
    return jnp.concatenate([head, tail]), scan_steps(memory, state, xs, starts)[1]


def _split(memory: AbstractMemory, state: State, xs: Array, starts: Array, n: Any) -> Any:
    half = n // 2
    middle, head = memory.unroll(state, xs[:half], starts[:half])
    _, tail = memory.unroll(middle, xs[half:], starts[half:])
    return jnp.concatenate([head, tail]), memory.unroll(state, xs, starts)[1]


def _causal(memory: AbstractMemory, state: State, xs: Array, starts: Array, n: Any) -> Any:
    half = n // 2
    other = xs.at[half:].multiply(-3)
    read = [memory.unroll(state, given, starts)[1][:half] for given in (other, xs)]
    return read[0], read[1]


def _reset(read: Callable[..., Any]) -> Way:
    def way(memory: AbstractMemory, state: State, xs: Array, starts: Array, n: Any) -> Any:
        at = jnp.argmax(starts)  # reading begins there; the rest is moved behind and not compared
        _, ys = read(memory, state, xs, starts)
        moved = jnp.roll(xs, -at, axis=0)
        _, fresh = read(memory, memory.init_state(), moved, jnp.zeros_like(starts))
        live = (jnp.arange(len(xs)) >= at)[:, None]
        return jnp.where(live, ys, 0), jnp.where(live, jnp.roll(fresh, at, axis=0), 0)

    return way


WAYS: dict[str, tuple[Way, ...]] = {
    "causal": (_causal,),
    "reset": (_reset(scan_steps), _reset(lambda m, *data: m.unroll(*data))),
    "stream": (_stream,),
    "split": (_split,),
}


def smallest(memory: AbstractMemory, law: str, allowed: float) -> Found | None:
    """The first case, from short to long, whose outputs differ by more than is allowed.

    Some laws have no such case.
    """
    random = np.random.default_rng(0)
    for length in LENGTHS:
        for way in WAYS.get(law, ()):
            read = eqx.filter_jit(way)
            for case in _cases(law, length):
                found = _try(read, memory, case, random)
                if found is not None and not found.deviation <= allowed:
                    return found
    return None


def _cases(law: str, length: int) -> Iterator[Case]:
    if law in ("causal", "split") and length < 2:
        return
    places = range(length) if length <= 8 else (0, length // 2, length - 1)
    several = [()] if law != "reset" else []
    several += [(place,) for place in places]
    several += [(0, place) for place in places if place and law != "reset"]
    for starts in several:
        yield from (Case(length, starts, warm) for warm in (False, True) if warm or law != "reset")


def _try(
    read: Callable[..., Any], memory: AbstractMemory, case: Case, random: np.random.Generator
) -> Found | None:
    before, time = random.standard_normal((2, AFTER, memory.input_size)), case.length + AFTER
    xs = jnp.asarray(random.standard_normal((time, memory.input_size)), jnp.float32)
    state = memory.init_state()
    if case.warm:
        old = jnp.asarray(before[0], jnp.float32)
        state, _ = scan_steps(memory, state, old, jnp.zeros(AFTER, bool))
    starts = jnp.isin(jnp.arange(time), jnp.asarray(case.starts, int))
    actual, expected = (
        np.asarray(ys, np.float64) for ys in read(memory, state, xs, starts, case.length)
    )
    off = np.abs(actual - expected) / (np.abs(expected).max(initial=0.0) + 1e-30)
    off = np.where(np.isfinite(off), off, np.inf)
    if not off.size:
        return None
    first = int(np.argmax(off.max(1) > 0.1 * off.max()))
    column = int(off[first].argmax())
    return Found(
        case, first, float(actual[first, column]), float(expected[first, column]), float(off.max())
    )
