"""`clew cost`: what each memory costs, counted, compiled and measured; and what was published."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.parse import parse
from clew.cli.tables import log, show
from clew.errors import UserError, require_at_least, unknown_name
from clew.report.document import Measured, Table

if TYPE_CHECKING:
    from clew.lab.costs.account import CostPlan

ABOUT = """Shows what each memory costs for every observation: parameters, state size and
multiply-adds, counted from its program, in seconds. GTrXL is counted with its key/value cache
and without, when it projects its whole memory at every step. On request also what XLA makes of the
compiled step and chunk, the time that they take, and the tables of Pramanik (2023) beside all
that."""


@dataclass(frozen=True)
class CostCommand:
    """The options of `clew cost`."""

    memories: tuple[str, ...] = ()
    """Only these: names in the table of `clew bench`, or of `clew models` at default sizes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Sizes, for example hidden_size=64 window=512; each goes to the memories that have it."""
    input_size: int = 16
    """Size of one observation; the T-Maze's is 16."""
    batch: int = 8
    """Environments side by side, where programs are compiled or measured."""
    length: int = 256
    """Steps of a chunk, where programs are compiled or measured."""
    compiled: bool = False
    """Compile each step and chunk, and add XLA's cost analysis."""
    measure: bool = False
    """Time acting and reading a chunk as well; leave the machine alone meanwhile."""
    repeats: int = 15
    """Timed calls of each program; the table has their median and its 95% interval."""
    published: bool = False
    """Show the published tables and ratios beside the counted ones instead."""
    output: str = ""
    """Write all tables, a picture and the numbers as JSON into this folder."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Counts, and prints tables or writes them."""
    command = parse(CostCommand, args, command="cost", about=ABOUT)
    for name in ("input_size", "batch", "length", "repeats"):
        require_at_least(name, getattr(command, name), 1)
    if command.published and (command.memories or command.options):
        raise UserError("--published has memories and sizes of its own; leave out the others")
    document = _measure(command)
    if command.output:
        from clew.report.files import write_measured  # start: matplotlib takes 0.4 s

        write_measured(document, command.output)
    show(document, as_json=command.json)
    return 0


def _measure(command: CostCommand) -> Measured:
    """What the command asks for."""
    from clew.lab.costs.account import CostPlan  # start: JAX takes 0.5 s
    from clew.lab.studies.costs import page  # start: JAX takes 0.5 s

    repeats = command.repeats if command.measure else 0
    plan = CostPlan(command.batch, command.length, command.compiled, repeats)
    data: dict[str, Any] = {"plan": plan, "machine": _machine()}
    tables: list[Table] = []
    pictures: dict[str, Callable[[Path], Any]] = {}
    if command.published or command.output:
        tables, published = page.published(plan, log)
        data |= published
    if not command.published:
        memories, data["memories"] = _memories(command, plan)
        tables.append(memories)
    if command.output:
        data["windows_where_cached_gtrxl_costs_more"] = page.crossings()
        pictures["operations-and-state.png"] = page.draw
    return Measured("costs", data, tables, pictures=pictures)


def _machine() -> dict[str, Any]:
    """The machine, and how busy it was: processes that wanted a core."""
    from clew.lab.bench.machine import device  # start: JAX takes 0.5 s
    from clew.run.machine import git_commit  # start: JAX takes 0.5 s

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return device() | {"commit": git_commit(), "load_before": load}


def _cases(command: CostCommand) -> dict[str, tuple[str, dict[str, Any]]]:
    """The memories and sizes of the command."""
    from clew.lab.bench.speed import cases  # start: JAX takes 0.5 s
    from clew.lab.costs.account import sized  # start: JAX takes 0.5 s
    from clew.memory import MEMORIES  # start: JAX takes 0.5 s

    known = {name: (name, {}) for name in MEMORIES} | cases()
    for name in command.memories:
        if name not in known:
            raise unknown_name("memory", name, known)
    return sized({name: known[name] for name in command.memories or cases()}, command.options)


def _memories(command: CostCommand, plan: "CostPlan") -> tuple[Table, list[dict[str, Any]]]:
    """The table of memories, and its numbers."""
    from clew.lab.costs.account import accounts, memory_subjects  # start: JAX takes 0.5 s
    from clew.lab.costs.tables import memories_table  # start: JAX takes 0.5 s

    found = accounts(memory_subjects(_cases(command), command.input_size), plan, log)
    title = f"{command.input_size} inputs"
    if plan.compiled or plan.repeats:
        title += f", {plan.batch} environments, chunks of {plan.length}"
    return memories_table(found, title), [account.as_data(plan.repeats) for account in found]
