"""Lowers a JAX program to a graph: unrolls loops, inlines calls, leaves a few dozen operations.

`Lowering` reads a jaxpr equation by equation. `RULES` has the lowering of each primitive: a
function of the lowering, the equation and the operands. A primitive without a rule is replaced by
its own implementation if JAX can trace that, as for the one in `clew.memory.parts.products`; any
other is refused by name.

A value may be smaller than its JAX shape: an axis of length 1 stands for any length, so that
repeated numbers are not computed again. `Lowering.whole` writes the repetition out. A complex value
is a `Pair` of real ones.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import numpy as np
from jax.extend import core

from clew.deploy import pairs, runner
from clew.deploy.graph import Const, GraphBuilder, Ref
from clew.deploy.pairs import Pair, Value
from clew.deploy.rules import RULES
from clew.errors import UserError


class Lowering:
    """Writes jaxprs into a graph."""

    def __init__(self, builder: GraphBuilder):
        self.builder = builder

    def run(self, jaxpr: Any, consts: Sequence[Any], values: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr for these values.

        Raises:
            UserError: it has an operation that exports do not support.
        """
        environment: dict[Any, Value] = {}

        def read(variable: Any) -> Value:
            if isinstance(variable, core.Literal):
                return self.constant(np.asarray(variable.val, cast(Any, variable.aval).dtype))
            return environment[variable]

        known = [c if isinstance(c, Const | Ref | Pair) else self.constant(c) for c in consts]
        environment.update(zip(jaxpr.constvars, known, strict=True))
        environment.update(zip(jaxpr.invars, values, strict=True))
        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(v) for v in equation.invars])
            environment.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def call(self, closed: Any, values: Sequence[Value]) -> list[Value]:
        """`run` of a closed jaxpr, or of one without constants."""
        if isinstance(closed, core.ClosedJaxpr):
            return self.run(closed.jaxpr, closed.consts, values)
        return self.run(closed, (), values)

    def constant(self, array: Any, name: str = "") -> Value:
        """A constant array; the parts of a complex one have their own names."""
        array = np.asarray(array)
        if not np.iscomplexobj(array):
            return self.builder.constant(array, name)
        named = {part: name and f"{name}/{part}" for part in pairs.PARTS}
        parts = zip((array.real, array.imag), named.values(), strict=True)
        return pairs.pair(self, *(self.builder.constant(x, part) for x, part in parts))

    def number(self, number: Any, like: Value) -> Value:
        """A constant number with another value's type."""
        return self.constant(np.asarray(number, like.dtype))

    def emit(self, op: str, *values: Value, **attributes: Any) -> Value:
        """An operation of the graph, or several for complex values."""
        real = [value for value in values if not isinstance(value, Pair)]
        if len(real) < len(values):
            return pairs.emit(self, op, values, attributes)
        if attributes.get("dtype") in pairs.TYPES:
            return pairs.emit(self, op, [pairs.as_pair(self, *real)], attributes)
        return self.builder.emit(op, *real, **attributes)

    def elementwise(self, op: str, *values: Value) -> Value:
        """An operation on values of one rank; single numbers may have any."""
        rank = max(len(value.shape) for value in values)
        return self.emit(op, *(self.of_rank(value, rank) for value in values))

    def of_rank(self, value: Value, rank: int) -> Value:
        """A value with axes of length 1 in front."""
        return self.reshape(value, (1,) * (rank - len(value.shape)) + value.shape)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The same numbers in another shape."""
        return self.emit("reshape", value, rank=len(value.shape), shape=[int(n) for n in shape])

    def whole(self, value: Value, shape: Sequence[int]) -> Value:
        """A value with all of its repetitions written out."""
        return self.emit("expand", value, shape=[int(n) for n in shape])

    def transpose(self, value: Value, order: Sequence[int] | np.ndarray) -> Value:
        """The value with its axes in another order."""
        return self.emit("transpose", value, order=[int(axis) for axis in order])

    def slice(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """A part along one axis."""
        if value.shape[axis] == 1:
            return value
        starts, stops = [0] * len(value.shape), list(value.shape)
        steps = [1] * len(value.shape)
        starts[axis], stops[axis], steps[axis] = int(start), int(stop), int(step)
        return self.emit("slice", value, start=starts, stop=stops, step=steps)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """Values side by side; their repetitions must be written out."""
        rank = len(values[0].shape)
        return self.emit("concatenate", *values, axis=axis - rank, rank=rank)

    def take(self, value: Value, index: Value, axis: int) -> Value:
        """Rows along an axis by index [k]; all indices must be within bounds."""
        order = [axis, *(i for i in range(len(value.shape)) if i != axis)]
        if isinstance(value, Const) and isinstance(index, Const):
            return self.constant(np.take(value.array, index.array, axis=axis))
        rows = self.emit("take", self.transpose(value, order), index, rank=len(value.shape))
        return self.transpose(rows, np.argsort(order))

    def where(self, condition: Value, chosen: Value, other: Value) -> Value:
        """One or the other value, elementwise."""
        return self.elementwise("where", condition, chosen, other)

    def clipped(self, index: Value, most: int) -> Value:
        """An index clipped to 0 .. most."""
        positive = self.elementwise("maximum", index, self.number(0, index))
        return self.elementwise("minimum", positive, self.number(most, index))

    def unknown(self, equation: Any) -> UserError:
        """The error for an operation that exports do not support."""
        operands = ", ".join(str(v.aval) for v in equation.invars)
        return UserError(
            f"cannot export: operation {equation.primitive.name!r} (of {operands}) is not "
            "supported in exports; supported ones have a rule in clew.deploy.rules"
        )

    def _equation(self, equation: Any, values: list[Value]) -> list[Value]:
        primitive = equation.primitive
        for variable in equation.outvars:
            _require_type(variable.aval, primitive.name)
        rule = RULES.get(primitive.name)
        results = rule(self, equation, values) if rule else self._implementation(equation, values)
        results = results if primitive.multiple_results else [results]
        kinds = [np.dtype(variable.aval.dtype).name for variable in equation.outvars]
        return [self.emit("cast", x, dtype=kind) for x, kind in zip(results, kinds, strict=True)]

    def _implementation(self, equation: Any, values: list[Value]) -> Any:
        """The traced implementation of a custom primitive."""
        primitive, avals = equation.primitive, [v.aval for v in equation.invars]
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        try:
            implementation = partial(primitive.impl, **equation.params)
            closed = jax.make_jaxpr(implementation)(*shapes)
        except Exception as error:  # it cannot be traced, for any reason
            raise self.unknown(equation) from error
        if primitive.name in _primitives(closed.jaxpr):
            raise self.unknown(equation)
        results = self.call(closed, values)
        return results if primitive.multiple_results else results[0]


def lower(function: Callable, arguments: Any, values: Any, builder: GraphBuilder) -> Any:
    """Traces a function and writes its operations into a graph.

    Args:
        function: of JAX arrays, without a batch.
        arguments: a tuple of trees of shapes and types.
        values: the same trees with values of the graph.
        builder: of the graph.

    Returns:
        The function's result, with values of the graph in place of arrays.

    Raises:
        UserError: the function has an operation that exports do not support.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    lowering = Lowering(builder)
    results = lowering.call(closed, jax.tree.leaves(values))
    whole = [
        lowering.whole(value, aval.shape)
        for value, aval in zip(results, closed.out_avals, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(shape), whole)


TYPES = (*runner.TYPES.values(), *pairs.TYPES)
HALF = ("bfloat16", "float16")


def _require_type(aval: Any, what: str) -> None:
    name = getattr(aval.dtype, "name", str(aval.dtype))  # foreign: a random key's type
    if name not in TYPES:
        hint = "; encoders give float32 with network.precision=float32" if name in HALF else ""
        raise UserError(
            f"cannot export: {what} gives {name}; exports support {', '.join(TYPES)}{hint}"
        )


def _primitives(jaxpr: Any) -> set[str]:
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in _inner(equation):
            found |= _primitives(inner.jaxpr if isinstance(inner, core.ClosedJaxpr) else inner)
    return found


def _inner(equation: Any) -> list[Any]:
    values = [v for p in equation.params.values() for v in (p if isinstance(p, tuple) else (p,))]
    return [value for value in values if isinstance(value, core.ClosedJaxpr | core.Jaxpr)]
