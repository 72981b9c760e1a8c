"""A picture of medians with their intervals, one line for each memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import LogLocator

from clew.lab.bench.timing import Estimate
from clew.report.figures import new_figure, save


def draw_intervals(
    names: Sequence[str],
    series: Mapping[str, Mapping[str, Estimate]],
    path: Path,
    *,
    title: str,
    label: str,
    mark: float,
) -> None:
    """Draws estimates on a logarithmic axis, as a PNG, with a dashed line at the mark.

    Each series, named in the legend, has an estimate for each memory; names are listed from the
    top.
    """
    figure = new_figure(9, 1.5 + 0.28 * len(names))
    axes = figure.subplots()
    for (what, found), marker in zip(series.items(), "os^vDP", strict=False):
        places = [-names.index(name) for name in found]
        middles, lows, highs, _ = zip(*found.values(), strict=True)
        axes.plot(middles, places, marker, color="black", markersize=4, label=what)
        axes.hlines(places, lows, highs, color="black", linewidth=1)
    axes.axvline(mark, color="grey", linestyle="--")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks([-place for place in range(len(names))], names)
    axes.set_xlabel(label)
    axes.grid(alpha=0.25)
    if len(series) > 1:
        axes.legend(frameon=False)
    figure.suptitle(title, fontsize=9)
    save(figure, path)
