"""The graph of a policy: operations of `clew.deploy.runner` on values of one environment.

`GraphBuilder` evaluates operations that depend on no input, merges equal operations, and leaves out
those that change nothing; the rest is a `Graph`. Shapes have no batch axis: every form of the
export puts it in front of each value that depends on an input.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clew.deploy import runner
from clew.errors import UserError


@dataclass(frozen=True, eq=False)
class Const:
    """Numbers that are known when the policy is exported."""

    name: str
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Of the array."""
        return self.array.dtype


@dataclass(frozen=True, eq=False)
class Ref:
    """A value that depends on an input."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


Real = Const | Ref
"""A real value; for complex ones see `clew.deploy.pairs`."""


@dataclass(frozen=True)
class Node:
    """One operation of `runner.OPERATIONS`."""

    op: str
    inputs: tuple[Real, ...]
    attributes: Mapping[str, Any]
    out: Ref


@dataclass(frozen=True)
class Graph:
    """A policy's step. The keys are the names in the manifest."""

    inputs: dict[str, Ref]
    states: dict[str, Ref]
    nodes: list[Node]
    outputs: dict[str, Real]
    after: dict[str, Real]
    """The new state, by the names of `states`."""

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """The constants that it reads, by name."""
        read = [value for node in self.nodes for value in node.inputs]
        read += [*self.outputs.values(), *self.after.values()]
        return {value.name: value.array for value in read if isinstance(value, Const)}

    def to_json(self) -> dict[str, Any]:
        """The JSON form that `runner.Model` reads."""
        nodes = [
            {
                "op": node.op,
                "in": [value.name for value in node.inputs],
                "attributes": dict(node.attributes),
                "out": node.out.name,
                "shape": list(node.out.shape),
                "dtype": node.out.dtype.name,
            }
            for node in self.nodes
        ]
        parts = ("inputs", self.inputs), ("states", self.states)
        ends = ("outputs", self.outputs), ("after", self.after)
        named = {part: {n: v.name for n, v in values.items()} for part, values in (*parts, *ends)}
        return {**named, "nodes": nodes}


class GraphBuilder:
    """Collects the operations of a graph."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._same: dict[Any, Ref] = {}
        self._constants: dict[Any, Const] = {}

    def constant(self, array: Any, name: str = "") -> Const:
        """A constant array; equal arrays share one constant.

        Raises:
            UserError: exports do not support its type.
        """
        array = np.asarray(array)
        if array.dtype.name not in runner.TYPES.values():
            raise UserError(f"exports do not support type {array.dtype.name}")
        key = (array.shape, array.dtype.name, array.tobytes())
        if key not in self._constants:
            name = name or f"constant/{len(self._constants)}"
            self._constants[key] = Const(name, array)
        return self._constants[key]

    def emit(self, op: str, *values: Real, **attributes: Any) -> Real:
        """The result of an operation.

        Raises:
            UserError: there are too many operations.
        """
        if op == "reshape":
            values, attributes = self._from_the_first(values[0], attributes)
        made = self._evaluate(op, values, attributes)
        if all(isinstance(value, Const) for value in values):
            return self.constant(made)
        unchanged = _unchanged(op, values, attributes, made.shape[1:])
        if unchanged is not None:
            return unchanged
        key = (op, *(value.name for value in values), repr(sorted(attributes.items())))
        if key not in self._same:
            if len(self._nodes) == runner.MOST_NODES:  # from a loop with too many rounds
                raise UserError(f"an export has at most {runner.MOST_NODES:,} operations")
            out = Ref(f"v{len(self._nodes)}", made.shape[1:], made.dtype)
            self._same[key] = out
            self._nodes[out.name] = Node(op, values, attributes, out)
        return self._same[key]

    def finish(
        self,
        inputs: dict[str, Ref],
        states: dict[str, Ref],
        outputs: dict[str, Real],
        after: dict[str, Real],
    ) -> Graph:
        """The graph of everything that the outputs and the new state need."""
        needed = {value.name for value in (*outputs.values(), *after.values())}
        kept = []
        for name, node in reversed(self._nodes.items()):
            if name in needed:
                kept.append(node)
                needed |= {value.name for value in node.inputs}
        return Graph(inputs, states, kept[::-1], outputs, after)

    def _from_the_first(
        self, value: Real, attributes: dict[str, Any]
    ) -> tuple[tuple[Real, ...], dict[str, Any]]:
        """One reshape instead of two in a row."""
        before = self._nodes.get(value.name)
        if before is None or before.op != "reshape":
            return (value,), attributes
        return before.inputs, {**attributes, "rank": before.attributes["rank"]}

    def _evaluate(
        self, op: str, values: Sequence[Real], attributes: Mapping[str, Any]
    ) -> np.ndarray:
        """The result if all operands are constants, else an array of its shape and type."""
        arrays = [
            value.array if isinstance(value, Const) else np.zeros((1, *value.shape), value.dtype)
            for value in values
        ]
        return runner.evaluate(op, attributes, *arrays)


_NEUTRAL = {
    "add": 0,
    "multiply": 1,
    "logical_and": True,
    "logical_or": False,
    "maximum": -math.inf,
    "minimum": math.inf,
}
"""Neutral elements: operands that leave the other one unchanged."""
_NEUTRAL_SECOND = {"subtract": 0, "divide": 1}
_DECIDING = {"logical_and": False, "logical_or": True}


def _unchanged(
    op: str, values: Sequence[Real], attributes: Mapping[str, Any], shape: tuple[int, ...]
) -> Real | None:
    """The operand that an operation leaves unchanged; None if it changes both."""
    first, *others = values
    if op in ("reshape", "expand", "slice"):
        return first if first.shape == shape else None
    if op == "transpose":
        return first if list(attributes["order"]) == list(range(len(shape))) else None
    if op == "cast":
        return first if first.dtype == attributes["dtype"] else None
    if op == "concatenate":
        return None if others else first
    chosen = None
    if op == "where":
        if _is(first, True) or others[0] is others[1]:
            chosen = others[0]
        elif _is(first, False):
            chosen = others[1]
    elif len(values) == 2:
        if _is(first, _NEUTRAL.get(op)) or _is(others[0], _DECIDING.get(op)):
            chosen = others[0]
        elif _is(others[0], _NEUTRAL.get(op, _NEUTRAL_SECOND.get(op))):
            chosen = first
        elif _is(first, _DECIDING.get(op)):
            chosen = first
    return chosen if chosen is not None and chosen.shape == shape else None


def _is(value: Real, number: float | bool | None) -> bool:
    """Whether a value is constant and all of its entries are this number."""
    if number is None or not isinstance(value, Const):
        return False
    return bool((value.array == number).all())
