"""How much faster a chunk is learned in parallel than step by step.

    python -m benchmarks.parallel_in_time --output results/parallel-in-time

For every memory whose state has a constant size, with one layer, and for ReLiT and AReLiT in every
form, it measures by turns the gradient of `unroll`, in the form that the memory chooses on this
machine, and that of `step` in a scan over the same chunk. On a graphics card a scan is a sequence
of small operations, each of which waits for the previous one; a form that is parallel in time has a
few large operations.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measured
from benchmarks.intervals import draw_intervals
from benchmarks.lengths import (
    NAMES,
    QUICK_NOTE,
    Gradient,
    LengthsPlan,
    call_of,
    chosen,
    chunk_options,
    compile_gradient,
    subjects,
    unrolled,
)
from benchmarks.lengths import QUICK as SHORTER

from clew.cli.tables import log as log_to_stderr
from clew.lab.bench.machine import call_seconds, device, matrix_product_rate, products_text
from clew.lab.bench.timing import Estimate, estimate, ratio
from clew.memory import scan_steps
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import planned_bytes

PLAN = LengthsPlan((256, 1024), envs=8, memories=NAMES)
QUICK = SHORTER._replace(lengths=(8, 16))
"""Enough to see that everything works; not to quote."""
NOTE = (
    "ms: the gradient for a chunk of all environments, in the memory's own form and step by step; "
    "medians of the turns and their intervals. speedup: the second divided by the first, turn by "
    "turn. MiB: peak memory as planned by XLA."
)
READS: dict[str, Gradient] = {"whole": unrolled, "steps": scan_steps}


class Row(NamedTuple):
    """One memory in one form at one length."""

    memory: str
    """with its form, for example `relit, chunkwise`"""
    length: int
    envs: int
    whole: Estimate
    """seconds of a gradient in its own form"""
    steps: Estimate
    """seconds of a gradient step by step"""
    times_faster: Estimate
    whole_bytes: int
    steps_bytes: int
    """XLA's plans: arguments, results and everything between"""


def report(plan: LengthsPlan, log: Callable[[str], None]) -> Measured:
    """Measures, and the machine's rate of products before and after."""
    machine = device()
    before = matrix_product_rate()
    rows = measure(plan, log)
    machine["product_rates"] = [before, matrix_product_rate()]
    return document(machine, plan, rows)


def document(machine: Mapping[str, Any], plan: LengthsPlan, rows: Sequence[Row]) -> Measured:
    """The measurements, as `parallel.json`, `parallel.md` and `parallel.png`."""
    found = table(rows, machine)
    return Measured(
        "parallel",
        {"machine": machine, "plan": plan, "rows": rows},
        [found],
        pictures={"parallel.png": partial(draw, rows, title=found.title)},
    )


def measure(plan: LengthsPlan, log: Callable[[str], None]) -> list[Row]:
    """All memories at all lengths, both ways, by turns.

    They are compiled at the same time, because compiling for graphics cards takes longer than all
    the measurements; nothing is timed meanwhile.
    """
    wanted = {
        (subject.label, length, way): subject
        for subject, length, way in product(subjects(plan), plan.lengths, READS)
    }

    def build(label: str, length: int, way: str) -> Any:
        log(f"compiling {label}, {way}, chunks of {length:,}")
        memory = wanted[label, length, way].memory
        return compile_gradient(memory, length, plan.envs, READS[way])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(build, *zip(*wanted, strict=True))
        programs = dict(zip(wanted, built, strict=True))
    calls = {
        point: call_of(wanted[point].memory, program, point[1], plan.envs)
        for point, program in programs.items()
    }
    seconds = call_seconds(calls, plan.rounds, log)
    held = {point: planned_bytes(program) for point, program in programs.items()}
    return [
        Row(
            label,
            length,
            plan.envs,
            estimate(took),
            estimate(seconds[label, length, "steps"]),
            ratio(seconds[label, length, "steps"], took),
            held[label, length, "whole"],
            held[label, length, "steps"],
        )
        for (label, length, way), took in seconds.items()
        if way == "whole"
    ]


def table(rows: Sequence[Row], machine: Mapping[str, Any]) -> Table:
    """One row for each memory, form and length."""
    lines = [
        [
            row.memory,
            f"{row.length:,}",
            f"{row.whole.times(1e3):.1f}",
            f"{row.steps.times(1e3):.1f}",
            f"{row.times_faster:.2f}",
            f"{row.whole_bytes / 2**20:,.1f}",
            f"{row.steps_bytes / 2**20:,.1f}",
        ]
        for row in rows
    ]
    title = (
        f"Chunks of {rows[0].envs} environments, as a whole and by steps; {machine['device']}, "
        f"{machine['cores']} cores, {products_text(machine['product_rates'])}"
    )
    columns = ("", "steps", "ms, own form", "ms, by steps", "speedup")
    columns += ("MiB, own form", "MiB, by steps")
    return tabulate("parallel", title, columns, lines, NOTE)


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """How many times faster each memory is, as a PNG, with a mark for every length."""
    series: dict[int, dict[str, Estimate]] = {
        length: {} for length in sorted({row.length for row in rows})
    }
    for row in rows:
        series[row.length][row.memory] = row.times_faster
    last = series[max(series)]
    draw_intervals(
        sorted(last, key=lambda name: last[name].middle, reverse=True),
        {f"{length:,} steps": found for length, found in series.items()},
        path,
        title=title,
        label="speedup: time step by step / time in the memory's own form",
        mark=1,
    )


def options_of() -> argparse.ArgumentParser:
    """The command line's options."""
    return chunk_options(__doc__)


def plan_of(given: argparse.Namespace) -> LengthsPlan:
    """The plan that the options ask for."""
    return chosen(given, PLAN, QUICK)


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    return measured.run(
        options_of(),
        args,
        lambda given: report(plan_of(given), log_to_stderr),
        lambda folder: measured.redrawn(document, folder, "parallel", Row, LengthsPlan),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
