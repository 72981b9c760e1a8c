"""Pictures of the study, from the rows of its tables."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from benchmarks.approximation import tables
from benchmarks.approximation.kernels import KERNELS, SHIPPED
from benchmarks.approximation.tables import Row
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator

from clew.report.figures import COLOURS, new_figure, save, tidy

Rows = Sequence[Row]

STYLES: dict[str, tuple[str, str]] = {
    "thesis": (COLOURS[1], "-"),
    "thesis_4_22": (COLOURS[1], ":"),
    "code": (COLOURS[3], "--"),
    "half_wave": (COLOURS[0], "-"),
    "full_wave": (COLOURS[2], "-"),
    "odd_wave": (COLOURS[2], "--"),
    "window": (COLOURS[6], ":"),
}
FLOOR = 1e-3
"""Smaller errors are drawn at this value."""


def draw_all(rows: Mapping[str, Rows], folder: Path) -> list[Path]:
    """Draws every picture as PNG and SVG into a folder, and returns the paths of the PNGs."""
    drawn = {
        "figure-4-1": figure_4_1(rows["figure-4-1"]),
        "ratios": ratios(rows["figure-4-1"]),
        "deltas": deltas(),
        "over-time": over_time(rows["over-time"]),
    }
    return [write(figure, folder / f"{name}.png") for name, figure in drawn.items()]


def figure_4_1(rows: Rows) -> Figure:
    """The error of C_t at t = 100 against r and the gate, as the thesis draws it."""
    names = list(tables.FIGURE_KERNELS)
    figure = new_figure(11, 7)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    norm = LogNorm(0.01, 100)
    images: list[AxesImage] = []
    for axes, name in zip(panels.ravel(), names, strict=True):
        images.append(_heatmap(axes, rows, name, "mean_error", norm, mpl.colormaps["viridis"]))
        axes.set_title(KERNELS[name].label, fontsize=11, loc="left")
    figure.colorbar(images[0], ax=panels, extend="both", label="mean Frobenius norm of the error")
    _label_maps(panels)
    figure.suptitle("Figure 4.1: error of the approximate state, d = 128, t = 100", fontsize=13)
    return figure


def ratios(rows: Rows) -> Figure:
    """The error of the others at t = 100, as a multiple of the full wave's."""
    grid = {(row["set"], row["r"], row["gate"]): row["calculated_error"] for row in rows}
    own: list[Row] = [
        {**row, "ratio": _ratio(row["calculated_error"], grid["full_wave", row["r"], row["gate"]])}
        for row in rows
    ]
    figure = new_figure(11, 3.9)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    norm = LogNorm(1e-2, 1e2)
    images: list[AxesImage] = []
    for axes, name in zip(panels, ("thesis", "code", "half_wave"), strict=True):
        images.append(_heatmap(axes, own, name, "ratio", norm, mpl.colormaps["RdBu"]))
        axes.set_title(f"{KERNELS[name].label} / full wave", fontsize=11, loc="left")
    figure.colorbar(images[0], ax=panels, extend="both", label="ratio of errors")
    _label_maps(panels.reshape(1, -1))
    figure.suptitle("Blue: the full wave is closer to C_t at t = 100", fontsize=13)
    return figure


def deltas() -> Figure:
    """The approximate deltas themselves: which steps are mixed with which."""
    names = ["thesis", "code", "half_wave", "full_wave", "odd_wave", "window"]
    figure = new_figure(11, 2.5)
    panels = figure.subplots(1, len(names), sharey=True)
    images: list[AxesImage] = []
    extent = (0.5, 32.5, 32.5, 0.5)
    for axes, name in zip(panels, names, strict=True):
        delta = KERNELS[name].matrix(7, 32)
        images.append(axes.imshow(delta, cmap="RdBu", vmin=-2, vmax=2, extent=extent))
        axes.set_title(KERNELS[name].label, fontsize=8, loc="left")
        axes.set_xlabel("step n", fontsize=10)
    panels[0].set_ylabel("step m", fontsize=10)
    figure.colorbar(images[0], ax=panels, label="delta(m, n)")
    figure.suptitle("The Kronecker delta as approximated with r = 7", fontsize=13)
    return figure


def over_time(rows: Rows) -> Figure:
    """The relative error of C_t against t."""
    gates = sorted({row["gate"] for row in rows})
    figure = new_figure(11, 3.8)
    panels = figure.subplots(1, len(gates), sharey=True)
    for axes, gate in zip(panels, gates, strict=True):
        for name in tables.OVER_TIME:
            own = [row for row in rows if row["set"] == name and row["gate"] == gate]
            draw_line(axes, name, [r["time"] for r in own], [r["relative_error"] for r in own])
        axes.set_title(f"gate {gate}", fontsize=11, loc="left")
        axes.set_xlabel("time step t", fontsize=11)
    panels[0].set_ylabel("relative error of $C_t$", fontsize=11)
    return with_legend(figure, "Error over time, r = 7 (8 vectors)")


def _heatmap(
    axes: Axes, rows: Rows, name: str, column: str, norm: Normalize, colours: Colormap
) -> AxesImage:
    own = [row for row in rows if row["set"] == name]
    rs, gates = (sorted({row[key] for row in own}) for key in ("r", "gate"))
    grid = np.empty((len(gates), len(rs)))
    for row in own:
        grid[gates.index(row["gate"]), rs.index(row["r"])] = row[column]
    extent = (rs[0] - 0.5, rs[-1] + 0.5, 0.0, 1.04)
    values = np.clip(grid, norm.vmin, norm.vmax)
    return axes.imshow(
        values, norm=norm, cmap=colours, extent=extent, origin="lower", aspect="auto"
    )


def _ratio(own: float, best: float) -> float:
    # Where both are rounding errors, the ratio means nothing.
    return 1.0 if max(own, best) < 1e-9 else own / max(best, 1e-12)


def _label_maps(panels: np.ndarray) -> None:
    for axes in panels[-1]:
        axes.set_xlabel("r", fontsize=11)
    for axes in panels[:, 0]:
        axes.set_ylabel("gate c", fontsize=11)


def draw_line(
    axes: Axes,
    name: str,
    xs: Sequence[float],
    ys: Sequence[float],
    marker: str = "",
    style: tuple[str, str] | None = None,
    label: str = "",
) -> None:
    """One set's errors on a logarithmic axis, clipped at `FLOOR`."""
    colour, dash = style or STYLES[name]
    shown = np.maximum(ys, FLOOR)
    axes.plot(
        xs, shown, color=colour, linestyle=dash, marker=marker, markersize=3,
        linewidth=2.2 if name in SHIPPED else 1.4, label=label or KERNELS[name].label,
    )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator())
    axes.minorticks_off()
    axes.grid(axis="y", color="0.9")


def with_legend(figure: Figure, title: str) -> Figure:
    """The figure with its title and a legend of the first panel's lines below."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(title, fontsize=13)
    return figure


def write(figure: Figure, path: Path) -> Path:
    """Writes a figure as PNG and SVG, and returns the path of the PNG."""
    save(figure, path)
    figure.set_layout_engine("none")  # the layout is done, and computing it again takes a while
    buffer = io.StringIO()
    # The salt makes the ids within the SVG the same every time.
    with mpl.rc_context({"svg.hashsalt": path.stem}):
        tidy(figure).savefig(buffer, format="svg", metadata={"Date": None})
    path.with_suffix(".svg").write_text(buffer.getvalue(), encoding="utf-8")
    return path
