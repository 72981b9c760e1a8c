"""Learning curves of runs, drawn from their `metrics.jsonl`."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from clew.report.figures import COLOURS, new_figure, save
from clew.stats import bootstrap_interval

LABELS = {"success": "success rate", "return": "return (sum of rewards)", "length": "steps"}
PANELS = ("success", "return")
EVALUATED = "evaluation."
"""Prefix of the columns of evaluations, which some rows have."""
BANDED = 3
"""Least number of seeds for an interval around the mean."""

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Label of each run to its rows of `metrics.jsonl`."""


class Curves(NamedTuple):
    """Means over the episodes that ended in each bin of environment steps, one row per seed."""

    steps: np.ndarray
    """[bins] environment steps of one seed at the bin's end."""
    values: np.ndarray
    """[seeds, bins]. A bin without an ended episode has the value of the previous bin, or NaN."""


def curves(rows: Sequence[Mapping[str, Any]], metric: str, bins: int = 60) -> Curves:
    """Pools rows into at most `bins` equal bins of steps, each row weighted by its episodes.

    A row has only a few episodes, so its success rate is noisy; that of a bin is the fraction of
    all episodes that ended in it. If no episode ended, as happens when they are long, the last
    value is repeated, so that a mean over seeds is always over the same seeds.

    Args:
        rows: of `metrics.jsonl`, in order, with lists over seeds.
        metric: a column of means over episodes, for example "success".
        bins: most points of a curve.
    """
    steps = np.array([row["steps"] for row in rows], dtype=np.float64)
    weights = np.array([row["episodes"] for row in rows], dtype=np.float64)
    means = np.array([row[metric] for row in rows], dtype=np.float64)  # None becomes NaN
    weights = np.where(np.isnan(means), 0.0, weights)
    size = math.ceil(len(rows) / bins)
    groups = np.array_split(np.arange(len(rows)), len(rows) // size)  # none smaller than `size`
    totals = np.array([(np.nan_to_num(means[g]) * weights[g]).sum(axis=0) for g in groups])
    counts = np.array([weights[g].sum(axis=0) for g in groups])
    values = np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)
    for before, now in itertools.pairwise(values):
        now[np.isnan(now)] = before[np.isnan(now)]
    return Curves(np.array([steps[g[-1]] for g in groups]), values.T)


def plot_runs(rows: Runs, path: Path, title: str | None = None) -> Path:
    """Draws success and return of several runs in one picture: thin lines are seeds, thick lines
    their means, and dots the means of evaluations over the seeds.

    The picture is a PNG, or a PDF or SVG by the ending of the path, which is returned. The title
    defaults to the labels.
    """
    return save(runs_figure(rows, title), path)


def runs_figure(rows: Runs, title: str | None = None) -> Figure:
    """The picture of `plot_runs`."""
    known = [p for p in PANELS if any(p in run[-1] for run in rows.values())]
    figure = new_figure(4.8 * len(known) + 0.4, 3.9)
    axes = figure.subplots(1, len(known), squeeze=False)[0]
    for panel, metric in zip(axes, known, strict=True):
        draw_curves(panel, rows, metric)
    axes[0].set_title(_legend_of_lines(rows), loc="left", fontsize=9, color="0.4")
    if len(rows) > 1:
        _legend_below(figure, *axes[0].get_legend_handles_labels())
    figure.suptitle(title or ", ".join(rows), fontsize=13, wrap=True)
    return figure


def _legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend with as many columns as fit into the figure's width, at most 5."""
    for ncols in range(min(len(labels), 5), 0, -1):
        legend = figure.legend(
            handles, labels, loc="outside lower center", ncols=ncols, frameon=False
        )
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        if ncols > 1:
            legend.remove()


def _legend_of_lines(rows: Runs) -> str:
    counts = sorted({len(run[-1]["episodes"]) for run in rows.values()})
    band = ", shaded: 95% bootstrap interval" if counts[-1] >= BANDED else ""
    seeds = " to ".join(map(str, (counts[0], counts[-1])[-len(counts) :]))
    said = [f"thin: {seeds} seeds, thick: mean{band}"] if counts[-1] > 1 else []
    if any(f"{EVALUATED}return" in row for run in rows.values() for row in run):
        said.append("dots: evaluations")
    return ", ".join(said)


def draw_curves(axes: Axes, rows: Mapping[str, Sequence[Mapping[str, Any]]], metric: str) -> None:
    """Draws one metric of every run into one panel, in one colour per run."""
    for (label, run), colour in zip(rows.items(), itertools.cycle(COLOURS), strict=False):
        if metric in run[-1]:
            _draw_run(axes, curves(run, metric), label, colour)
            _draw_evaluations(axes, run, f"{EVALUATED}{metric}", colour)
    axes.set_xlabel("environment steps per seed", fontsize=11)
    axes.set_ylabel(LABELS.get(metric, metric), fontsize=11)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlim(left=0)
    if metric == "success":
        axes.set_ylim(-0.03, 1.03)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def _draw_run(axes: Axes, data: Curves, label: str, colour: str) -> None:
    seeds = len(data.values)
    mean, low, high = mean_and_band(data.values)
    if seeds > 1:
        axes.plot(data.steps, data.values.T, color=colour, linewidth=0.8, alpha=0.3)
    if seeds >= BANDED:
        axes.fill_between(data.steps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(data.steps, mean, color=colour, linewidth=2.4, label=label)


def _draw_evaluations(
    axes: Axes, rows: Sequence[Mapping[str, Any]], column: str, colour: str
) -> None:
    found = [row for row in rows if column in row]
    values = np.array([row[column] for row in found], dtype=np.float64)  # None becomes NaN
    if found:
        mean, _, _ = mean_and_band(values.T)
        steps = [row["steps"] for row in found]
        axes.plot(steps, mean, "o:", color=colour, markersize=4, linewidth=1)


def mean_and_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds at each point, and its bootstrap interval with at least `BANDED` seeds.

    Seeds without any value are left out. The mean is NaN until all others have a value, since the
    first seeds to end an episode are not representative. With fewer seeds the interval is NaN.
    """
    bands = np.full((3, values.shape[1]), np.nan)
    known = values[np.isfinite(values).any(axis=1)]
    for index, column in enumerate(known.T):
        if column.size and np.isfinite(column).all():
            bands[0, index] = column.mean()
            if len(values) >= BANDED:
                bands[:, index] = bootstrap_interval(column, resamples=999, method="percentile")
    return bands[0], bands[1], bands[2]
