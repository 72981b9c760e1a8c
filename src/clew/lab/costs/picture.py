"""A picture of operations and state against the length of context that a memory may use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from clew.lab.costs.formulas import formula
from clew.lab.costs.subjects import REPROJECTED
from clew.report.figures import COLOURS, new_figure

CONTEXTS = tuple(2**k for k in range(5, 14))
"""Windows of GTrXL, in steps."""


class Line(NamedTuple):
    """One memory at every length of context."""

    label: str
    operations: list[int]
    """multiply-adds of a step"""
    floats: list[int]
    """numbers of state"""


def lines(input_size: int = 16) -> list[Line]:
    """The memories of Pramanik's T-Maze study at Table A.2's sizes, by formula."""
    layers = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64}
    cases: list[tuple[str, str, dict[str, Any], bool]] = [
        ("GTrXL" + REPROJECTED, "gtrxl", layers, True),
        ("GTrXL, cached", "gtrxl", layers, False),
        ("ReLiT", "relit", layers | {"eta": 4}, False),
        ("AReLiT", "arelit", layers | {"eta": 4, "r": 1}, False),
        ("Linear Transformer", "linear_transformer", layers, False),
        ("LSTM", "lstm", {"hidden_size": 600}, False),
        ("GRU", "gru", {"hidden_size": 680}, False),
    ]
    found = []
    for label, memory, options, reproject in cases:
        bills = [
            formula(
                memory,
                input_size,
                reproject=reproject,
                **(options | {"window": window} if memory == "gtrxl" else options),
            )
            for window in CONTEXTS
        ]
        found.append(Line(label, [b.per_step for b in bills], [b.total("floats") for b in bills]))
    return found


def crossings(input_size: int = 16) -> dict[str, int]:
    """The smallest window at which a cached GTrXL's step costs more than each other memory's.

    GTrXL's multiply-adds are a linear function of its window, so two of them tell all.
    """
    cached = next(line for line in lines(input_size) if line.label == "GTrXL, cached")
    (x0, x1), (y0, y1) = CONTEXTS[:2], cached.operations[:2]
    slope = (y1 - y0) // (x1 - x0)
    return {
        line.label: max(1, x0 + (line.operations[0] - y0) // slope + 1)
        for line in lines(input_size)
        if not line.label.startswith("GTrXL")
    }


def draw(path: Path) -> None:
    """Writes the picture as a PNG."""
    figure = new_figure(12, 5)
    left, right = figure.subplots(1, 2)
    drawn = lines()
    _panel(left, drawn, [line.operations for line in drawn], "multiply-adds per step")
    _panel(right, drawn, [line.floats for line in drawn], "floats of state per environment")
    left.set_title("Operations", loc="left")
    right.set_title("State", loc="left")
    figure.suptitle(
        "Whole memories at the sizes of Pramanik (2023), Table A.2; GTrXL's context is its window M"
    )
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, drawn: Sequence[Line], values: Sequence[Sequence[int]], what: str) -> None:
    """One quantity of every memory, each line named at its right end."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for line, ys, colour in zip(drawn, values, COLOURS, strict=True):
        style = "--" if REPROJECTED in line.label else "-"
        axes.plot(CONTEXTS, ys, style, color=colour, linewidth=1.8)
    low = min(min(ys) for ys in values)
    high = max(max(ys) for ys in values)
    ends = _apart([ys[-1] for ys in values], (high / low) ** 0.055)
    for line, ys, y, colour in zip(drawn, values, ends, COLOURS, strict=True):
        edge = [CONTEXTS[-1], CONTEXTS[-1] * 1.2]
        axes.plot(edge, [ys[-1], y], color=colour, linewidth=0.7, clip_on=False)
        axes.text(CONTEXTS[-1] * 1.25, y, line.label, color=colour, va="center", fontsize=9)
    axes.set_xticks(CONTEXTS, [f"{c:,}" for c in CONTEXTS], fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(CONTEXTS[0] / 1.1, CONTEXTS[-1])
    axes.set_xlabel("context in steps")
    axes.set_ylabel(what)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _apart(values: Sequence[int], least: float) -> list[float]:
    """Places for labels at the given heights, each at least `least` times the one below."""
    places = [0.0] * len(values)
    before = 0.0
    for index in sorted(range(len(values)), key=lambda i: values[i]):
        places[index] = before = max(float(values[index]), before * least)
    return places
