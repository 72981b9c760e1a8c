"""Charts drawn: the look of every model, panels as SVG within a page, whole charts as files."""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from clew.report import curves as plots
from clew.report.curves import new_figure, save, tidy
from clew.report.document import Chart, Panel

GREY = "#8a8a8a"
COLOURS = (*plots.COLOURS, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p")
"""One more than there are colours, so that 72 models look different."""
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
SMALL = 8.0
"""Points of the text in panels."""
GRID = "#e6e6e6"
FADED = "#808080"
"""Of floors and of what is published, in every panel."""

_INK = {"#000000": "currentColor", "#ffffff": "var(--card)", GRID: "var(--line)"}
"""What a page's own light and dark take the place of."""


class Style(NamedTuple):
    """How a model is drawn, in every chart."""

    colour: str
    marker: str
    dash: Any
    """What matplotlib takes for a linestyle."""


Styles = Mapping[str, Style]


def styles_of(models: Iterable[str]) -> Styles:
    """A colour, marker and line for every model; from the ninth on colours return, dashed."""
    return {
        model: Style(
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
            DASHES[index // len(COLOURS) % len(DASHES)],
        )
        for index, model in enumerate(dict.fromkeys(models))
    }


def panel_svg(panel: Panel, size: tuple[float, float], name: str) -> str:
    """One panel as an SVG element for a page: text as text, the page's own colours for ink.

    Args:
        panel: what to draw.
        size: in inches.
        name: unique on the page; what the picture refers to within itself begins with it.
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
    legend = 0.3 * math.ceil(len(chart.models) / 4)
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
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(chart.title, fontsize=12, wrap=True)
    path = save(figure, folder / f"{chart.name}.png")
    figure.set_layout_engine("none")  # all has its place, and finding it takes a while
    text = _svg(tidy_small(figure), chart.name)
    (folder / f"{chart.name}.svg").write_text(text, encoding="utf-8")
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
    """What all panels have in common."""
    if not axes.images:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(SMALL)


def tidy_small(figure: Figure) -> Figure:
    """The house's frames with the small text of panels."""
    tidy(figure)
    for axes in figure.axes:
        axes.tick_params(labelsize=SMALL, color=FADED)
        axes.spines[["left", "bottom"]].set_color(FADED)
    return figure


def _svg(figure: Figure, name: str) -> str:
    buffer = io.StringIO()
    # Matplotlib knows these two from its global settings only; the context puts them back. The
    # salt makes the names within the picture the same every time, and unlike another picture's.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
