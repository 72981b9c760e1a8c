"""What XLA makes of a step and of a chunk: its own count of the program, and how long it takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.lab.bench.machine import until_ready
from clew.lab.bench.timing import Estimate, by_turns, estimate, seconds_of

FILLING = 513
"""Steps that precede a measurement; the longest window that is measured holds 512."""


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


def compile_step(memory: Any, size: int, batch: int) -> Any:
    """One step of `batch` environments, compiled; the old states' memory is used again."""
    weights, static = eqx.partition(memory, eqx.is_array)

    def step(weights: Any, states: Any, xs: Any, starts: Any) -> Any:
        return jax.vmap(eqx.combine(weights, static).step)(states, xs, starts)

    inputs = _inputs(memory, size, batch, None)
    return jax.jit(step, donate_argnums=1).lower(_shapes(weights), *inputs).compile()


def compile_unroll(memory: Any, size: int, batch: int, length: int) -> Any:
    """One chunk of `batch` environments, forward only, compiled."""
    weights, static = eqx.partition(memory, eqx.is_array)

    def unroll(weights: Any, states: Any, xs: Any, starts: Any) -> Any:
        module = eqx.combine(weights, static)
        return jax.vmap(module.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))(states, xs, starts)

    inputs = _inputs(memory, size, batch, length)
    return jax.jit(unroll).lower(_shapes(weights), *inputs).compile()


def compile_acting(memory: Any, size: int, batch: int, length: int) -> Any:
    """`length` steps of `batch` environments one after another, as in a rollout."""
    weights, static = eqx.partition(memory, eqx.is_array)

    def act(weights: Any, states: Any, xs: Any, starts: Any) -> Any:
        module = eqx.combine(weights, static)
        return jax.lax.scan(lambda s, x: jax.vmap(module.step)(s, *x), states, (xs, starts))

    inputs = _inputs(memory, size, batch, length)
    return jax.jit(act).lower(_shapes(weights), *inputs).compile()


def analyse(program: Any, observations: int) -> Compiled:
    """XLA's cost analysis of a compiled program, divided by the observations that it reads."""
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
    """A call of a program of this memory, on observations sampled once, in a running episode.

    It is `FILLING` steps old, so that windows are full: a short one costs less.
    """
    weights, _ = eqx.partition(memory, eqx.is_array)
    states = jax.vmap(lambda _: memory.init_state())(jnp.arange(batch))
    xs = jax.random.normal(jax.random.key(0), (length, batch, size))
    starts = jnp.zeros((length, batch), bool)
    for _ in range(-(-FILLING // length)):
        states, _ = program(weights, states, xs, starts)
    return lambda: program(weights, states, xs, starts)


def measure(
    programs: Mapping[str, Callable[[], Any]], observations: int, repeats: int
) -> dict[str, Estimate]:
    """Microseconds of programs for one observation, timed by turns.

    Args:
        programs: what to call, by name; each is called once untimed.
        observations: how many one call reads, over all environments.
        repeats: timed calls of each.
    """
    measures = {name: partial(seconds_of, until_ready(call)) for name, call in programs.items()}
    seconds = by_turns(measures, repeats, warm_up=True)
    return {name: microseconds(taken, observations) for name, taken in seconds.items()}


def microseconds(seconds: Sequence[float], observations: int) -> Estimate:
    """Microseconds for one observation of one environment."""
    return estimate([1e6 * s / observations for s in seconds])


def _inputs(memory: Any, size: int, batch: int, length: int | None) -> tuple[Any, Any, Any]:
    """Shapes of states, observations and start flags; a chunk has time first."""
    lead = (batch,) if length is None else (length, batch)
    states = eqx.filter_eval_shape(
        lambda m: jax.vmap(lambda _: m.init_state())(jnp.arange(batch)), memory
    )
    return (
        states,
        jax.ShapeDtypeStruct((*lead, size), jnp.float32),
        jax.ShapeDtypeStruct(lead, jnp.bool_),
    )


def _shapes(weights: Any) -> Any:
    return jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), weights)
