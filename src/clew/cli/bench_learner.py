"""`clew bench --memory-maze`: frames per second and peak memory of the learner, by turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.tables import print_json, print_table, tell, write_figures
from clew.errors import UserError, unknown_name

if TYPE_CHECKING:
    from clew.lab.bench.learner import Row
    from clew.lab.costs.tables import Grid

FILE = "memory-maze-learner"
"""Name of what is written, .json, .md and .png."""
NOTE = (
    "frames/s: of the learner, one gradient step on noise and what belongs to it; median of the "
    "turns and its 95% interval. by gtrxl-256: rates in the same turn. MiB: peak, as planned by "
    "XLA, and what a kernel allocates besides. of products: share of the machine's own products' "
    "rate."
)


def bench_learner(
    models: Sequence[str], sequences: int, output: str, *, rounds: int, quick: bool, as_json: bool
) -> int:
    """Measures, and prints a table; with `output` also writes and draws it."""
    from clew.cli.bench import device
    from clew.lab.bench.learner import QUICK, Plan, measure
    from clew.lab.bench.learner import models as all_models
    from clew.run.machine import git_commit, use_compilation_cache

    known = all_models()
    for name in models:
        if name not in known:
            raise unknown_name("agent of Memory Maze", name, known)
    if sequences % 2:
        raise UserError(f"sequences must be even, two of them are a rollout, got {sequences}")
    plan = QUICK if quick else Plan(tuple(models) or known, sequences, rounds=rounds)
    if quick and models:
        plan = plan._replace(models=tuple(models))
    use_compilation_cache()
    machine: dict[str, Any] = device() | {"commit": git_commit()}
    rows, product = measure(plan, machine["cores"] or 1, tell)
    machine["product_rate"] = product
    data = {"machine": machine, "plan": plan, "rows": [_told(row) for row in rows]}
    found = table(rows, machine)
    if output:
        write(found, rows, data, Path(output))
    if as_json:
        print_json(data)
        return 0
    print_table(found.title, found.columns, found.rows, found.note)
    if quick:
        print("QUICK: narrow agents, two sequences and two turns, no figures to quote")
    return 0


def table(rows: "Sequence[Row]", machine: dict[str, Any]) -> "Grid":
    """One row an agent."""
    from clew.lab.costs.tables import Grid

    lines = [
        [
            row.model,
            f"{row.parameters:,}",
            f"{row.multiply_adds / 1e6:.1f}",
            f"{row.rate:,.0f}",
            f"{row.times_faster:.2f}",
            f"{row.planned_bytes / 2**20:,.0f} + {row.kernel_bytes / 2**20:,.0f}",
            f"{row.product_fraction.middle:.0%}",
        ]
        for row in rows
    ]
    product = machine["product_rate"]
    title = (
        f"Learner, {rows[0].frames:,} frames a timed gradient step; {machine['device']}, "
        f"{machine['cores']} cores, {product.low / 1e9:,.0f} to {product.high / 1e9:,.0f} GFLOP/s "
        "in matrix products"
    )
    peak = f"MiB at {rows[0].planned_frames:,} frames"
    columns = ("", "parameters", "million multiply-adds", "frames/s", "by gtrxl-256", peak)
    return Grid(title, (*columns, "of products"), lines, NOTE)


def write(found: "Grid", rows: "Sequence[Row]", data: dict[str, Any], folder: Path) -> None:
    """The figures in a folder, as .json, .md and .png; see `write_figures`."""
    draw(rows, write_figures(folder, FILE, data, found.markdown()), found.title)


def draw(rows: "Sequence[Row]", path: Path, title: str) -> None:
    """Figure 5.6 of every agent, as a PNG: frames per second and MiB."""
    from matplotlib.axes import Axes

    from clew.report.figures import COLOURS, new_figure, save, tidy

    figure = new_figure(11.0, 4.0)
    left, right = figure.subplots(1, 2)
    names = [row.model for row in rows]
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(rows))]
    rates = [row.rate for row in rows]
    below = [rate.middle - rate.low for rate in rates]
    above = [rate.high - rate.middle for rate in rates]
    middles = [rate.middle for rate in rates]
    left.barh(names, middles, color=colours, xerr=[below, above], ecolor="black")
    right.barh(names, [row.bytes / 2**20 for row in rows], color=colours)

    def finish(axes: Axes, label: str) -> None:
        axes.set_title(label, loc="left", fontsize=11)
        axes.invert_yaxis()

    finish(left, "Frames per second of the learner")
    finish(right, f"MiB at the peak of {rows[0].planned_frames:,} frames")
    figure.suptitle(title, fontsize=10)
    tidy(figure)
    save(figure, path)


def _told(row: "Row") -> dict[str, Any]:
    return row._asdict() | {"bytes": row.bytes}
