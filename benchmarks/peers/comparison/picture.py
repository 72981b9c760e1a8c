"""The picture of a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from clew.report.figures import COLOURS, new_figure, number_log_axis
from comparison.compare import Row
from comparison.points import Point, label, library, point_of, points

PANELS = {
    "LSTM": ("lstm",),
    "GRU": ("gru",),
    "Linear attention": ("linear_attention",),
    "Gated delta rule": ("gated_delta_net",),
    "mLSTM": ("mlstm",),
    "minGRU": ("min_gru",),
    "LRU": ("lru",),
    "GRU, resets": ("gru-resets",),
    "LSTM, resets": ("lstm-resets",),
    "LSTM policy": ("policy", "policy-starts"),
}
"""Maps the title of a panel to families; the second one's lines are dashed."""

LIBRARIES = {
    "clew": "#000000",
    "torch": COLOURS[1],
    "flax": COLOURS[0],
    "memax": COLOURS[2],
    "memorax": COLOURS[3],
    "sb3-contrib": COLOURS[1],
    "mlstm-kernels": COLOURS[0],
    "fla": COLOURS[0],
    "mambapy": COLOURS[1],
    "torchrl-pad": COLOURS[1],
    "torchrl-scan": COLOURS[0],
}
"""Colours."""

MARKERS = {
    "clew": "o",
    "sb3-contrib": "s",
    "mlstm-kernels": "^",
    "fla": "v",
    "mambapy": "D",
    "torchrl-pad": "P",
    "torchrl-scan": "X",
}
"""Marks that tell libraries of one colour apart; the others have a dot."""


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Writes the picture as a PNG.

    With one number of environments and one width: microseconds per observation above, MiB of a call
    below, against the length of chunks. With several: how many times longer each peer takes.
    """
    learned = [row for row in rows if row.mode == "learn"]
    several = len({(row.envs, row.width) for row in learned}) > 1
    figure = _ratios(learned) if several else _growth(rows)
    figure.suptitle(title, wrap=True)
    figure.savefig(path, dpi=100)


def _growth(rows: Sequence[Row]) -> Figure:
    """Two panels for each family, one line for each library."""
    figure = new_figure(15, 7.5)
    measured = {row.family for row in rows}
    shown_panels = {name: of for name, of in PANELS.items() if measured & set(of)}
    panels = figure.subplots(2, len(shown_panels), squeeze=False, sharex=True)
    for column, (name, families) in enumerate(shown_panels.items()):
        above, below = panels[0][column], panels[1][column]
        for family, style in zip(families, ("-", "--"), strict=False):
            found = [r for r in rows if r.family == family and r.mode == "learn"]
            _lines(above, below, found, style)
        above.set_title(name, loc="left")
        below.set_xlabel("chunk length (steps)")
        for axes in (above, below):
            _dress(axes, sorted({r.length for r in rows if r.mode == "learn"}))
    panels[0][0].set_ylabel("microseconds per observation\nforward and backward")
    panels[1][0].set_ylabel("MiB added by one call")
    shown = [n for n in LIBRARIES if any(library(r.subject) == n for r in rows)]
    handles = [Line2D([], [], label=n, **_look(n)) for n in shown]
    handles.append(Line2D([], [], color="grey", linestyle="--", label="chunk with episode starts"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _lines(above: Axes, below: Axes, rows: Sequence[Row], style: str) -> None:
    """One family's subjects, clew's last and so on top."""
    for subject in sorted({r.subject for r in rows}, reverse=True, key=_clew_last):
        mine = sorted((r for r in rows if r.subject == subject), key=lambda r: r.length)
        look: dict[str, Any] = _look(library(subject)) | {"linestyle": style}
        timed = [r for r in mine if r.seconds is not None]
        each = [1e6 / (r.length * r.envs) for r in timed]
        medians = [r.seconds for r in timed if r.seconds is not None]
        lengths = [r.length for r in timed]
        middle = [m.middle * e for m, e in zip(medians, each, strict=True)]
        above.plot(lengths, middle, **look)
        low = [m.low * e for m, e in zip(medians, each, strict=True)]
        high = [m.high * e for m, e in zip(medians, each, strict=True)]
        above.fill_between(lengths, low, high, color=look["color"], alpha=0.2, linewidth=0)
        sized = [r for r in mine if r.resident_bytes]
        mebibytes = [(r.resident_bytes or 0) / 2**20 for r in sized]
        at = [r.length for r in sized]
        below.plot(at, mebibytes, **look)


def _dress(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths], fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    number_log_axis(axes.yaxis)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _clew_last(subject: str) -> bool:
    return library(subject) != "clew"


def _look(name: str) -> dict[str, Any]:
    mark = MARKERS.get(name, ".")
    return {"color": LIBRARIES[name], "marker": mark, "markersize": 6 if mark in "o." else 4}


def _ratios(rows: Sequence[Row]) -> Figure:
    """A panel for each family, a line for each point, a mark with its interval for each peer."""
    of_family = {
        name: [r for r in rows if r.family in families] for name, families in PANELS.items()
    }
    shown = {name: found for name, found in of_family.items() if found}
    places = {point: -place for place, point in enumerate(points(rows))}
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure = new_figure(3.4 * columns, 1.0 + lines * (0.8 + 0.3 * len(places)))
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axes, (name, found) in zip(panels, shown.items(), strict=False):
        _ratios_panel(axes, found, places)
        axes.set_xscale("log")
        number_log_axis(axes.xaxis)
        axes.set_yticks(list(places.values()), [label(point, rows) for point in places])
        axes.set_title(name, loc="left")
        axes.set_xlabel("its time / clew's time")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    panels[0].set_ylabel("steps x environments")
    names = [n for n in LIBRARIES if any(library(r.subject) == n for r in rows) and n != "clew"]
    handles = [Line2D([], [], label=n, **_look(n)) for n in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _ratios_panel(axes: Axes, rows: Sequence[Row], places: Mapping[Point, int]) -> None:
    """Each peer's ratios, slightly below those of the peer before it."""
    timed = [(row, row.times_ours) for row in rows if row.times_ours]
    peers = list(dict.fromkeys(library(row.subject) for row, _ in timed))
    for row, times in timed:
        name = library(row.subject)
        at = places[point_of(row)] + 0.15 * ((len(peers) - 1) / 2 - peers.index(name))
        axes.plot([times.low, times.high], [at, at], color=LIBRARIES[name], linewidth=1.5)
        axes.plot(times.middle, at, **_look(name))
    axes.axvline(1.0, color="#000000", linewidth=0.8)
