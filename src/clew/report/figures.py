"""Figures in one style, drawn without matplotlib's global state, and charts as PNG and SVG."""

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from clew.files import write_file
from clew.output import printable
from clew.report.document import Chart, Panel

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which is safe for colour-blind readers."""
GREY = "#8a8a8a"
MODEL_COLOURS = (*COLOURS, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p")
"""One more marker than colours, so that 72 models look different."""
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
VECTOR = (".pdf", ".svg")
SMALL = 8.0
"""Text size in panels, in points."""
GRID = "#e6e6e6"
FADED = "#808080"
"""The colour of floors and of published numbers in every panel."""
DARK, LIGHT = "#111111", "#fefefe"
"""Text on coloured cells, which stays as it is in a dark page."""

_INK = {"#000000": "currentColor", "#ffffff": "var(--card)", GRID: "var(--line)"}
"""Colours that a page replaces by its theme's, light or dark."""


class Style(NamedTuple):
    """How a model is drawn in every chart."""

    colour: str
    marker: str
    dash: Any
    """A line style of matplotlib."""


Styles = Mapping[str, Style]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, drawn by Agg and unknown to `pyplot`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(figure: Figure) -> Figure:
    """Sets the common style of all figures: open frames, readable text, and literal names.

    Numbers and labels of axes are left alone, as they may be formulas.
    """
    lines = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    along = {text for axis in lines for text in axis.findobj(Text)}
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text not in along:
            text.set_text(plain(text.get_text()))
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10)
    return figure


def plain(name: str) -> str:
    """A name escaped for figures, so that it is not read as a formula."""
    return re.sub(r"(?<!\\)\$", r"\\$", printable(name))


def draw_cells(
    axes: Axes,
    values: Float[np.ndarray, "rows columns"],
    shades: Float[np.ndarray, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
) -> AxesImage:
    """Draws a heat map with a number in each cell, the first row at the top.

    Args:
        axes: an empty panel.
        values: the numbers; NaN leaves its cell empty.
        shades: the colours of the cells, from 0 to 1.
        rows: labels.
        columns: labels.

    Returns:
        The picture, for a colour bar.
    """
    picture = axes.imshow(shades, vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns)
    for y, x in np.argwhere(~np.isnan(values)):
        colour = DARK if shades[y, x] > 0.6 else LIGHT
        text = f"{values[y, x]:.2f}"
        axes.text(x, y, text, ha="center", va="center", color=colour, fontsize=7)
    return picture


def number_log_axis(axis: Axis) -> None:
    """Labels a logarithmic axis with 1, 2, 5, 10 and so on."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path, style: Callable[[Figure], Figure] = tidy) -> Path:
    """Writes the figure atomically, as PNG unless the path ends in `VECTOR`; returns the path."""
    path = Path(path)
    kind = path.suffix[1:] if path.suffix in VECTOR else "png"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    style(figure).savefig(drawn, dpi=150, format=kind)
    write_file(path, [drawn.getbuffer()])
    return path


def styles_of(models: Iterable[str]) -> Styles:
    """A colour, marker and line for every model; colours repeat with dashed lines."""
    return {
        model: Style(
            MODEL_COLOURS[index % len(MODEL_COLOURS)],
            MARKERS[index % len(MARKERS)],
            DASHES[index // len(MODEL_COLOURS) % len(DASHES)],
        )
        for index, model in enumerate(dict.fromkeys(models))
    }


def panel_svg(panel: Panel, size: tuple[float, float], name: str) -> str:
    """One panel as an SVG element for a page, with real text and in the page's colours.

    The size is in inches; the name, unique on the page, is the prefix of all ids in the SVG.
    """
    figure = new_figure(*size)
    axes = figure.subplots()
    panel.draw(axes)
    finish(axes)
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    text = _svg(tidy_small(figure), name)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", text, count=5)
    text = re.sub(r'(<g) id="[^"]*"', r"\1", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font: \1 sans-serif", text)
    text = re.sub(r"#(?:000000|ffffff|e6e6e6)", lambda found: _INK[found[0]], text)
    text = re.sub(r"<!--.*?-->\n?|(?<=>)\s+(?=<(?!/?tspan))", "", text, flags=re.DOTALL)
    return text.replace("<svg", '<svg role="img" aria-hidden="true"', 1)


def save_chart(chart: Chart, styles: Styles, folder: Path) -> Path:
    """Writes all panels of a chart with its title and legend as PNG and SVG.

    Returns:
        The path of the PNG.
    """
    columns = min(chart.columns, len(chart.panels))
    lines = math.ceil(len(chart.panels) / columns)
    width, height = chart.size
    name = 0.6 + 0.085 * max(map(len, chart.models), default=0)  # inches, with its line
    ncols = max(1, min(4, int(width * columns / name)))
    legend = 0.3 * math.ceil(len(chart.models) / ncols)
    figure = new_figure(width * columns, height * 1.1 * lines + 0.5 + legend)
    frames = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, panel in zip(frames, chart.panels, strict=False):
        panel.draw(axes)
        axes.set_title(panel.title, fontsize=10, loc="left")
        finish(axes)
    for axes in frames[len(chart.panels) :]:
        axes.set_visible(False)
    if chart.models:
        handles = legend_handles(chart.models, styles)
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols, frameon=False)
    figure.suptitle(chart.title, fontsize=12, wrap=True)
    path = save(figure, folder / f"{chart.name}.png", tidy_small)
    figure.set_layout_engine("none")  # the layout is final, and computing it again is slow
    text = _svg(figure, chart.name)
    write_file(folder / f"{chart.name}.svg", [text.encode()])
    return path


def legend_handles(models: Sequence[str], styles: Styles) -> list[Line2D]:
    """The lines of a legend, one for each model."""
    return [
        Line2D([], [], color=s.colour, marker=s.marker, linestyle=s.dash, label=m, markersize=5)
        for m, s in ((model, styles[model]) for model in models)
    ]


def legend_svg(style: Style, name: str) -> str:
    """The line and marker of one model, for a legend in a page."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1, 2], [0, 0, 0], color=style.colour, linestyle=style.dash, linewidth=2)
        axes.plot([1], [0], color=style.colour, marker=style.marker, markersize=7)
        axes.set_axis_off()

    return panel_svg(Panel("", draw), (0.45, 0.2), name)


def finish(axes: Axes) -> None:
    """Sets the grid and the label size of all panels."""
    if not axes.images:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(SMALL)


def tidy_small(figure: Figure) -> Figure:
    """The common style with the small text of panels."""
    tidy(figure)
    for axes in figure.axes:
        axes.tick_params(labelsize=SMALL, color=FADED)
        axes.spines[["left", "bottom"]].set_color(FADED)
    return figure


def _svg(figure: Figure, name: str) -> str:
    buffer = io.StringIO()
    # Matplotlib takes these two only from its global settings, which the context restores. The salt
    # makes the ids within the picture reproducible, and different from another picture's.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
