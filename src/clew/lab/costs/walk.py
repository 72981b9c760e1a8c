"""Counts a jaxpr equation by equation; see `clew.lab.costs.multiply_adds`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Literal


class Tally:
    """Counts of a jaxpr, and which of its outputs vary with the observation or the state."""

    def __init__(self) -> None:
        self.products = self.elementwise = self.shared = 0
        self.uncounted: set[str] = set()
        self.varying: list[bool] = []

    @property
    def total(self) -> int:
        """Multiply-adds of every kind."""
        return self.products + self.elementwise + self.shared

    def add(self, other: "Tally", times: int = 1) -> None:
        """Adds what another has counted, so many times."""
        self.products += times * other.products
        self.elementwise += times * other.elementwise
        self.shared += times * other.shared
        self.uncounted |= other.uncounted


def walk(jaxpr: Any, varying: Sequence[bool]) -> Tally:
    """Counts every equation of an open jaxpr whose inputs vary as told; constants do not vary."""
    tally = Tally()
    varies: dict[Any, bool] = dict(zip(jaxpr.invars, varying, strict=True))

    def lookup(atom: Any) -> bool:
        return not isinstance(atom, Literal) and varies.get(atom, False)

    for equation in jaxpr.eqns:
        inputs = [lookup(atom) for atom in equation.invars]
        outputs = _count(equation, inputs, tally)
        varies.update(zip(equation.outvars, outputs, strict=True))
    tally.varying = [lookup(atom) for atom in jaxpr.outvars]
    return tally


def _count(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """Adds one equation to the tally; returns which of its outputs vary."""
    name = equation.primitive.name
    special = _CONTROL_FLOW.get(name)
    if special is not None:
        return special(equation, inputs, tally)
    body = _body(equation.params, len(inputs))
    if body is not None:
        inner = walk(body, inputs)
        tally.add(inner)
        return inner.varying
    if name in _OPAQUE:
        tally.uncounted.add(name)
    work, is_product = _work(equation)
    if not any(inputs):
        tally.shared += work
    elif is_product:
        tally.products += work
    else:
        tally.elementwise += work
    return [any(inputs)] * len(equation.outvars)


def _work(equation: Any) -> tuple[int, bool]:
    """Multiply-adds of one plain equation, and whether it is a matrix product."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return math.prod(out.shape) * math.prod(shape[axis] for axis in contracted), True
    if name == "product":
        return math.prod(out.shape) * equation.invars[1].aval.shape[0], True
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return math.prod(out.shape) * math.prod(kernel) // features, True
    if not is_float(out):
        return 0, False
    times = {"mul": 1, "square": 1}.get(name, 0)
    if name == "integer_pow":
        times = max(abs(equation.params["y"]) - 1, 0)
    return times * math.prod(out.shape), False


def _scan(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A scan: its body times its length, the carry varying as soon as any trip makes it vary."""
    settings = equation.params
    constants, carried = settings["num_consts"], settings["num_carry"]
    inner, outputs = _settle(settings["jaxpr"].jaxpr, inputs, constants, carried)
    tally.add(inner, settings["length"])
    return outputs


def _while(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A while loop: one trip, since the number of trips is not in the jaxpr."""
    settings = equation.params
    of_condition, of_body = settings["cond_nconsts"], settings["body_nconsts"]
    start = of_condition + of_body
    body_inputs = inputs[of_condition:]
    body, carry = _settle(settings["body_jaxpr"].jaxpr, body_inputs, of_body, len(inputs) - start)
    tally.add(body)
    condition = walk(settings["cond_jaxpr"].jaxpr, inputs[:of_condition] + carry)
    tally.add(condition)
    # A loop that runs until its data says so gives results that vary with that data.
    return [True] * len(carry) if any(condition.varying) else carry


def _settle(
    jaxpr: Any, inputs: list[bool], constants: int, carried: int
) -> tuple[Tally, list[bool]]:
    """Walks a loop's body until what varies in its carry no longer grows."""
    inputs = list(inputs)
    while True:
        tally = walk(jaxpr, inputs)
        carry = inputs[constants : constants + carried]
        grown = [a or b for a, b in zip(carry, tally.varying[:carried], strict=True)]
        if grown == carry:
            return tally, grown + tally.varying[carried:]
        inputs[constants : constants + carried] = grown


def _cond(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A conditional: its dearest branch."""
    chosen, *operands = inputs
    branches = [walk(branch.jaxpr, operands) for branch in equation.params["branches"]]
    dearest = max(branches, key=lambda branch: branch.total)
    tally.add(dearest)
    for branch in branches:
        tally.uncounted |= branch.uncounted
    return [chosen or any(flags) for flags in zip(*(b.varying for b in branches), strict=True)]


def _body(settings: Mapping[str, Any], count: int) -> Any:
    """The jaxpr that an equation merely calls (jit, a custom derivative or vmap), or None."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        inner = settings.get(name)
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(inner.invars) == count:
            return inner
    return None


def is_float(leaf: Any) -> bool:
    """Whether something is an array, or stands for one, of floating-point numbers."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


_CONTROL_FLOW = {"scan": _scan, "while": _while, "cond": _cond}
_OPAQUE = {"ffi_call", "pallas_call", "pure_callback", "io_callback", "custom_call"}
