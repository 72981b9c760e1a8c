"""The published figures on costs beside the counts made here, and whole memories.

    python -m benchmarks.costs --compiled --measure --length 64 --repeats 7 \\
        --output results/pramanik-costs

writes all tables, a picture and costs.json; without an output they are printed.
"""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.costs import page
from benchmarks.measured import publish
from benchmarks.options import described

from clew.cli.tables import log
from clew.lab.bench.speed import cases
from clew.lab.costs.account import CostPlan
from clew.lab.costs.tables import measure_memories
from clew.report.document import Measured


def measure(plan: CostPlan) -> Measured:
    """Every table of published figures, and the memories at the sizes of Table A.2."""
    tables, published = page.published(plan, log)
    memories = measure_memories(cases(), 16, plan, log)
    crossings = {"windows_where_cached_gtrxl_costs_more": page.crossings()}
    return replace(
        memories,
        data=memories.data | published | crossings,
        tables=[*tables, *memories.tables],
        pictures={"operations-and-state.png": page.draw},
    )


def main(args: Sequence[str] | None = None) -> None:
    """Measures, prints and writes."""
    parser = described(__doc__)
    parser.add_argument("--batch", type=int, default=8, help="environments side by side")
    parser.add_argument("--length", type=int, default=256, help="steps of a chunk")
    parser.add_argument("--compiled", action="store_true", help="add XLA's analysis of programs")
    parser.add_argument("--measure", action="store_true", help="add their measured time")
    parser.add_argument("--repeats", type=int, default=15, help="timed calls of each program")
    parser.add_argument("--output", default="", help="write tables, a picture and JSON here")
    given = parser.parse_args(args)
    repeats = given.repeats if given.measure else 0
    publish(measure(CostPlan(given.batch, given.length, given.compiled, repeats)), given.output)


if __name__ == "__main__":
    main()
