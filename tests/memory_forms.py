"""Compares two forms of one memory: outputs, states and gradients, and their deviations."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.memory.laws.runs import cast, pull, unroll
from memory_samples import episodes, sample

pull_one, unroll_one = eqx.filter_jit(pull), eqx.filter_jit(unroll)
TIME, WARM = 37, 13
TOLERANCES = {"float32": (2e-6, 1e-4), "float64": (1e-13, 1e-11)}
"""Tolerances of values and of gradients."""


def forms(name: str, options: dict[str, Any], precision: str, backends: Sequence[str]) -> list[Any]:
    """Outputs, last state and gradients by several backends, from a state that is not 0."""
    found = []
    for backend in backends:
        memory = cast(sample(name, num_layers=1, backend=backend, **options), precision)
        xs, starts = episodes(TIME, seed=5)
        xs = xs.astype(precision)
        state = cast(memory.init_state(), precision)
        state = unroll_one(memory, state, -xs[:WARM], starts[:WARM])[0]
        weights = np.random.default_rng(6).standard_normal((TIME, memory.output_size))
        floats = jax.tree.map(partial(cotangent, precision), state)
        after, ys, gradients = pull_one(
            unroll, memory, state, xs, starts, (floats, weights.astype(precision))
        )
        found.append(((after, ys), gradients))
    return found


def cotangent(precision: str, leaf: Any) -> Any:
    """The cotangent of one array of a state."""
    return np.full(leaf.shape, 0.3, precision) if leaf.dtype == precision else None


def largest(actual: Any, expected: Any) -> float:
    """The largest deviation of any leaf, relative to 1 + its largest number."""
    leaves = ([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (actual, expected))
    pairs = zip(*leaves, strict=True)
    return max(float(np.max(np.abs(a - e)) / (1 + np.max(np.abs(e)))) for a, e in pairs)


def assert_equal_forms(one: Any, other: Any, precision: str) -> None:
    """Checks that values and gradients are equal within rounding."""
    values, gradients = TOLERANCES[precision]
    assert largest(one[0], other[0]) < values
    assert largest(one[1], other[1]) < gradients


def biases(memory: Any) -> Any:
    """The biases of the first layer's keys, queries, values and gates."""
    return memory.layers[0].attention.features.inputs.bias


def with_gates(name: str, backend: str, gate: float) -> Any:
    """A ReLiT or AReLiT with gates at 0 or at 1."""
    memory = sample(name, num_layers=1, backend=backend)
    bias = np.array(biases(memory))
    bias[-2 * bias.size // 5 :] = gate  # beta's and gamma's
    return eqx.tree_at(biases, memory, jnp.asarray(bias))


def assert_finite_and_equal(one: Any, other: Any, size: float = 1.0) -> None:
    """Compares two forms, for observations times `size`: finite, and equal within rounding."""
    xs, starts = episodes(TIME, seed=5)
    found = []
    for memory in (one, other):
        zeros = jax.tree.map(partial(cotangent, "float32"), memory.init_state())
        weights = np.ones((TIME, memory.output_size), np.float32)
        state = memory.init_state()
        found.append(pull_one(unroll, memory, state, xs * size, starts, (zeros, weights)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    assert largest(*found) < 1e-4
