"""The costs of memories as a table, and its entries."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clew.lab.bench.machine import device
from clew.lab.bench.timing import Estimate
from clew.lab.costs.account import Account, CostPlan, accounts, memory_subjects
from clew.lab.costs.compiled import Compiled
from clew.report.document import UNKNOWN, Measured, Table, tabulate


def measure_memories(
    cases: Mapping[str, tuple[str, dict[str, Any]]],
    input_size: int,
    plan: CostPlan,
    log: Callable[[str], None],
) -> Measured:
    """The costs of memories by their names in the table, as `memories.md` and `costs.json`."""
    # How busy the machine was: processes that wanted a core.
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    machine = device() | {"load_before": load}
    found = accounts(memory_subjects(cases, input_size), plan, log)
    memories = [account.as_data(plan.repeats) for account in found]
    data = {"plan": plan, "machine": machine, "memories": memories}
    return Measured("costs", data, [memories_table(found, input_size, plan)])


def memories_table(accounts: Sequence[Account], input_size: int, plan: CostPlan) -> Table:
    """One row per memory: sizes and arithmetic, and the compiled and measured costs."""
    title = f"{input_size} inputs"
    if plan.compiled or plan.repeats:
        title += f", {plan.batch} environments, chunks of {plan.length}"
    columns = ["", "parameters", "state floats", "state bytes", "multiply-adds", "per batch"]
    compiled = any(a.compiled_step for a in accounts)
    measured = any(a.acting for a in accounts)
    rows = []
    for a in accounts:
        row = [a.name, number(a.parameters), number(a.state.floats), number(a.state.bytes)]
        row += [number(a.step.per_step), number(a.step.shared)]
        if compiled:
            row += compiled_entries(a.compiled_step) + compiled_entries(a.compiled_unroll)
        if measured:
            row += [time_entry(a.acting), time_entry(a.reading)]
        rows.append(row)
    if compiled:
        columns += ["XLA step FLOP", "XLA step bytes", "XLA chunk FLOP", "XLA chunk bytes"]
    if measured:
        columns += ["acting us", "chunk us"]
    note = (
        "Per observation of one environment. Multiply-adds of a step are counted from its program; "
        "those 'per batch' depend on parameters alone and are computed once a batch."
    )
    if compiled:
        note += " ~: the program loops, and XLA counts a loop's body once."
    return tabulate("memories", title, columns, rows, note)


def compiled_entries(found: Compiled | None) -> list[str]:
    """FLOP and bytes of a program, for a table; "~" where XLA has counted a loop once."""
    if found is None:
        return [UNKNOWN, UNKNOWN]
    mark = "~" if found.loops else ""
    return [mark + number(found.flops), mark + number(found.bytes)]


def time_entry(found: Estimate | None) -> str:
    """A median with its interval, for a table."""
    if found is None:
        return UNKNOWN
    return f"{_short(found.middle)} ({_short(found.low)} to {_short(found.high)})"


def number(value: float) -> str:
    """A count, for a table."""
    return f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
