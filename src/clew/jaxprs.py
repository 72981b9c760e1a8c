"""Reads the loops of a traced program, in any supported version of JAX."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class ScanParts(NamedTuple):
    """How many of a scan's inputs are of which kind."""

    constants: int
    carried: int
    """also how many of its first outputs are the last carry"""


def scan_parts(equation: Any) -> ScanParts:
    """The parts of an equation of `jax.lax.scan`.

    JAX's own names for them change: `num_consts` and `num_carry` before 0.11, `ft_in` and `ft_out`
    since. So they are told by their shapes: in every version, what is scanned or stacked has one
    axis more outside than in the body, and the carry has not.
    """
    body = equation.params["jaxpr"].jaxpr
    carried = len(body.outvars) - _with_an_axis_more(equation.outvars, body.outvars)
    scanned = _with_an_axis_more(equation.invars, body.invars)
    return ScanParts(len(body.invars) - carried - scanned, carried)


def _with_an_axis_more(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    pairs = zip(outside, inside, strict=True)
    return sum(len(one.aval.shape) > len(other.aval.shape) for one, other in pairs)
