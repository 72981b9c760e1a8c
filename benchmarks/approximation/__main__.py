"""Figure 4.1 of Pramanik (2023) for four sets of waves, and other schemes that were tried.

    python -m benchmarks.approximation results/pramanik-approximation

writes figure-4-1.csv, over-time.csv, sets.csv, bounds.csv, attention.csv, search.csv and their
pictures, in a minute and a half on a free core. Nothing is trained. The documentation's page on the
approximation describes the findings.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.approximation import errors, figures, tables
from benchmarks.approximation.attention import attention_errors, attention_rows
from benchmarks.approximation.figures import FLOOR, with_legend
from benchmarks.approximation.findings import findings
from benchmarks.approximation.kernels import SHIPPED, Kernel
from benchmarks.approximation.schemes import (
    SCHEMES,
    attention_bound,
    best_scale,
    least_square,
    least_square_of_waves,
    square_over_time,
    state_bound,
)
from benchmarks.approximation.search import CLASSES, search
from benchmarks.approximation.tables import TIME, Row
from benchmarks.options import described
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clew.cli.tables import log
from clew.report.figures import COLOURS, new_figure

SEED = 0
DRAWS = 50
"""The size of keys and values, as in the thesis."""
SOME_R = (1, 2, 3, 7, 15, 31)
SOME_GATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
ATTENDING = ("thesis", "code", "half_wave", "full_wave", "odd_wave", "shifted_half_wave", "window")
STYLES = figures.STYLES | {
    "shifted_half_wave": (COLOURS[0], "--"),
    "gauss": (COLOURS[4], "-"),
    "golden": (COLOURS[5], "-"),
    "random_frequencies": (COLOURS[4], ":"),
    "random_signs": (COLOURS[5], ":"),
    "tapered": (COLOURS[3], ":"),
}


def _line(
    axes: Axes, name: str, xs: Sequence[float], ys: Sequence[float], marker: str = ""
) -> None:
    figures.draw_line(axes, name, xs, ys, marker, STYLES[name], SCHEMES[name].label)


def compute(draws: int) -> dict[str, list[Row]]:
    """All tables, by the name of their file."""
    attending = {name: SCHEMES[name] for name in ATTENDING}
    return {
        "figure-4-1": tables.figure_rows(draws, SEED, log),
        "over-time": tables.time_rows(),
        "sets": set_rows(),
        "bounds": bound_rows(),
        "attention": attention_rows(
            SOME_R[:-1],
            draws,
            SEED,
            lambda r, _, episodes: attention_errors(attending, r, episodes),
            log,
        ),
        "search": search_rows(),
    }


def main(folder: Path, draws: int = DRAWS, *, redraw: bool = False) -> None:
    """Computes and writes everything, and prints what was found."""
    rows = tables.read(folder) if redraw else tables.write(compute(draws), folder)
    log("drawing")
    figures.draw_all(rows, folder)
    figures.write(sets(rows["sets"]), folder / "sets.png")
    figures.write(attention(rows["attention"]), folder / "attention.png")
    margin = min(row["found_square"] / row["least_square"] for row in rows["search"])
    for line in findings(rows["figure-4-1"]):
        print(line)
    print(f"search: the least square error found is {margin:.6f} of the proved bound")


def set_rows() -> list[Row]:
    """Every set of waves: relative errors of C_t over time and at t = 100, and their bounds."""
    return [_set_row(*case) for case in _cases(SCHEMES.items())]


def _cases(kernels: Iterable[tuple[str, Kernel]]) -> list[tuple[str, Kernel, int, float]]:
    return [(n, k, r, g) for n, k in kernels for r in SOME_R for g in SOME_GATES]


def _set_row(name: str, kernel: Kernel, r: int, gate: float) -> Row:
    vectors, least = r + 1, least_square_of_waves
    row = {"set": name, "r": r, "vectors": vectors, "gate": gate}
    square, scaled = least_square(vectors, gate, 10**6), None
    if kernel.waves is not None:
        waves = kernel.waves(r)
        square = square_over_time(waves, gate)
        factor = best_scale(waves, gate)
        scaled = square_over_time(waves._replace(scale=waves.scale * factor), gate)
    return row | {
        "relative_error_over_time": math.sqrt(square),
        "with_best_scale": None if scaled is None else math.sqrt(scaled),
        "relative_error_at_100": math.sqrt(errors.square_at(kernel.matrix(r, TIME), gate)),
        "least_of_waves": math.sqrt(least(vectors, gate)),
        "least_of_waves_any_scale": math.sqrt(least(vectors, gate, any_scale=True)),
        "least_of_rank": math.sqrt(least_square(vectors, gate, 10**6)),
    }


def bound_rows() -> list[Row]:
    """Bounds on C_t and a_t at t = 100 that hold for every input, per unit of |v| and |k|."""
    rows: list[Row] = []
    for name, kernel, r, gate in _cases(SHIPPED.items()):
        delta = kernel.matrix(r, TIME)
        rows.append(
            {"set": name, "r": r, "gate": gate}
            | {"state_bound": state_bound(delta, gate)}
            | {"attention_bound": attention_bound(delta, gate)}
        )
    return rows


def search_rows() -> list[Row]:
    """The results of the search, beside the proved minimum."""
    rows: list[Row] = []
    for vectors in (2, 3, 4, 6):
        for gate in (0.1, 0.3, 0.5):
            for kind, what in CLASSES.items():
                if vectors == 6 and kind not in ("weights", "waves"):
                    continue  # the larger tables take minutes and give the same result
                rows.append(
                    {"class": kind, "what": what, "vectors": vectors, "gate": gate}
                    | {"found_square": search(kind, vectors, gate)}
                    | {"least_square": least_square_of_waves(vectors, gate, True)}
                )
    return rows


def sets(rows: Sequence[Row]) -> Figure:
    """Every set of waves: the relative error of C_t, its root mean square over time."""
    figure = new_figure(11, 5)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, r in zip(panels, (1, 3, 7), strict=True):
        for name in SCHEMES:
            own = [row for row in rows if row["set"] == name and row["r"] == r]
            gates = [row["gate"] for row in own]
            _line(axes, name, gates, [row["relative_error_over_time"] for row in own])
        axes.set_title(f"r = {r}, {r + 1} vectors", fontsize=11, loc="left")
        axes.set_xlabel("gate c", fontsize=11)
        axes.set_ylim(FLOOR, 40)
    panels[0].set_ylabel("RMS relative error of $C_t$ over time", fontsize=11)
    return with_legend(figure, "All sets of waves with the same number of vectors")


def attention(rows: Sequence[Row]) -> Figure:
    """The relative error of a_t against r for every kind of gates."""
    labels = list(dict.fromkeys(row["gates"] for row in rows))
    figure = new_figure(11, 8.5)
    panels = figure.subplots(3, 3, sharex=True, sharey="row")
    for axes, label in zip(panels.ravel(), labels, strict=True):
        for name in ATTENDING:
            own = [row for row in rows if row["set"] == name and row["gates"] == label]
            _line(axes, name, [r["r"] for r in own], [r["attention"] for r in own], marker="o")
        axes.axhline(1, color="0.7", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 3, 7, 15], ["1", "2", "3", "7", "15"])
        axes.minorticks_off()
        axes.set_title(f"gates: {label}", fontsize=11, loc="left")
    for axes in panels[-1]:
        axes.set_xlabel("r", fontsize=11)
    for axes in panels[:, 0]:
        axes.set_ylabel("relative error of $a_t$", fontsize=11)
    return with_legend(figure, "Error of the attention output (1: as wrong as no output)")


if __name__ == "__main__":
    parser = described(__doc__, draws=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    main(given.folder, redraw=given.redraw)
