"""The study's figures; what was run is in the title of each."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullFormatter

from clew.lab.grid.results import Row
from clew.lab.studies.report.training import curve_of
from clew.lab.studies.tmaze.claims import CLAIMS
from clew.lab.studies.tmaze.grid import AGENTS, CORRIDORS
from clew.lab.studies.tmaze.scores import Grid
from clew.report.document import Chart, Panel
from clew.report.figures import FADED, Style, Styles
from clew.stats import bootstrap_interval

FIGURES = {"5.2": ("gtrxl-128", "gtrxl-256"), "5.3": ("lstm", "gru", "relit", "arelit")}
"""GTrXL-256, which Figure 5.3 repeats, is in Figure 5.2."""
WINDOWS = {
    "published": ("gtrxl-128", "gtrxl-128-banded"),
    "repaired": ("gtrxl-128-unbanded", "gtrxl-128"),
}
"""By edition, GTrXL-128 whose learner sees the whole chunk, and with one window."""
_SUCCESS = "success rate"
_WIDE = 6.0  # half of the width of a range that is told for one corridor alone


def published(grid: Grid, number: str, styles: Styles) -> Chart:
    """Figure 5.2 or 5.3, a panel for each agent, with what the thesis says of it."""
    models = FIGURES[number]
    panels = [
        Panel(_titled(grid, model), partial(_draw_corridors, grid, [model], styles, True))
        for model in models
        if model in grid.models
    ]
    return Chart(
        f"{grid.edition.slug}-figure-{number.replace('.', '-')}",
        f"Figure {number} again: success against corridor, {_what(grid, models)}",
        "Line: mean over seeds; shaded: its standard error, as published; bars: 95% bootstrap "
        "interval over seeds, which from two seeds is their range; dots: seeds. Grey: the range "
        "that the thesis tells of this agent (50 seeds, 10M steps). Dotted: guessing.",
        panels,
        columns=2,
    )


def controls(grid: Grid, styles: Styles) -> Chart:
    """Every agent that the thesis does not have, in one panel each."""
    models = [model for model in grid.models if model not in AGENTS]
    panels = [
        Panel(_titled(grid, model), partial(_draw_corridors, grid, [model], styles, False))
        for model in models
    ]
    return Chart(
        f"{grid.edition.slug}-controls",
        f"Controls: success against corridor, {_what(grid, models)}",
        "Drawn as the figures above. None of these is in the thesis.",
        panels,
    )


def windows(grid: Grid, styles: Styles) -> Chart | None:
    """GTrXL-128 learning with the whole chunk in view, beside one whose learner sees a window."""
    models = [model for model in WINDOWS.get(grid.which, ()) if model in grid.models]
    if len(models) < 2:
        return None
    panels = [
        Panel("success", partial(_draw_corridors, grid, models, styles, False)),
        *(
            Panel(f"corridor {n}", _learning(grid, models, n, styles, "success"))
            for n in grid.corridors
            if all(grid.rows(model, n) for model in models)
        ),
    ]
    return Chart(
        f"{grid.edition.slug}-windows",
        f"GTrXL-128, its learner's window as published and banded, {_what(grid, models)}",
        "The published code acts with 128 steps in view and learns with all of the chunk in view; "
        "banded, it learns with the 128 that it acts with. Right: success while learning.",
        panels,
        models,
        columns=2,
    )


def learning(grid: Grid, styles: Styles, metric: str, models: Sequence[str], whose: str) -> Chart:
    """Learning curves of some agents, a panel for each corridor."""
    panels = [
        Panel(f"corridor {n}", _learning(grid, models, n, styles, metric))
        for n in grid.corridors
        if any(grid.rows(model, n) for model in models)
    ]
    return Chart(
        f"{grid.edition.slug}-learning-{metric}-{whose}",
        f"{metric.capitalize()} while learning, {whose}, {_what(grid, models)}",
        "Thick: mean over seeds; thin: seeds. Each point pools the episodes that ended in a bin of "
        "steps; where none ended, the last value stands.",
        panels,
        models,
        size=(3.8, 2.8),
    )


def lengths(grid: Grid, styles: Styles) -> Chart:
    """Success on longer corridors of agents that were trained on one."""
    panels = [
        Panel(f"trained on {n}", partial(_draw_lengths, grid, n, styles))
        for n in grid.corridors
        if any(row["further"] for model in grid.models for row in grid.rows(model, n))
    ]
    return Chart(
        f"{grid.edition.slug}-lengths",
        f"Success on longer corridors, {_what(grid, grid.models)}",
        "Lines: stretched corridors, which show each position of the agent's own corridor for "
        "several places, so that only the time is new. Crosses: corridors as they are, whose "
        "positions beyond its own the agent has never seen. Mean over seeds; agents that reach the "
        "junction of their own corridor in fewer than half of the episodes are not sent further.",
        panels,
        grid.models,
        size=(3.8, 2.8),
    )


def _what(grid: Grid, models: Sequence[str]) -> str:
    there = [model for model in models if model in grid.models]
    return f"{grid.budget}, {grid.seeds(there) if there else 'not run'}"


def _titled(grid: Grid, model: str) -> str:
    return f"{model}: {grid.seeds([model])}"


def _draw_corridors(
    grid: Grid, models: Sequence[str], styles: Styles, claimed: bool, axes: Axes
) -> None:
    axes.axhline(0.5, color=FADED, linestyle=":", linewidth=1)
    for claim in CLAIMS if claimed else ():
        if claim.model in models:
            first, last = claim.corridors[0], claim.corridors[-1]
            alone = _WIDE if first == last else 0.0
            places = [first - alone, last + alone]
            axes.fill_between(places, claim.low, claim.high, color=FADED, alpha=0.22, linewidth=0)
    for model in models:
        _draw_scores(grid, model, styles[model], axes)
    axes.set_xticks(sorted({*CORRIDORS, *grid.corridors}))
    axes.set_xlim(min(*CORRIDORS, *grid.corridors) - 10, max(*CORRIDORS, *grid.corridors) + 10)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("corridor")
    axes.set_ylabel(_SUCCESS)


def _draw_scores(grid: Grid, model: str, style: Style, axes: Axes) -> None:
    found = {n: grid.success(model, n) for n in grid.corridors}
    found = {n: values for n, values in found.items() if values.size}
    places = np.array(list(found))
    means = np.array([values.mean() for values in found.values()])
    errors = np.array([_error(values) for values in found.values()])
    axes.fill_between(
        places, means - errors, means + errors, color=style.colour, alpha=0.25, linewidth=0
    )
    axes.plot(places, means, color=style.colour, linestyle=style.dash, marker=style.marker, ms=4)
    for place, values in found.items():
        axes.plot([place + 2.0] * values.size, values, ".", color=style.colour, alpha=0.6, ms=4)
        if values.size > 1:
            interval = bootstrap_interval(values)
            axes.plot([place] * 2, [interval.low, interval.high], color=style.colour, linewidth=1)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def _learning(
    grid: Grid, models: Sequence[str], corridor: int, styles: Styles, metric: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for model in models:
            there = grid.rows(model, corridor)
            if not there:
                continue
            points = len(there[0]["curve"]["steps"])
            data = curve_of([row | {"score": metric} for row in there], points)
            style = styles[model]
            for values in data.values if len(there) > 1 else ():
                axes.plot(data.steps, values, color=style.colour, linewidth=0.6, alpha=0.35)
            mean = data.values.mean(axis=0)
            axes.plot(data.steps, mean, color=style.colour, linestyle=style.dash, linewidth=1.5)
        if metric == "success":
            axes.set_ylim(-0.03, 1.05)
        axes.set_xlim(0, grid.steps)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("environment steps")
        axes.set_ylabel(_SUCCESS if metric == "success" else metric)

    return draw


def _draw_lengths(grid: Grid, corridor: int, styles: Styles, axes: Axes) -> None:
    axes.axhline(0.5, color=FADED, linestyle=":", linewidth=1)
    seen = {corridor}
    for model in grid.models:
        rows = [row for row in grid.rows(model, corridor) if row["further"]]
        if not rows:
            continue
        style = styles[model]
        stretched, plain = further_success(rows, corridor)
        seen |= {*stretched, *plain}
        axes.plot(*_points(stretched), color=style.colour, ls=style.dash, marker=style.marker, ms=4)
        axes.plot(*_points(plain), "x", color=style.colour, ms=5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(seen)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("corridor")
    axes.set_ylabel(_SUCCESS)


def further_success(
    rows: Sequence[Row], corridor: int
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Success of every seed by corridor length: stretched corridors and the own one, and others."""
    stretched = {corridor: [row["evaluation"]["means"]["success"] for row in rows]}
    plain: dict[int, list[float]] = {}
    for name in rows[0]["further"]:
        found = stretched if name.endswith("-stretched") else plain
        length = int(name.removeprefix("corridor-").removesuffix("-stretched"))
        found[length] = [row["further"][name]["success"] for row in rows]
    return stretched, plain


def _points(found: dict[int, list[float]]) -> tuple[list[int], list[float]]:
    places = sorted(found)
    return places, [float(np.mean(found[place])) for place in places]
