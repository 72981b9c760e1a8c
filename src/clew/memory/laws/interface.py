"""The law that comes before the others: shapes, types and structure."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.memory.base import AbstractMemory, State
from clew.memory.laws.report import Book, Failure, LawCase


def check_interface(memory: AbstractMemory, state: State, dtype: Any, book: Book) -> bool:
    """Whether `step` and `unroll` give what the interface promises; without running them."""
    xs, starts = jnp.zeros((2, memory.input_size), dtype), jnp.zeros(2, bool)
    runs = {
        "step": (1, (), eqx.filter_eval_shape(memory.step, state, xs[0], starts[0])),
        "unroll": (2, (2,), eqx.filter_eval_shape(memory.unroll, state, xs, starts)),
    }
    for name, (length, lead, (after, y)) in runs.items():
        expected, place = (*lead, memory.output_size), ""
        if y.shape != expected:
            place = f"the output has shape {list(y.shape)}, not {list(expected)},"
        elif _shapes(after) != _shapes(state):
            place = f"the state becomes {_shapes(after)}, not {_shapes(state)} as it began,"
        failure = Failure("interface", name, place, math.nan, 0.0) if place else None
        book.report.cases.append(LawCase("interface", length, name, 0.0, 0.0, failure))
    return book.report.passed


def _shapes(state: State) -> str:
    def one(array: Any) -> str:
        return f"{jnp.result_type(array).name}{list(jnp.shape(array))}"

    return str(jax.tree.map(one, state))
