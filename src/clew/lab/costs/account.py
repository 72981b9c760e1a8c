"""The whole bill of a memory: by formula, counted, as compiled, and as measured."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax

from clew.lab.costs.compiled import (
    Compiled,
    Time,
    analyse,
    calls,
    compile_acting,
    compile_step,
    compile_unroll,
    measure,
)
from clew.lab.costs.count import Arithmetic, StateSize, multiply_adds, parameters, state_size
from clew.lab.costs.reproject import Reprojecting
from clew.lab.costs.terms import Formula

FLOPS = 2
"""Floating-point operations in one multiply-add."""


class Plan(NamedTuple):
    """How far to go; what is not asked for stays None."""

    batch: int = 8
    """environments side by side, as compiled and measured"""
    length: int = 256
    """steps of a chunk"""
    compiled: bool = False
    """compile step and chunk, and ask XLA what they cost"""
    repeats: int = 0
    """timed calls of acting and of reading a chunk; none with 0"""


class Subject(NamedTuple):
    """Something to account for; `make` builds it, and is called for shapes alone if it can be."""

    name: str
    make: Callable[[jax.Array], Any]
    input_size: int
    formula: Formula | None


class Account(NamedTuple):
    """What a memory costs, for one environment and one observation."""

    name: str
    parameters: int
    """trainable numbers"""
    state: StateSize
    """carried from one observation to the next"""
    formula: int | None
    """multiply-adds of a step by formula; None where there is no formula"""
    step: Arithmetic
    """multiply-adds of a step as counted from its jaxpr"""
    unroll: float | None = None
    """multiply-adds of a chunk as counted from its jaxpr, all kinds, for one observation"""
    compiled_step: Compiled | None = None
    """XLA's cost analysis of one step of all environments"""
    compiled_unroll: Compiled | None = None
    """XLA's cost analysis of a chunk of all environments, forward only, where it is no loop of
    steps"""
    acting: Time | None = None
    """measured: steps one after another in one program"""
    reading: Time | None = None
    """measured: a chunk, forward only"""


def accounts(
    subjects: Sequence[Subject], plan: Plan, tell: Callable[[str], None] = lambda _: None
) -> list[Account]:
    """The accounts of several memories, timed in turns if the plan has repeats.

    Args:
        subjects: what to account for.
        plan: how far to go.
        tell: called with the name of each memory before its programs are compiled.
    """
    rows = [_counted(subject, plan) for subject in subjects]
    if not plan.compiled and not plan.repeats:
        return rows
    programs: dict[str, Callable[[], Any]] = {}
    for index, subject in enumerate(subjects):
        tell(subject.name)
        memory, size = subject.make(jax.random.key(0)), subject.input_size
        # A memory that projects its window again reads a chunk step by step: nothing new to time.
        chunk = None
        if not isinstance(memory, Reprojecting):
            chunk = compile_unroll(memory, size, plan.batch, plan.length)
        if plan.compiled:
            step = compile_step(memory, size, plan.batch)
            rows[index] = rows[index]._replace(
                compiled_step=analyse(step, plan.batch),
                compiled_unroll=chunk and analyse(chunk, plan.batch * plan.length),
            )
        if plan.repeats:
            act = compile_acting(memory, size, plan.batch, plan.length)
            programs[f"{index} acting"] = calls(memory, act, size, plan.batch, plan.length)
            if chunk is not None:
                programs[f"{index} reading"] = calls(memory, chunk, size, plan.batch, plan.length)
    times = measure(programs, plan.batch * plan.length, plan.repeats) if plan.repeats else {}
    return [
        row._replace(acting=times.get(f"{i} acting"), reading=times.get(f"{i} reading"))
        for i, row in enumerate(rows)
    ]


def _counted(subject: Subject, plan: Plan) -> Account:
    """Everything that shapes alone tell."""
    module = eqx.filter_eval_shape(subject.make, jax.random.key(0))
    row = Account(
        name=subject.name,
        parameters=parameters(module),
        state=state_size(module),
        formula=None if subject.formula is None else subject.formula.per_step,
        step=multiply_adds(module, subject.input_size),
    )
    if not plan.compiled:
        return row
    chunk = multiply_adds(module, subject.input_size, plan.length)
    return row._replace(unroll=(chunk.per_step + chunk.shared) / plan.length)
