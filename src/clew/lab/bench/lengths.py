"""How time and memory of learning grow with the length of a chunk.

Of the memories whose state does not grow with time, one layer each at the sizes of Pramanik
(2023), Table A.2: the gradient of `unroll`, compiled for chunks of several lengths.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.lab.bench.medians import Median, median_of
from clew.lab.bench.speed import planned_bytes
from clew.memory import AbstractMemory, make_memory, scan_steps
from clew.memory.kernels import uses_kernel

SIZES = {"hidden_size": 128, "num_layers": 1, "num_heads": 4, "head_size": 64}
MEMORIES = ("relit", "arelit", "linear_transformer")
INPUT_SIZE = 16
PIECE = 16  # kPiece in kernels/native/features.h: of this many steps a kernel keeps one state
ROWS = 4  # kRows in kernels/native/features.h


class Plan(NamedTuple):
    """How much to measure."""

    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    envs: int = 2
    rounds: int = 6
    sizes: dict[str, int] = SIZES


QUICK = Plan((16, 32), 1, 2, {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "head_size": 8})
"""Enough to see that everything works; its figures are none to quote."""


class Row(NamedTuple):
    """One memory at one length."""

    memory: str
    length: int
    envs: int
    microseconds: Median
    """for one observation of one environment, forward and backward"""
    times_shortest: Median
    """that by the same at the shortest length, turn by turn: 1 if nothing grows"""
    planned_bytes: int
    """XLA's plan of the program: arguments, results and everything between"""
    kernel_bytes: int
    """what the kernel allocates besides, by formula; 0 where none runs"""
    kept_bytes: int
    """XLA's plan of the gradient of `step` scanned, which keeps what it needs of every step"""
    state_bytes: int
    """the states after every step, alone"""


Gradient = Callable[[AbstractMemory, Any, Any, Any], tuple[Any, Any]]


def compile_gradient(memory: AbstractMemory, length: int, envs: int, read: Gradient) -> Any:
    """The gradient, for parameters and observations, of the sum of outputs.

    Args:
        memory: what to differentiate.
        length, envs: of the chunk.
        read: (memory, state, xs, starts) to a state and outputs, without a batch axis.
    """
    params, static = eqx.partition(memory, eqx.is_inexact_array)
    one = memory.init_state()
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (envs, *jnp.shape(x))), one)

    def total(params: Any, xs: Any, starts: Any) -> Any:
        whole = eqx.combine(params, static)
        batched = jax.vmap(lambda *args: read(whole, *args), in_axes=(0, 1, 1), out_axes=(0, 1))
        return jnp.sum(batched(states, xs, starts)[1])

    xs = jax.ShapeDtypeStruct((length, envs, memory.input_size), jnp.float32)
    starts = jax.ShapeDtypeStruct((length, envs), jnp.bool_)
    return jax.jit(jax.grad(total, argnums=(0, 1))).lower(params, xs, starts).compile()


def kernel_bytes(name: str, memory: Any, length: int, envs: int, threads: int) -> int:
    """What a compiled kernel allocates in its backward pass, at most.

    For each head that is worked at at the same time, at most one a thread: one state for every
    `PIECE` steps, one gradient, and the states of one piece, of which ReLiT's has `ROWS` rows of C
    and the normaliser. Of the two kernels' arrays these are those that grow, and the largest.
    """
    if name not in ("relit", "arelit") or not uses_kernel("auto"):
        return 0
    features = memory.layers[0].attention.features
    wide, heads = features.eta * features.head_size, features.num_heads
    floats = sum(x.size for x in jax.tree.leaves(memory.init_state()[0]) if x.ndim > 1)
    state = floats // heads
    pieces = -(-length // PIECE)
    if name == "relit":
        held = (pieces + 1) * state + (PIECE + 1) * (ROWS + 1) * wide
    else:
        held = (pieces + PIECE + 3) * state
    return 4 * held * min(threads, heads * envs)


def measure(plan: Plan, threads: int, report: Callable[[str], None]) -> list[Row]:
    """All memories at all lengths, by turns."""
    compiled, calls = {}, {}
    for name, memory, length in _points(plan):
        report(f"compiling {name}, chunks of {length:,}")
        program = compile_gradient(memory, length, plan.envs, lambda m, *args: m.unroll(*args))
        compiled[name, length] = memory, program
        calls[name, length] = _call(memory, program, length, plan.envs)
    seconds: dict[tuple[str, int], list[float]] = {point: [] for point in calls}
    for turn in range(1 + plan.rounds):
        report(f"turn {turn} of {plan.rounds}")
        for point, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            if turn:  # the first one is not counted
                seconds[point].append((time.perf_counter() - begin) / (point[1] * plan.envs))
    rows = []
    for (name, length), (memory, program) in compiled.items():
        took, shortest = seconds[name, length], seconds[name, plan.lengths[0]]
        kept = compile_gradient(memory, length, plan.envs, scan_steps)
        floats = sum(x.size for x in jax.tree.leaves(memory.init_state()))
        rows.append(
            Row(
                name,
                length,
                plan.envs,
                median_of([1e6 * s for s in took]),
                median_of([a / b for a, b in zip(took, shortest, strict=True)]),
                planned_bytes(program),
                kernel_bytes(name, memory, length, plan.envs, threads),
                planned_bytes(kept),
                4 * floats * length * plan.envs,
            )
        )
    return rows


def _points(plan: Plan) -> Iterator[tuple[str, AbstractMemory, int]]:
    for name in MEMORIES:
        memory = make_memory(name, input_size=INPUT_SIZE, key=jax.random.key(0), **plan.sizes)
        for length in plan.lengths:
            yield name, memory, length


def _call(memory: AbstractMemory, program: Any, length: int, envs: int) -> Callable[[], Any]:
    """A call of a compiled gradient on observations drawn once, in a running episode."""
    params, _ = eqx.partition(memory, eqx.is_inexact_array)
    xs = jax.random.normal(jax.random.key(1), (length, envs, memory.input_size))
    starts = jnp.zeros((length, envs), bool)
    return lambda: program(params, xs, starts)
