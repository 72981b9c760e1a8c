"""A step and a chunk as compiled by XLA: XLA's own count of the program, and its run time."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.lab.bench.timing import Estimate, estimate

FILLING = 513
"""Steps before a measurement; the longest window that is measured holds 512."""


class Compiled(NamedTuple):
    """XLA's cost analysis of a compiled program, for one observation of one environment."""

    flops: float
    """floating-point operations, without functions such as exp"""
    transcendentals: float
    """calls of such functions"""
    bytes: float
    """read and written by the program's operations, as XLA estimates it"""
    loops: bool
    """whether the program has loops, whose bodies XLA counts once however often they run"""


Call = Callable[[Any, Any, Any, Any], Any]
"""A call of a memory on states, observations and start flags of a batch."""


def step(memory: Any, states: Any, xs: Any, starts: Any) -> Any:
    """One step of a batch."""
    return jax.vmap(memory.step)(states, xs, starts)


def unroll(memory: Any, states: Any, xs: Any, starts: Any) -> Any:
    """One chunk of a batch, forward only."""
    return jax.vmap(memory.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))(states, xs, starts)


def act(memory: Any, states: Any, xs: Any, starts: Any) -> Any:
    """The steps of a batch one after another, as in a rollout."""
    return jax.lax.scan(lambda s, x: step(memory, s, *x), states, (xs, starts))


def compile_call(call: Call, memory: Any, size: int, batch: int, length: int | None = None) -> Any:
    """A call of a memory, compiled, as a function of its arrays and of the other arguments.

    Without a length it is one step, which reuses the old states' memory; else a chunk.
    """
    weights, static = eqx.partition(memory, eqx.is_array)

    def run(weights: Any, *inputs: Any) -> Any:
        return call(eqx.combine(weights, static), *inputs)

    lead = (batch,) if length is None else (length, batch)
    states = eqx.filter_eval_shape(
        lambda m: jax.vmap(lambda _: m.init_state())(jnp.arange(batch)), memory
    )
    xs = jax.ShapeDtypeStruct((*lead, size), jnp.float32)
    starts = jax.ShapeDtypeStruct(lead, jnp.bool_)
    donated = 1 if length is None else ()
    shapes = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), weights)
    return jax.jit(run, donate_argnums=donated).lower(shapes, states, xs, starts).compile()


def analyse(program: Any, observations: int) -> Compiled:
    """XLA's cost analysis of a compiled program, divided by the number of observations it reads."""
    counted = program.cost_analysis()
    counted = counted[0] if isinstance(counted, Sequence) else counted
    found = {key: counted.get(key, math.nan) for key in ("flops", "bytes accessed")}
    return Compiled(
        flops=found["flops"] / observations,
        transcendentals=counted.get("transcendentals", 0.0) / observations,
        bytes=found["bytes accessed"] / observations,
        loops=" while(" in program.as_text(),
    )


def calls(memory: Any, program: Any, size: int, batch: int, length: int) -> Callable[[], Any]:
    """A call of this memory's program on fixed random observations, in a running episode.

    The episode is `FILLING` steps old, so windows are full: a short one costs less.
    """
    weights, _ = eqx.partition(memory, eqx.is_array)
    states = jax.vmap(lambda _: memory.init_state())(jnp.arange(batch))
    xs = jax.random.normal(jax.random.key(0), (length, batch, size))
    starts = jnp.zeros((length, batch), bool)
    for _ in range(-(-FILLING // length)):
        states, _ = program(weights, states, xs, starts)
    return lambda: program(weights, states, xs, starts)


def microseconds(seconds: Sequence[float], observations: int) -> Estimate:
    """Microseconds per observation of one environment."""
    return estimate([1e6 * s / observations for s in seconds])
