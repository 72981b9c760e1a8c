"""`clew cost`: what each memory costs, counted, compiled and measured; and what was published."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError, require_at_least, unknown_name

if TYPE_CHECKING:
    from clew.lab.costs.account import Account, Plan
    from clew.lab.document import Grid

ABOUT = """Shows what each memory costs for every observation: parameters, state and multiply-adds,
counted from its program and from formulas, in seconds. GTrXL is counted with its key/value cache
and without, when it projects its whole memory at every step. On request also what XLA makes of the
compiled step and chunk, the time that they take, and the tables of Pramanik (2023) beside all
that."""


@dataclass(frozen=True)
class CostCommand:
    """What `clew cost` may be told."""

    memories: tuple[str, ...] = ()
    """Only these: names in the table of `clew bench`, or of `clew models` at default sizes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Sizes, for example hidden_size=64 window=512; each goes to the memories that have it."""
    input_size: int = 16
    """Numbers in one observation; the T-Maze has 16."""
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
    terms: bool = False
    """Show the terms of each formula instead."""
    published: bool = False
    """Show the published tables and ratios beside ours instead."""
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
    if command.terms:
        return _show_terms(command)
    from clew.lab.costs.account import Plan

    repeats = command.repeats if command.measure else 0
    plan = Plan(command.batch, command.length, command.compiled, repeats)
    report: dict[str, Any] = {"plan": plan, "machine": _machine()}
    grids: dict[str, Grid] = {}
    if command.published or command.output:
        grids |= _published(plan, report)
    if not command.published:
        grids |= _memories(command, plan, report)
    if command.output:
        _write(Path(command.output), grids, report)
    if command.json:
        print_json(report)
        return 0
    for grid in grids.values():
        print_table(grid.title, grid.columns, grid.rows, grid.note)
    return 0


def _machine() -> dict[str, Any]:
    """Where the numbers come from, and how busy it was: processes that wanted a core."""
    import os

    from clew.lab.bench.machine import device
    from clew.run.machine import git_commit

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return device() | {"commit": git_commit(), "load_before": load}


def _tell(name: str) -> None:
    print(f"compiling {name} ...", file=sys.stderr, flush=True)


def _cases(command: CostCommand) -> dict[str, tuple[str, dict[str, Any]]]:
    """The memories that were asked for, at the sizes that were."""
    from clew.lab.bench.speed import cases
    from clew.lab.costs.subjects import sized
    from clew.memory import MEMORIES

    known = {name: (name, {}) for name in MEMORIES} | cases()
    for name in command.memories:
        if name not in known:
            raise unknown_name("memory", name, known)
    return sized({name: known[name] for name in command.memories or cases()}, command.options)


def _memories(command: CostCommand, plan: "Plan", report: dict[str, Any]) -> "dict[str, Grid]":
    from clew.lab.costs.account import accounts
    from clew.lab.costs.subjects import memory_subjects
    from clew.lab.costs.tables import memories_table

    found = accounts(memory_subjects(_cases(command), command.input_size), plan, _tell)
    report["memories"] = found
    title = f"{command.input_size} inputs"
    if plan.compiled or plan.repeats:
        title += f", {plan.batch} environments, chunks of {plan.length}"
    return {"memories": memories_table(found, title)}


def _published(plan: "Plan", report: dict[str, Any]) -> "dict[str, Grid]":
    """Tables 3.1, 4.1 and 5.1 and all ratios, and what they are of."""
    from clew.lab.costs.account import accounts
    from clew.lab.costs.claims import ELSEWHERE, claims, ours, verdict
    from clew.lab.costs.subjects import SETTINGS, attention_subjects
    from clew.lab.costs.tables import attention_table, claims_table, orders_table

    found: dict[str, dict[str, Account]] = {
        s.name: {a.name: a for a in accounts(attention_subjects(s), plan, _tell)} for s in SETTINGS
    }
    report["attention"] = found
    report["claims"] = [
        claim._asdict()
        | {"setting": claim.setting.name, "reproduced": claim.reproduced}
        | {"ours": (mine := ours(claim, found[claim.setting.name]))}
        | {"verdict": verdict(claim, mine.counted)}
        for claim in claims()
    ]
    report["elsewhere"] = [f"{where}: {what}" for where, what in ELSEWHERE]
    by_thesis, by_us = claims_table(claims(), found)
    grids = {"claims-by-thesis": by_thesis, "claims-counted": by_us, "orders": orders_table()}
    for name, setting in zip(
        ("attention-section-4.2", "attention-table-5.1"), SETTINGS, strict=True
    ):
        grids[name] = attention_table(setting, list(found[setting.name].values()))
    return grids


def _write(folder: Path, grids: "dict[str, Grid]", report: dict[str, Any]) -> None:
    """Everything as files: a Markdown table each, costs.json and the picture."""
    import json

    from clew.lab.costs.picture import crossings, draw
    from clew.run.json_values import finite

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise UserError(f"cannot write into {folder}: {refused.strerror}") from None
    for name, grid in grids.items():
        (folder / f"{name}.md").write_text(grid.markdown())
    report["windows_where_cached_gtrxl_costs_more"] = crossings()
    (folder / "costs.json").write_text(json.dumps(finite(report), indent=1) + "\n")
    draw(folder / "operations-and-state.png")


def _show_terms(command: CostCommand) -> int:
    """Each memory's formula, term by term."""
    from clew.lab.costs.subjects import memory_subjects
    from clew.lab.costs.tables import terms_table

    subjects = memory_subjects(_cases(command), command.input_size)
    grids = {s.name: terms_table(s.name, s.formula) for s in subjects if s.formula is not None}
    if command.json:
        print_json({name: grid.rows for name, grid in grids.items()})
        return 0
    for grid in grids.values():
        print_table(grid.title, grid.columns, grid.rows)
    return 0
