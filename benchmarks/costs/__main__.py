"""The published figures on costs beside the counts made here, and whole memories.

    python -m benchmarks.costs --compiled --measure --length 64 --repeats 7 \\
        --output results/pramanik-costs

writes all tables, a picture and costs.json; without an output they are printed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.costs import page
from benchmarks.measured import publish, redrawn
from benchmarks.options import described
from benchmarks.plans import ending_as_commands

from clew.cli.tables import log
from clew.lab.bench.speed import cases
from clew.lab.costs.account import Account, CostPlan
from clew.lab.costs.compiled import Compiled
from clew.lab.costs.count import Arithmetic, StateSize
from clew.lab.costs.tables import measure_memories, memories_table
from clew.report.document import Measured, Table

INPUT_SIZE = 16


class Time(NamedTuple):
    """An estimate of a time, as JSON has it."""

    median: float
    low: float
    high: float
    repeats: int

    @property
    def middle(self) -> float:
        """As `Estimate` calls it."""
        return self.median


KINDS = (Account, StateSize, Arithmetic, Compiled, Time, CostPlan, page.Line)


def measure(plan: CostPlan) -> Measured:
    """Counts and measures what `document` shows."""
    attention, lines = page.attention(plan, log), page.lines(INPUT_SIZE)
    memories = measure_memories(cases(), INPUT_SIZE, plan, log)
    data = memories.data | page.published_data(attention, plan)
    data |= {"lines": lines, "windows_where_cached_gtrxl_costs_more": page.crossings(lines)}
    return document(attention, memories.tables, lines, data)


def document(
    attention: page.Found,
    memories: Sequence[Table],
    lines: Sequence[page.Line],
    data: dict[str, Any],
) -> Measured:
    """Every table of published figures, and the memories at the sizes of Table A.2."""
    tables = [*page.published_tables(attention), *memories]
    pictures = {"operations-and-state.png": partial(page.draw, lines)}
    return Measured("costs", data, tables, pictures=pictures)


def again(
    plan: CostPlan,
    attention: page.Found,
    memories: Sequence[Account],
    lines: Sequence[page.Line],
    **data: Any,
) -> Measured:
    """The document of what `costs.json` has."""
    return document(attention, [memories_table(memories, INPUT_SIZE, plan)], lines, data)


def main(args: Sequence[str] | None = None) -> None:
    """Measures, prints and writes."""
    parser = described(__doc__, draws=True)
    parser.add_argument("--batch", type=int, default=8, help="environments side by side")
    parser.add_argument("--length", type=int, default=256, help="steps of a chunk")
    parser.add_argument("--compiled", action="store_true", help="add XLA's analysis of programs")
    parser.add_argument("--measure", action="store_true", help="add their measured time")
    parser.add_argument("--repeats", type=int, default=15, help="timed calls of each program")
    parser.add_argument("--output", default="", help="write tables, a picture and JSON here")
    given = parser.parse_args(args)
    repeats = given.repeats if given.measure else 0
    plan = CostPlan(given.batch, given.length, given.compiled, repeats)
    with ending_as_commands():
        found = redrawn(again, given.output, "costs", *KINDS) if given.redraw else measure(plan)
        publish(found, given.output)


if __name__ == "__main__":
    main()
