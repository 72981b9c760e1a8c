"""A picture of time and memory against the length of chunks."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from clew.lab.bench.peers.compare import Row
from clew.lab.bench.peers.tables import library
from clew.report.figures import COLOURS

PANELS = {
    "LSTM": ("lstm",),
    "GRU": ("gru",),
    "Linear attention": ("linear_attention",),
    "LSTM policy": ("policy", "policy-starts"),
}
"""Title to families; the second one's lines are dashed."""

LIBRARIES = {
    "clew": "#000000",
    "torch": COLOURS[1],
    "flax": COLOURS[0],
    "memax": COLOURS[2],
    "memorax": COLOURS[3],
    "sb3-contrib": COLOURS[1],
}


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Writes the picture as a PNG: microseconds per observation above, MiB of a call below."""
    figure = Figure(figsize=(15, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(PANELS), squeeze=False, sharex=True)
    for column, (name, families) in enumerate(PANELS.items()):
        above, below = panels[0][column], panels[1][column]
        for family, style in zip(families, ("-", "--"), strict=False):
            found = [r for r in rows if r.family == family and r.mode == "learn"]
            _lines(above, below, found, style)
        above.set_title(name, loc="left")
        below.set_xlabel("chunk in steps")
        for axes in (above, below):
            _dress(axes, sorted({r.length for r in rows if r.mode == "learn"}))
    panels[0][0].set_ylabel("microseconds per observation\nforward and backward")
    panels[1][0].set_ylabel("MiB that a call adds")
    shown = [n for n in LIBRARIES if any(library(r.subject) == n for r in rows)]
    handles = [Line2D([], [], color=LIBRARIES[n], label=n, marker=_marker(n)) for n in shown]
    handles.append(Line2D([], [], color="grey", linestyle="--", label="an episode begins within"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=100)


def _lines(above: Axes, below: Axes, rows: Sequence[Row], style: str) -> None:
    """One family's subjects, ours last and so on top."""
    for subject in sorted({r.subject for r in rows}, reverse=True, key=_ours_last):
        mine = sorted((r for r in rows if r.subject == subject), key=lambda r: r.length)
        name = library(subject)
        colour, mark = LIBRARIES[name], _marker(name)
        timed = [r for r in mine if r.seconds is not None]
        each = [1e6 / (r.length * r.envs) for r in timed]
        medians = [r.seconds for r in timed if r.seconds is not None]
        lengths = [r.length for r in timed]
        middle = [m.middle * e for m, e in zip(medians, each, strict=True)]
        above.plot(lengths, middle, color=colour, linestyle=style, marker=mark)
        low = [m.low * e for m, e in zip(medians, each, strict=True)]
        high = [m.high * e for m, e in zip(medians, each, strict=True)]
        above.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0)
        sized = [r for r in mine if r.resident_bytes]
        mebibytes = [(r.resident_bytes or 0) / 2**20 for r in sized]
        at = [r.length for r in sized]
        below.plot(at, mebibytes, color=colour, linestyle=style, marker=mark)


def _dress(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths], fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _ours_last(subject: str) -> bool:
    return library(subject) != "clew"


def _marker(name: str) -> str:
    return "o" if name == "clew" else "."
