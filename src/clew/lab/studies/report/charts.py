"""Charts of a study: outcomes, bars by setting, many seeds, profiles, cost, training, ranks."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from clew.lab.grid.results import Row
from clew.lab.studies.report.data import StudyData
from clew.lab.studies.report.means import mean_interval
from clew.lab.studies.report.tables import axis_of, score_label, title_of
from clew.report.curves import Curves, curves, mean_and_band
from clew.report.document import Chart, Panel
from clew.report.figures import FADED, Style, Styles, draw_cells, number_log_axis, plain
from clew.stats import (
    Interval,
    Profile,
    Ranks,
    bootstrap_interval,
    performance_profile,
    ranked_scores,
)

BINS = 10
"""Number of bins of a histogram of outcomes."""
RESAMPLES = 2000
CURVE_POINTS = 25
"""Number of points of a curve; each pools the episodes of a few bins of the rows."""
MOMENTS = (0.25, 0.5)
"""Fractions of training that are shown beside the evaluation."""
RANKED = 5
"""Number of seeds from which ranks are drawn for a single setting."""
THRESHOLDS = np.linspace(-0.5, 1.0, 61)
"""Thresholds of normalised scores in profiles."""


def score_limits(data: StudyData) -> tuple[float, float]:
    """The axis of scores: from -1 for returns, from 0 for rates, extended if a score is outside."""
    means = data.means
    low = 0.0 if min(means, default=0.0) >= 0 and data.rows[0]["score"] != "return" else -1.0
    return min([low, *means]), max([1.0, *means])


def seen_limits(data: StudyData, *others: float) -> tuple[float, float]:
    """An axis from the lowest score, or 0, to the highest, or 1, with a margin; `others` are
    numbers beside the scores, where NaN is ignored."""
    seen = [*data.means, *(number for number in others if not math.isnan(number))]
    return min([0.0, *seen]) - 0.05, max([1.0, *seen]) + 0.05


def outcomes(data: StudyData, styles: Styles) -> Chart:
    """The histogram of outcomes of each model, a panel for each part (Figure 4.1.1)."""
    panels = [
        Panel(title_of(data, part), partial(_draw_outcomes, data, part, styles))
        for part in data.parts_with_rows
    ]
    caption = (
        f"Each model's trainings in {BINS} bins; the height of a bar is the fraction of them. "
        "Two peaks, at the floor and at 1, mean that a training either works or fails: a mean of "
        "a few trainings then hides more than it shows."
    )
    size = (3.6, 0.36 * len(data.models) + 0.8)
    return Chart(f"{data.slug}-outcomes", "Histogram of outcomes", caption, panels, size=size)


def _draw_outcomes(data: StudyData, part: str, styles: Styles, axes: Axes) -> None:
    low, high = score_limits(data)
    edges = np.linspace(low, high, BINS + 1)
    widths = np.diff(edges) * 0.94
    for place, model in enumerate(reversed(data.models)):
        values = np.concatenate([data.values(model, name) for name in data.of_part(part)])
        heights = 0.9 * (np.histogram(values, edges)[0] / max(values.size, 1))
        colour = styles[model].colour
        axes.bar(edges[:-1], heights, width=widths, bottom=place, align="edge", color=colour)
    _models_up(data, axes)
    axes.set(ylim=(-0.05, len(data.models)), xlim=(low, high))


def _models_up(data: StudyData, axes: Axes) -> None:
    """Models by their scores, from the last at the bottom to the first."""
    axes.set_yticks(range(len(data.models)), [plain(m) for m in reversed(data.models)])
    axes.set_xlabel(plain(score_label(data)))


FEW = 12
"""Number of models up to which each has a panel of bars."""


def scores(data: StudyData, part: str, styles: Styles) -> Chart:
    """Scores by setting: bars for each model, or a heat map of many models in many settings."""
    many = len(data.models) > FEW and len(data.of_part(part)) > 1
    return heat_map(data, part) if many else bars(data, part, styles)


def heat_map(data: StudyData, part: str) -> Chart:
    """Mean scores, with a row for each model and a column for each setting."""
    panel = Panel("", partial(_draw_heat_map, data, part))
    caption = (
        "Means over seeds, which the table below gives with their intervals. Colours go from the "
        "best score without a memory to a perfect score; where the former is unknown or perfect, "
        "from the lowest mean. The model with the highest mean colour is at the top."
    )
    size = (0.5 * len(data.of_part(part)) + 1.5, 0.22 * len(data.models) + 1.2)
    title = f"{title_of(data, part)}: every model and setting"
    return Chart(f"{data.slug}-{part}-means", title, caption, [panel], size=size, columns=1)


def _draw_heat_map(data: StudyData, part: str, axes: Axes) -> None:
    names = data.of_part(part)
    scores = {m: [data.values(m, name) for name in names] for m in data.models}
    means = {m: [v.mean() if v.size else np.nan for v in row] for m, row in scores.items()}
    means = {model: row for model, row in means.items() if not np.isnan(row).all()}
    table = np.array(list(means.values()))
    infos = [data.settings[name] for name in names]
    low = [
        np.nanmin(column) if info.floor is None or info.needless else info.floor
        for info, column in zip(infos, table.T, strict=True)
    ]
    shades = np.clip((table - low) / (np.array([info.perfect for info in infos]) - low), 0, 1)
    order = np.argsort(-np.nanmean(shades, axis=1), kind="stable")
    models = [plain(list(means)[place]) for place in order]
    labels = [plain(info.label) for info in infos]
    draw_cells(axes, table[order], shades[order], models, labels)
    axes.tick_params(axis="x", rotation=90 if _lie(data, names) else 0)
    axes.set_xlabel(f"{axis_of(data, part)}; in the cells: {plain(score_label(data))}")


def bars(data: StudyData, part: str, styles: Styles) -> Chart:
    """Scores by setting, a panel for each model (Figures 4.1.2, 4.2.1 and 4.3.1)."""
    panels = [
        Panel(model, partial(_draw_bars, data, part, model, styles[model]))
        for model in data.models
        if any(data.values(model, name).size for name in data.of_part(part))
    ]
    published = any((m, s) in data.published for m in data.models for s in data.of_part(part))
    floors = any(data.settings[name].floor is not None for name in data.of_part(part))
    names = data.of_part(part)
    shape: dict[str, Any] = {"size": (3.6, 2.2)}
    lying = _lie(data, names)
    if lying:
        shape = {"size": (5.2, 0.2 * len(names) + 0.7), "columns": 2}
    caption = "Bars: means over seeds; dots: seeds."
    caption += " Black: the published mean." if published else ""
    caption += " Grey: the best floor that needs no memory." if floors else ""
    caption += " A missing bar: no cell yet."
    title = f"{title_of(data, part)}: every setting and seed"
    return Chart(f"{data.slug}-{part}-bars", title, caption, panels, **shape)


LONGEST_BELOW = 12
"""Longest setting's name, in letters, that fits below a bar; for longer ones the bars are
horizontal."""


def _lie(data: StudyData, settings: Sequence[str]) -> bool:
    """Whether bars are horizontal, so that their settings' names are readable."""
    return max(len(data.settings[name].label) for name in settings) > LONGEST_BELOW


def _draw_bars(data: StudyData, part: str, model: str, style: Style, axes: Axes) -> None:
    names = data.of_part(part)
    places = np.arange(len(names))
    scores = [data.values(model, name) for name in names]
    means = [values.mean() if values.size else np.nan for values in scores]
    spots = [place + spread_out(v.size) for place, v in zip(places, scores, strict=True)]
    dots = np.concatenate(spots), np.concatenate(scores)
    known = {p: data.published.get((model, n)) for p, n in zip(places, names, strict=True)}
    dashes = {place: spread.mean for place, spread in known.items() if spread is not None}
    at, published = np.array(list(dashes), np.float64), list(dashes.values())
    floors = [data.settings[name].floor for name in names]
    heights = np.array([np.nan if floor is None else floor for floor in floors])
    labels = [plain(data.settings[name].label) for name in names]
    across, score = (-0.6, len(names) - 0.4), score_label(data)
    limits = seen_limits(data, *published, *heights)
    bar = {"color": style.colour, "alpha": 0.4, "linewidth": 0}
    dot = {"color": style.colour, "markersize": 4, "markeredgewidth": 0}
    if _lie(data, names):
        axes.barh(places, means, 0.8, **bar)
        axes.plot(*dots[::-1], ".", **dot)
        axes.vlines(published, at - 0.42, at + 0.42, color="black", linewidth=1.5)
        axes.vlines(heights, places - 0.5, places + 0.5, color=FADED, linewidth=1, zorder=0.9)
        axes.set_yticks(places, labels)
        axes.set(ylim=across[::-1], xlim=limits, xlabel=plain(score))
        return
    axes.bar(places, means, 0.8, **bar)
    axes.plot(*dots, ".", **dot)
    axes.hlines(published, at - 0.42, at + 0.42, color="black", linewidth=1.5)
    axes.step(places, heights, where="mid", color=FADED, linewidth=1, zorder=0.9)
    axes.set_xticks(places, labels, rotation=90 if len(names) > 3 else 0)
    axes.set(xlim=across, ylim=limits, xlabel=axis_of(data, part), ylabel=plain(score))


def many_seeds(data: StudyData, settings: Sequence[str], styles: Styles) -> Chart:
    """All seeds of each model, a panel for each setting (Figures 4.1.3 and 4.2.2)."""
    panels = [
        Panel(name, partial(_draw_seeds, data, name, styles, _intervals(data, name)))
        for name in settings
    ]
    caption = (
        "Dots: seeds; black stroke: their mean; thick bar: the 95% bootstrap interval of the mean."
    )
    if any((m, s) in data.published for m in data.models for s in settings):
        caption += " Hollow diamond: the published mean."
    title = "Many seeds side by side"
    size = (4.0, 0.34 * len(data.models) + 0.8)
    return Chart(f"{data.slug}-seeds", title, caption, panels, size=size, columns=2)


def _intervals(data: StudyData, setting: str) -> dict[str, Interval]:
    found = {model: data.values(model, setting) for model in data.models}
    return {model: bootstrap_interval(v) for model, v in found.items() if v.size}


def _draw_seeds(
    data: StudyData, setting: str, styles: Styles, intervals: dict[str, Interval], axes: Axes
) -> None:
    for place, model in enumerate(reversed(data.models)):
        if model not in intervals:
            continue
        style, values = styles[model], data.values(model, setting)
        published, mean = data.published.get((model, setting)), intervals[model]
        heights = place + spread_out(values.size)
        axes.plot(values, heights, style.marker, color=style.colour, markersize=3, alpha=0.6)
        axes.plot(mean[1:], [place] * 2, color=style.colour, linewidth=7, alpha=0.35)
        axes.plot([mean.mean] * 2, [place - 0.28, place + 0.28], color="black", linewidth=1.5)
        if published is not None:
            hollow = {"color": "black", "markerfacecolor": "white", "markersize": 5}
            axes.plot(published.mean, place, "D", **hollow)
    _models_up(data, axes)
    known = (data.published.get((model, setting)) for model in data.models)
    limits = seen_limits(data, *(spread.mean for spread in known if spread is not None))
    axes.set(ylim=(-0.6, len(data.models) - 0.4), xlim=limits)


def spread_out(count: int) -> np.ndarray:
    """Deterministic horizontal offsets for seeds with similar scores."""
    golden = 0.618033988749895  # neighbours in this sequence lie far apart
    return 0.5 * ((np.arange(count) * golden + 0.5) % 1 - 0.5)


def profiles(data: StudyData, styles: Styles) -> Chart:
    """The share of normalised scores above each threshold, a panel for each part."""
    found = {part: _profiles(data, part) for part in data.parts}
    panels = [
        Panel(title_of(data, part), partial(_draw_profiles, of_part, styles))
        for part, of_part in found.items()
        if of_part
    ]
    caption = (
        "The fraction of trainings that score above the value on the axis, over all seeds and all "
        "settings that need a memory; 0 is the best floor that needs no memory, 1 is perfect. "
        "Higher is better. A line that falls at 0 and then stays flat until 1 belongs to a model "
        "that either works or fails. Shaded: 95% bootstrap band at each point."
    )
    name = f"{data.slug}-profiles"
    return Chart(name, "Performance profiles", caption, panels, data.models)


def _profiles(data: StudyData, part: str) -> dict[str, Profile]:
    needed = data.in_need(part)
    scores = {m: data.table(m, needed, normalised=True) for m in data.models}
    return {
        model: performance_profile(found, THRESHOLDS, resamples=500)
        for model, found in scores.items()
        if found.shape[0] > 1
    }


def _draw_profiles(found: Mapping[str, Profile], styles: Styles, axes: Axes) -> None:
    for model, profile in found.items():
        style, band = styles[model], (profile.low, profile.high)
        axes.fill_between(THRESHOLDS, *band, color=style.colour, alpha=0.12, linewidth=0)
        axes.plot(THRESHOLDS, profile.share, color=style.colour, linestyle=style.dash)
    axes.set(xlim=(-0.5, 1.0), ylim=(0, 1.02))
    axes.set(xlabel="normalised score", ylabel="fraction of trainings above")


def cost(data: StudyData, styles: Styles, rates: dict[str, float]) -> Chart:
    """Mean score over speed of training in steps per second, a panel for each part."""
    means = {part: _means(data, part, rates) for part in data.parts_with_rows}
    panels = [
        Panel(title_of(data, part), partial(_draw_cost, data, found, styles, rates))
        for part, found in means.items()
    ]
    caption = (
        "Further right is faster, higher is better. Bars: 95% bootstrap intervals of the mean over "
        "the settings of the part"
    )
    caption += " that need a memory." if data.leaves_out else "."
    name = f"{data.slug}-cost"
    return Chart(name, "Score and speed", caption, panels, data.models, (3.6, 2.6))


def _means(data: StudyData, part: str, models: Mapping[str, float]) -> dict[str, Interval]:
    means = {}
    for model in models:
        names = data.begun(model, data.averaged(part))
        if names:
            means[model] = mean_interval(data, model, names, RESAMPLES)
    return means


def _draw_cost(
    data: StudyData,
    means: Mapping[str, Interval],
    styles: Styles,
    rates: Mapping[str, float],
    axes: Axes,
) -> None:
    for model, mean in means.items():
        style, rate = styles[model], rates[model]
        axes.plot([rate] * 2, mean[1:], color=style.colour, linewidth=2, alpha=0.5)
        axes.plot(rate, mean.mean, style.marker, color=style.colour, markersize=7)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    number_log_axis(axes.xaxis)
    axes.tick_params("x", rotation=45)
    axes.set_xlabel(f"training steps per second of {data.machine}")
    axes.set_ylabel(f"mean {plain(score_label(data))}")


def pick(data: StudyData, part: str) -> list[str]:
    """Three settings that have rows: a short, a middle and a long one.

    These are the ones published with many seeds, if there are any. If settings are tasks, they are
    the three in which the models differ most.
    """
    names = [
        name
        for name in data.averaged(part)
        if any(data.values(model, name).size for model in data.models)
    ]
    if len(names) <= 3:
        return names
    if axis_of(data, part) == "setting":
        apart = sorted(names, key=partial(_distance, data), reverse=True)[:3]
        return [name for name in names if name in apart]
    chosen = [name for name in names if name in data.publication.many_seeds]
    places = [len(names) * share // 6 for share in (1, 3, 5)]
    spaced = [names[place] for place in places]
    wanted = {spaced[0], *chosen} if len(chosen) > 1 else {*spaced}
    return [name for name in names if name in wanted]


def _distance(data: StudyData, setting: str) -> float:
    """The difference between the best and the worst model's mean."""
    values = [data.values(model, setting) for model in data.models]
    means = [scores.mean() for scores in values if scores.size]
    return max(means) - min(means)


def learning(data: StudyData, styles: Styles) -> Chart:
    """Means of training over episodes, a panel for each of a few settings (Figure 4.1.4)."""
    panels = [
        Panel(name, partial(_draw_learning, data, _bands(data, name), styles))
        for part in data.parts
        for name in pick(data, part)
    ]
    caption = (
        "Mean over seeds of the training episodes that ended in each of at most "
        f"{CURVE_POINTS} bins; shaded: 95% bootstrap interval, with three seeds or more."
    )
    return Chart(f"{data.slug}-learning", "Learning curves", caption, panels, data.models)


Band = tuple[np.ndarray, int, np.ndarray, np.ndarray, np.ndarray]
"""Steps, number of seeds, their mean and the ends of its interval."""


def _bands(data: StudyData, setting: str) -> dict[str, Band]:
    found = {}
    for model in data.models:
        if rows := list(data.cells.get((model, setting), {}).values()):
            steps, values = curve_of(rows)
            found[model] = steps, len(rows), *mean_and_band(values)
    return found


def _draw_learning(data: StudyData, found: Mapping[str, Band], styles: Styles, axes: Axes) -> None:
    for model, (steps, seeds, mean, low, high) in found.items():
        style = styles[model]
        if seeds > 2:
            axes.fill_between(steps, low, high, color=style.colour, alpha=0.09, linewidth=0)
        axes.plot(steps, mean, color=style.colour, linestyle=style.dash, linewidth=1.6)
    axes.set_xlim(left=0)
    steps_axis(axes)
    axes.set_ylabel(plain(score_label(data)))


def steps_axis(axes: Axes) -> None:
    """Labels a panel's axis of environment steps."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("environment steps")


def draw_seeds(axes: Axes, curve: Curves, style: Style, *, banded: bool) -> None:
    """Every seed's curve thin and their mean thick; `banded`: shade the mean's standard error."""
    mean, several = curve.values.mean(axis=0), len(curve.values) > 1
    if several and banded:
        error = curve.values.std(axis=0, ddof=1) / np.sqrt(len(curve.values))
        band = mean - error, mean + error
        axes.fill_between(curve.steps, *band, color=style.colour, alpha=0.2, linewidth=0)
    for values in curve.values if several else ():
        axes.plot(curve.steps, values, color=style.colour, linewidth=0.6, alpha=0.35)
    axes.plot(curve.steps, mean, color=style.colour, linestyle=style.dash, linewidth=1.5)


def curve_of(rows: Sequence[Row], bins: int = CURVE_POINTS, metric: str = "") -> Curves:
    """The curves of several seeds in one setting, in at most this many bins, for their score or
    another metric."""
    metric, each = metric or rows[0]["score"], [row["curve"] for row in rows]
    points = min(len(curve["steps"]) for curve in each)
    pooled = [
        {
            "steps": each[0]["steps"][at],
            "episodes": [curve["episodes"][at] for curve in each],
            metric: [curve[metric][at] for curve in each],
        }
        for at in range(points)
    ]
    return curves(pooled, metric, bins)


def ranks(data: StudyData, settings: Sequence[str], styles: Styles) -> Chart:
    """Scores from the best seed to the worst (Figures 4.1.5 and 4.2.4).

    Settings with `RANKED` seeds have three panels each, for two moments of training and for the
    evaluation. Without such settings there is a panel for each part, with each seed's mean over it.
    """
    if settings:
        found = {
            f"{name}, {words}": ranked
            for name in settings
            for words, ranked in _moments(data, name).items()
        }
        about = "After a quarter and after half of training, and in the evaluation after it."
    else:
        found = {title_of(data, p): _ranks_of_part(data, p) for p in data.parts}
        about = (
            "Each seed's mean over the settings of a part, as single settings have too few seeds."
        )
    panels = [
        Panel(title, partial(_draw_ranks, data, styles, ranked))
        for title, ranked in found.items()
        if ranked
    ]
    caption = (
        f"{about} Seeds are sorted from best to worst; shaded: 95% bootstrap band at each rank. A "
        "high, flat line is robust: the seed hardly matters. A steep drop means that it decides."
    )
    return Chart(f"{data.slug}-ranks", "Seed sensitivity", caption, panels, data.models)


def _moments(data: StudyData, setting: str) -> dict[str, dict[str, Ranks]]:
    found: dict[str, dict[str, Ranks]] = {f"{share:.0%} of training": {} for share in MOMENTS}
    last = found["evaluated"] = {}
    for model in data.models:
        rows = data.cells.get((model, setting), {})
        if data.values(model, setting).size < RANKED:
            continue
        values = curve_of(list(rows.values())).values
        for share in MOMENTS:
            column = values[:, max(0, round(share * values.shape[1]) - 1)]
            if np.isfinite(column).all():
                found[f"{share:.0%} of training"][model] = ranked_scores(column)
        last[model] = ranked_scores(data.values(model, setting))
    return found


def _ranks_of_part(data: StudyData, part: str) -> dict[str, Ranks]:
    tables = {model: data.table(model, data.averaged(part)) for model in data.models}
    return {m: ranked_scores(t.mean(axis=1)) for m, t in tables.items() if t.shape[0] > 1}


def _draw_ranks(data: StudyData, styles: Styles, found: Mapping[str, Ranks], axes: Axes) -> None:
    for model, line in found.items():
        colour, marker, dash = styles[model]
        axes.fill_between(line.rank, line.low, line.high, color=colour, alpha=0.1, linewidth=0)
        size = 2.5 if len(line.rank) > 9 else 4
        look = {"color": colour, "linestyle": dash, "marker": marker, "markersize": size}
        axes.plot(line.rank, line.score, linewidth=1.2, **look)
    axes.set_ylim(seen_limits(data, *(score for line in found.values() for score in line.score)))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("seeds, best first")
    axes.set_ylabel(plain(score_label(data)))
