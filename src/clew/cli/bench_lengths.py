"""`clew bench --lengths`: time and memory of learning against the length of chunks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.tables import print_json, print_table, tell, write_figures

if TYPE_CHECKING:
    from clew.lab.bench.lengths import Row
    from clew.lab.costs.tables import Grid

NOTE = (
    "us: microseconds for one observation of one environment, forward and backward, and its 95% "
    "interval. by the shortest: that by the same at the shortest length, turn by turn. MiB: peak, "
    "as planned by XLA, and what the kernel allocates besides. states kept: the plan of the same "
    "gradient where each step's states and products are kept; in brackets the states alone."
)


def bench_lengths(output: str, *, rounds: int, quick: bool, as_json: bool) -> int:
    """Measures, and prints a table; with `output` also writes and draws it."""
    from clew.cli.bench import device
    from clew.lab.bench.lengths import QUICK, Plan, measure
    from clew.lab.bench.speed import matrix_product_rate
    from clew.run.machine import git_commit

    plan = QUICK if quick else Plan(rounds=rounds)
    machine: dict[str, Any] = device() | {"commit": git_commit()}
    repeats = 1 if quick else 5
    before = matrix_product_rate(repeats)
    rows = measure(plan, machine["cores"] or 1, tell)
    machine["product_rates"] = [before, matrix_product_rate(repeats)]
    data = {"machine": machine, "plan": plan, "rows": rows}
    found = table(rows, machine)
    if output:
        write(found, rows, data, Path(output))
    if as_json:
        print_json(data)
        return 0
    print_table(found.title, found.columns, found.rows, found.note)
    if quick:
        print("QUICK: short chunks and two turns, no figures to quote")
    return 0


def table(rows: "Sequence[Row]", machine: dict[str, Any]) -> "Grid":
    """One row a memory and length."""
    from clew.lab.costs.tables import Grid

    lines = [
        [
            row.memory,
            f"{row.length:,}",
            f"{row.microseconds:.1f}",
            f"{row.times_shortest:.2f}",
            f"{row.planned_bytes / 2**20:,.1f} + {row.kernel_bytes / 2**20:,.1f}",
            f"{row.kept_bytes / 2**20:,.1f} ({row.state_bytes / 2**20:,.1f})",
            f"{row.kept_bytes / (row.planned_bytes + row.kernel_bytes):.1f}",
        ]
        for row in rows
    ]
    rates = sorted(machine["product_rates"])
    title = (
        f"Chunks of several lengths, {rows[0].envs} environments; {machine['cores']} cores, "
        f"{rates[0] / 1e9:,.0f} to {rates[-1] / 1e9:,.0f} GFLOP/s in matrix products"
    )
    columns = ("", "chunk", "us", "by the shortest", "MiB", "states kept, MiB", "times less")
    return Grid(title, columns, lines, NOTE)


def write(found: "Grid", rows: "Sequence[Row]", data: dict[str, Any], folder: Path) -> None:
    """The figures in a folder, as .json, .md and .png; see `write_figures`."""
    draw(rows, write_figures(folder, "lengths", data, found.markdown()), found.title)


def draw(rows: "Sequence[Row]", path: Path, title: str) -> None:
    """Time and memory against the length of chunks, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    from clew.report.figures import COLOURS

    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    lengths = sorted({row.length for row in rows})
    for name, colour in zip(dict.fromkeys(r.memory for r in rows), COLOURS, strict=False):
        mine = [row for row in rows if row.memory == name]
        times = [row.microseconds for row in mine]
        left.plot(lengths, [t.middle for t in times], "o-", color=colour, label=name)
        low, high = [t.low for t in times], [t.high for t in times]
        left.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0)
        held = [(row.planned_bytes + row.kernel_bytes) / 2**20 for row in mine]
        right.plot(lengths, held, "o-", color=colour)
        kept = [row.kept_bytes / 2**20 for row in mine]
        right.plot(lengths, kept, "--", color=colour)
    left.set_title("Microseconds per observation, forward and backward", loc="left", fontsize=11)
    right.set_title("MiB at the peak; dashed: if every state were kept", loc="left", fontsize=11)
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    right.yaxis.set_minor_formatter(NullFormatter())
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("chunk in steps")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=100)
