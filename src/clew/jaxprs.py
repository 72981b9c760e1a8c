"""What a traced program says of its loops and of what it gives, whatever the version of JAX."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def shapes_of(values: PyTree) -> str:
    """Types and shapes in the containers that they are in, for messages: "('float32[3]',)"."""

    def one(leaf: Any) -> str:
        try:
            return f"{jnp.result_type(leaf).name}{list(jnp.shape(leaf))}"
        except TypeError:
            return repr(leaf)

    return str(jax.tree.map(one, values))


def tracing_hint(error: Exception) -> str:
    """What helps against the mistakes that JAX reports in words of its own."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return " (compiled code has jnp.where(condition, a, b) in place of if)"
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return " (compiled code has jax.numpy in place of NumPy)"
    return ""


class ScanParts(NamedTuple):
    """How many of a scan's inputs are what."""

    constants: int
    carried: int
    """also how many of its first outputs are the last carry"""


def scan_parts(equation: Any) -> ScanParts:
    """The parts of an equation of `jax.lax.scan`.

    JAX tells them under names that change: `num_consts` and `num_carry` before 0.11, `ft_in` and
    `ft_out` since. What is scanned or stacked has one axis more outside than in the body, and the
    carry has not; that holds in all of them.
    """
    body = equation.params["jaxpr"].jaxpr
    carried = len(body.outvars) - _with_an_axis_more(equation.outvars, body.outvars)
    scanned = _with_an_axis_more(equation.invars, body.invars)
    return ScanParts(len(body.invars) - carried - scanned, carried)


def _with_an_axis_more(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    pairs = zip(outside, inside, strict=True)
    return sum(len(one.aval.shape) > len(other.aval.shape) for one, other in pairs)
