"""Runs of a memory with gradients, chained piece by piece, which the laws compare.

All runs of one length share one compiled program, since laws differ only in inputs, starts, states
and cotangents. Between two programs everything is held in NumPy arrays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps

RunFunction = Callable[[AbstractMemory, State, Any, Any], tuple[State, Any]]


class Run(NamedTuple):
    """Outputs of some runs of a memory, and gradients of their weighted sum; leaves [case, ...].

    Attributes:
        output: [case, time, out], and behind them one column for each metric.
        parameters: gradient with respect to every float array of the memory.
        state: gradient with respect to every float array of the state before the run.
        inputs: gradient with respect to the observations, [case, time, in].
    """

    output: np.ndarray
    parameters: Any
    state: Any
    inputs: np.ndarray


def unroll(memory: AbstractMemory, state: State, xs: Any, starts: Any) -> tuple[State, Any]:
    """`memory.unroll`, as a function by which compiled programs are cached."""
    return memory.unroll(state, xs, starts)


def learn(memory: AbstractMemory, state: State, xs: Any, starts: Any) -> tuple[State, Any]:
    """`memory.unroll_with_metrics`, which learners call; the metrics are extra columns."""
    state, ys, metrics = memory.unroll_with_metrics(state, xs, starts)
    columns = [metrics[name][:, None].astype(ys.dtype) for name in memory.metric_names]
    return state, jnp.concatenate([ys, *columns], axis=1)


def renew(memory: AbstractMemory, state: State, xs: Any, starts: Any) -> tuple[State, Any]:
    """`memory.refresh`, as a chunk of no steps; `xs` is [0, in]."""
    return memory.refresh(state), jnp.zeros((0, memory.output_size), xs.dtype)


def pull(
    run: RunFunction, memory: AbstractMemory, state: State, xs: Any, starts: Any, cotangents: Any
) -> tuple[State, Any, tuple[Any, Any, Any]]:
    """One run and its vector-Jacobian product.

    Args:
        run: `learn`, `unroll`, `renew` or `scan_steps`.
        cotangents: of the float leaves of the final state, and of the outputs.

    Returns:
        The state after, the outputs, the gradients of parameters, state and inputs.
    """
    parameters, static = eqx.partition(memory, eqx.is_inexact_array)
    floats, other = eqx.partition(state, eqx.is_inexact_array)

    def function(parameters: Any, floats: Any, xs: Any) -> tuple[Any, Any]:
        combined = eqx.combine(parameters, static)
        after, ys = run(combined, eqx.combine(floats, other), xs, starts)
        differentiable, rest = eqx.partition(after, eqx.is_inexact_array)
        return (differentiable, ys), rest

    (after, ys), vjp, rest = jax.vjp(function, parameters, floats, xs, has_aux=True)
    return eqx.combine(after, rest), ys, vjp(cotangents)


class Programs:
    """The compiled programs of one check, freed with it.

    Every program creates some dozens of memory maps, and Linux allows a process 65,530 of them. So
    these are separate functions that no cache keeps alive.

    Args:
        memory: the memory to check; its parameters are arguments of the programs.
    """

    def __init__(self, memory: AbstractMemory) -> None:
        _, static = eqx.partition(memory, eqx.is_inexact_array)

        def scan(parameters: Any, *data: Any) -> tuple[State, Any]:
            return scan_steps(eqx.combine(parameters, static), *data)

        def pulled(run: RunFunction) -> Callable[..., Any]:
            return lambda parameters, *data: pull(run, eqx.combine(parameters, static), *data)

        self._one = jax.jit(pulled(learn))
        self._scan = jax.jit(scan)
        over_cases = (None, 0, 0, 0, 0)
        runs: tuple[RunFunction, ...] = (learn, unroll, renew, scan_steps)
        many = {run: jax.jit(jax.vmap(pulled(run), over_cases)) for run in runs}
        self._many: dict[RunFunction, Callable[..., Any]] = many

        def pull_init(parameters: Any, cotangents: Any) -> Any:
            def floats(parameters: Any) -> Any:
                state = eqx.combine(parameters, static).init_state()
                floats = eqx.filter(state, eqx.is_inexact_array)
                return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), floats, cotangents)

            return jax.vmap(jax.vjp(floats, parameters)[1])(cotangents)[0]

        self._init = jax.jit(pull_init)

    def scan_one(self, memory: AbstractMemory, *data: Any) -> tuple[State, Any]:
        """`scan_steps` without `vmap`."""
        return self._scan(eqx.filter(memory, eqx.is_inexact_array), *data)

    def pull_many(self, run: RunFunction, memory: AbstractMemory, *data: Any) -> Any:
        """`pull` for all cases."""
        return self._many[run](eqx.filter(memory, eqx.is_inexact_array), *data)

    def pull_init_state(self, memory: AbstractMemory, cotangents: Any) -> Any:
        """The gradient from the floats of `init_state()` to the parameters, for all cases."""
        return as_numpy(self._init(eqx.filter(memory, eqx.is_inexact_array), cotangents))

    def one_alone(
        self, memory: AbstractMemory, state: State, xs: Any, starts: Any, weights: Any
    ) -> Run:
        """One case of `learn` without `vmap`."""
        cotangents = (zero_floats(state), weights)
        parameters = eqx.filter(memory, eqx.is_inexact_array)
        _, ys, gradients = self._one(parameters, state, xs, starts, cotangents)
        return as_numpy(Run(ys, *gradients))


def cast(tree: Any, precision: str) -> Any:
    """A memory or a state with its float and complex arrays cast to a precision, if given."""
    if precision == "float32":
        return tree

    def one(leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        is_complex = jnp.iscomplexobj(leaf)
        return jnp.asarray(
            leaf, jnp.promote_types(precision, jnp.complex64) if is_complex else precision
        )

    return jax.tree.map(one, tree)


def many(state: State, cases: int) -> State:
    """A state repeated, as NumPy arrays [case, ...]."""
    return jax.tree.map(lambda a: np.repeat(np.asarray(a)[None], cases, axis=0), state)


def as_numpy(tree: Any) -> Any:
    """The same tree of NumPy arrays."""
    return jax.tree.map(np.asarray, tree)


def normal(shape: tuple[int, ...], dtype: Any, random: np.random.Generator) -> np.ndarray:
    """Random numbers of variance 1; the two parts of a complex one share it."""
    if not np.issubdtype(dtype, np.complexfloating):
        return random.standard_normal(shape).astype(dtype)
    pairs = random.standard_normal((*shape, 2)) / np.sqrt(2)
    return pairs.view(np.complex128)[..., 0].astype(dtype)


def wide(array: Any) -> np.ndarray:
    """An array in double precision, float64 or complex128."""
    values = np.asarray(array)
    return values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)


def direction(array: Any, random: np.random.Generator) -> np.ndarray:
    """Random numbers with the scale and dtype of an array's; unscaled for an array of zeros."""
    values = np.asarray(array)
    size = np.sqrt(np.mean(np.square(np.abs(values)))) if values.size else 0.0
    return normal(values.shape, values.dtype, random) * values.dtype.type(size or 1)


def moved(tree: Any, step: float, random: np.random.Generator) -> Any:
    """A memory or a state with each float array moved by a step relative to its size."""

    def one(leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return np.asarray(leaf + step * direction(leaf, random), leaf.dtype)

    return jax.tree.map(one, tree)


def zero_floats(state: State) -> Any:
    """Zeros for the float leaves of a state, None for the others."""
    return jax.tree.map(lambda a: np.zeros_like(a) if is_float(a) else None, state)


def is_float(array: np.ndarray) -> bool:
    """Whether gradients flow through an array of this type."""
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))
