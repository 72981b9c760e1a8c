"""The costs of memories: counted, as compiled, and as measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax

from clew.errors import UserError
from clew.lab.bench.machine import call_seconds
from clew.lab.bench.timing import Estimate
from clew.lab.costs.compiled import (
    Compiled,
    act,
    analyse,
    calls,
    compile_call,
    microseconds,
    step,
    unroll,
)
from clew.lab.costs.count import Arithmetic, StateSize, multiply_adds, state_size
from clew.lab.costs.reproject import Reprojecting
from clew.lab.studies.models import PublishedGTrXL
from clew.memory import MEMORIES, make_memory, options_among
from clew.memory.base import count_floats
from clew.memory.gtrxl import GTrXL
from clew.names import find

REPROJECTED = ", re-projected"
"""Suffix of the name of a memory that projects its whole window at every step."""


class CostPlan(NamedTuple):
    """What to measure; the rest of an `Account` stays None."""

    batch: int = 8
    """environments in parallel, as compiled and measured"""
    length: int = 256
    """steps of a chunk"""
    compiled: bool = False
    """compile step and chunk, and use XLA's count of them"""
    repeats: int = 0
    """timed calls of acting and of reading a chunk; none with 0"""


class Subject(NamedTuple):
    """A memory to account for."""

    name: str
    make: Callable[[jax.Array], Any]
    """builds it from a key; traced where shapes are enough"""
    input_size: int
    has_chunk: bool = True
    """whether its `unroll` differs from a loop of steps, and so is timed too"""


class Account(NamedTuple):
    """The costs of a memory for one environment and one observation."""

    name: str
    parameters: int
    """trainable numbers"""
    state: StateSize
    """carried from one observation to the next"""
    step: Arithmetic
    """multiply-adds of a step as counted from its jaxpr"""
    unroll: float | None = None
    """multiply-adds of a chunk as counted from its jaxpr, all kinds, for one observation"""
    compiled_step: Compiled | None = None
    """XLA's cost analysis of one step of all environments"""
    compiled_unroll: Compiled | None = None
    """XLA's cost analysis of a chunk of all environments, forward only, if it is not a loop of
    steps"""
    acting: Estimate | None = None
    """microseconds per observation, for consecutive steps in one program"""
    reading: Estimate | None = None
    """microseconds per observation in a chunk, forward only"""

    def as_data(self, repeats: int) -> dict[str, Any]:
        """For JSON; `repeats` is how often each time was measured."""
        times = {"acting": self.acting, "reading": self.reading}
        return self._asdict() | {
            name: t and {"median": t.middle, "low": t.low, "high": t.high, "repeats": repeats}
            for name, t in times.items()
        }


def accounts(
    subjects: Sequence[Subject], plan: CostPlan, log: Callable[[str], None] = lambda _: None
) -> list[Account]:
    """The accounts of several memories, timed in turns if the plan has repeats."""
    rows = [_counted(subject, plan) for subject in subjects]
    if not plan.compiled and not plan.repeats:
        return rows
    programs: dict[str, Callable[[], Any]] = {}
    for index, subject in enumerate(subjects):
        log(f"compiling {subject.name}")
        memory, size = subject.make(jax.random.key(0)), subject.input_size
        chunk = None
        if subject.has_chunk:
            chunk = compile_call(unroll, memory, size, plan.batch, plan.length)
        if plan.compiled:
            one = compile_call(step, memory, size, plan.batch)
            rows[index] = rows[index]._replace(
                compiled_step=analyse(one, plan.batch),
                compiled_unroll=chunk and analyse(chunk, plan.batch * plan.length),
            )
        if plan.repeats:
            acting = compile_call(act, memory, size, plan.batch, plan.length)
            programs[f"{index} acting"] = calls(memory, acting, size, plan.batch, plan.length)
            if chunk is not None:
                programs[f"{index} reading"] = calls(memory, chunk, size, plan.batch, plan.length)
    seconds = call_seconds(programs, plan.repeats) if plan.repeats else {}
    times = {n: microseconds(taken, plan.batch * plan.length) for n, taken in seconds.items()}
    return [
        row._replace(acting=times.get(f"{i} acting"), reading=times.get(f"{i} reading"))
        for i, row in enumerate(rows)
    ]


def _counted(subject: Subject, plan: CostPlan) -> Account:
    """The costs that follow from shapes alone."""
    module = eqx.filter_eval_shape(subject.make, jax.random.key(0))
    row = Account(
        name=subject.name,
        parameters=count_floats(module),
        state=state_size(module),
        step=multiply_adds(module, subject.input_size),
    )
    if not plan.compiled:
        return row
    chunk = multiply_adds(module, subject.input_size, plan.length)
    return row._replace(unroll=(chunk.per_step + chunk.shared) / plan.length)


def memory_subjects(
    cases: Mapping[str, tuple[str, dict[str, Any]]], input_size: int
) -> list[Subject]:
    """Memories by name; each GTrXL is followed by a version without its key/value cache."""
    subjects = []
    for name, (memory, options) in cases.items():
        subjects.append(_whole(name, memory, input_size, options, reproject=False))
        if find("memory", memory, MEMORIES) in (GTrXL, PublishedGTrXL):
            subjects.append(_whole(name + REPROJECTED, memory, input_size, options, reproject=True))
    return subjects


def _whole(
    name: str, memory: str, input_size: int, options: dict[str, Any], *, reproject: bool
) -> Subject:
    def make(key: jax.Array) -> Any:
        kind = find("memory", memory, MEMORIES)
        whole = make_memory(kind, input_size=input_size, key=key, **options)
        return Reprojecting(whole) if reproject else whole

    return Subject(name, make, input_size, has_chunk=not reproject)


def sized(
    cases: Mapping[str, tuple[str, dict[str, Any]]], sizes: Mapping[str, Any]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Cases with the user's sizes, each given to the memories that have such an option.

    Raises:
        UserError: for a size that none of them has.
    """
    given = {
        name: options_among(find("memory", memory, MEMORIES), sizes)
        for name, (memory, _) in cases.items()
    }
    for size in sizes:
        if not any(size in options for options in given.values()):
            raise UserError(f"none of {_names(list(cases))} has an option {size!r}")
    return {name: (memory, options | given[name]) for name, (memory, options) in cases.items()}


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
