"""How long learning a chunk takes, relative to the time of the memory's own products.

    python -m benchmarks.product_times --output results/product-times

For every memory whose state has a constant size, with one layer, it measures the gradient of
`unroll` for parameters and observations. The memory's own products are those of `unroll`, counted
in the program without kernels, three times for forward and backward: once for y, and once for the
gradient of each factor. Recomputation in a backward pass is not counted, nor is anything
elementwise. Their time is their operations divided by the machine's rate of large products, which
is measured in every turn.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from benchmarks import lengths, measured
from benchmarks.intervals import draw_intervals
from benchmarks.lengths import NAMES, QUICK_NOTE, check_names, compile_gradient, unrolled

from clew.cli.tables import log as log_to_stderr
from clew.errors import require_at_least
from clew.lab.bench.machine import device, matrix_product_rate, products_text, until_ready
from clew.lab.bench.timing import Estimate, by_turns, estimate, seconds_of
from clew.lab.costs.count import multiply_adds
from clew.memory import AbstractMemory, make_memory, options_among
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import planned_bytes

AIM = 2.5
"""Largest acceptable time of a gradient, as a multiple of its own products' time."""


class ProductPlan(NamedTuple):
    """How much to measure."""

    length: int = 256
    envs: int = 8
    width: int = 128
    """of observations and of the layer; a head has 64 of it"""
    rounds: int = 6
    memories: tuple[str, ...] = NAMES


QUICK = ProductPlan(8, 1, 16, 2)
"""Enough to see that everything works; not to quote."""
NOTE = (
    "ms: the gradient for a chunk of all environments. products, ms: the time of three times the "
    "matrix products of `unroll`, at the rate measured in the same turn. ratio: the first divided "
    "by the second, turn by turn. MiB: peak memory as planned by XLA."
)


class Row(NamedTuple):
    """One memory."""

    memory: str
    seconds: Estimate
    operations: int
    """floating-point operations of its own products, forward and backward, of all environments"""
    times_products: Estimate
    """seconds relative to those of its own products at the machine's rate, turn by turn"""
    planned_bytes: int


def make(name: str, plan: ProductPlan) -> AbstractMemory:
    """A memory of one layer."""
    head = min(64, plan.width)
    sizes = {"hidden_size": plan.width, "num_layers": 1, "head_size": head}
    sizes["num_heads"] = max(1, plan.width // head)
    sizes = options_among(name, sizes)
    return make_memory(name, input_size=plan.width, key=jax.random.key(0), **sizes)


def call_of(memory: AbstractMemory, plan: ProductPlan) -> tuple[Callable[[], Any], int]:
    """A call of its gradient, and the bytes that XLA plans for it."""
    program = compile_gradient(memory, plan.length, plan.envs, unrolled)
    call = lengths.call_of(memory, program, plan.length, plan.envs)
    return until_ready(call), planned_bytes(program)


def measure(plan: ProductPlan, log: Callable[[str], None]) -> tuple[list[Row], list[float]]:
    """All memories by turns, and the machine's rate of products in every turn."""
    made = {}
    for name in plan.memories:
        log(f"compiling {name}")
        memory = make(name, plan)
        operations = 6 * multiply_adds(memory, length=plan.length).products * plan.envs
        made[name] = operations, *call_of(memory, plan)
    calls: dict[str, Callable[[], float]] = {
        name: partial(seconds_of, call) for name, (_, call, _) in made.items()
    }
    calls[""] = lambda: matrix_product_rate(1)
    found = by_turns(calls, plan.rounds, warm_up=True, log=log)
    rates = found.pop("")
    rows = []
    for name, (operations, _, held) in made.items():
        times = [s * rate / operations for s, rate in zip(found[name], rates, strict=True)]
        rows.append(Row(name, estimate(found[name]), operations, estimate(times), held))
    return sorted(rows, key=lambda row: row.times_products.middle), rates


def report(plan: ProductPlan, log: Callable[[str], None]) -> Measured:
    """Measures the memories of the plan."""
    machine = device()
    rows, machine["product_rates"] = measure(plan, log)
    return document(machine, plan, rows)


def document(machine: Mapping[str, Any], plan: ProductPlan, rows: Sequence[Row]) -> Measured:
    """The measurements, as `products.json`, `products.md` and `products.png`."""
    found = table(rows, machine, plan)
    return Measured(
        "products",
        {"machine": machine, "plan": plan, "rows": rows},
        [found],
        pictures={
            "products.png": partial(
                draw_intervals,
                [row.memory for row in rows],
                {"": {row.memory: row.times_products for row in rows}},
                title=found.title,
                label="time to learn a chunk / time of its own matrix products; dashed: target",
                mark=AIM,
            )
        },
    )


def table(rows: Sequence[Row], machine: Mapping[str, Any], plan: ProductPlan) -> Table:
    """One row a memory."""
    lines = [
        [
            row.memory,
            f"{row.seconds.times(1e3):.1f}",
            f"{1e3 * row.seconds.middle / row.times_products.middle:.1f}",
            f"{row.times_products:.2f}",
            f"{row.planned_bytes / 2**20:,.1f}",
        ]
        for row in rows
    ]
    title = (
        f"Learning from {plan.length:,} steps of {plan.envs} environments, width {plan.width}; "
        f"{machine['cores']} cores, {products_text(machine['product_rates'])}"
    )
    return tabulate("products", title, ("", "ms", "products, ms", "ratio", "MiB"), lines, NOTE)


def plan_of(given: argparse.Namespace) -> ProductPlan:
    """The plan that the options ask for.

    Raises:
        UserError: for a size below 1, or a name that is not among those to measure.
    """
    sizes = {"length": given.length, "envs": given.envs, "width": given.width}
    for name, size in sizes.items():
        require_at_least(name, size, 1)
    check_names(given.memories)
    plan = QUICK if given.quick else ProductPlan(**sizes, rounds=given.repeats)
    return plan._replace(memories=tuple(given.memories) or NAMES)


def options_of() -> argparse.ArgumentParser:
    """The command line's options."""
    found = measured.parser(__doc__, repeats=6)
    found.add_argument("--length", type=int, default=256, help="of a chunk, in steps (256)")
    found.add_argument("--envs", type=int, default=8, help="environments that learn (8)")
    found.add_argument("--width", type=int, default=128, help="of inputs and layer (128)")
    return found


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    return measured.run(
        options_of(),
        args,
        lambda given: report(plan_of(given), log_to_stderr),
        lambda folder: measured.redrawn(document, folder, "products", Row, ProductPlan),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
