"""The whole bill of a memory: by formula, counted, as compiled, and as measured."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax

from clew.costs.compiled import (
    Compiled,
    Time,
    analyse,
    calls,
    compile_acting,
    compile_step,
    compile_unroll,
    measure,
)
from clew.costs.count import Arithmetic, StateSize, multiply_adds, parameters, state_size
from clew.costs.terms import Formula

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
    """XLA's cost analysis of a chunk of all environments, forward only"""
    acting: Time | None = None
    """measured: steps one after another in one program"""
    reading: Time | None = None
    """measured: a chunk, forward only"""


def accounts(subjects: Sequence[Subject], plan: Plan) -> list[Account]:
    """The accounts of several memories, timed in turns if the plan has repeats."""
    rows = [_counted(subject, plan) for subject in subjects]
    if not plan.compiled and not plan.repeats:
        return rows
    memories = [subject.make(jax.random.key(0)) for subject in subjects]
    programs: dict[str, Callable[[], Any]] = {}
    for index, (subject, memory) in enumerate(zip(subjects, memories, strict=True)):
        size, length, batch = subject.input_size, plan.length, plan.batch
        chunk = compile_unroll(memory, size, batch, length)
        if plan.compiled:
            step = compile_step(memory, size, batch)
            rows[index] = rows[index]._replace(
                compiled_step=analyse(step, batch), compiled_unroll=analyse(chunk, batch * length)
            )
        if plan.repeats:
            act = compile_acting(memory, size, batch, length)
            programs[f"{index} acting"] = calls(memory, act, size, batch, length)
            programs[f"{index} reading"] = calls(memory, chunk, size, batch, length)
    if plan.repeats:
        times = measure(programs, plan.batch * plan.length, plan.repeats)
        rows = [
            row._replace(acting=times[f"{i} acting"], reading=times[f"{i} reading"])
            for i, row in enumerate(rows)
        ]
    return rows


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
