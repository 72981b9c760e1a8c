"""The study's figures; what was run is in the title of each."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullFormatter

from clew.lab.claims import Judged, verdict_on
from clew.lab.grid.results import Row
from clew.lab.studies.report.charts import curve_of
from clew.lab.studies.tmaze.claims import RANGES, Scores, mean_interval
from clew.lab.studies.tmaze.grid import AGENTS, CORRIDORS
from clew.report.document import Chart, Panel
from clew.report.figures import FADED, Style, Styles

FIGURES = {"5.2": ("gtrxl-128", "gtrxl-256"), "5.3": ("lstm", "gru", "relit", "arelit")}
"""GTrXL-256, which Figure 5.3 repeats, is in Figure 5.2."""
WINDOWS = {
    "published": ("gtrxl-128", "gtrxl-128-banded"),
    "repaired": ("gtrxl-128-unbanded", "gtrxl-128"),
}
"""By edition, GTrXL-128 whose learner sees the whole chunk, and with one window."""
_SUCCESS = "success rate"
_WIDE = 6.0  # half of the width of a range that is reported for one corridor alone


def published(scores: Scores, number: str, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.2 or 5.3, a panel for each agent, with what the thesis says of it.

    Args:
        scores: of a folder.
        number: of the figure.
        styles: of the models.
        judged: the claims; the verdict on the figure's is in the title.
    """
    models = FIGURES[number]
    verdict = verdict_on(judged, f"Figure {number}")
    panels = [
        Panel(_titled(scores, model), partial(_draw_corridors, scores, [model], styles, True))
        for model in models
        if model in scores.models
    ]
    return Chart(
        f"{scores.edition.slug}-figure-{number.replace('.', '-')}",
        f"Figure {number}, {verdict}: success against corridor, {_what(scores, models)}",
        "Line: mean over seeds; shaded: its standard error, as published; bars: the 95% interval "
        "by which the claims are judged; dots: seeds. Grey: the range that the thesis reports of "
        "this agent (50 seeds, 10M steps). Dotted: guessing.",
        panels,
        columns=2,
    )


def controls(scores: Scores, styles: Styles) -> Chart:
    """Every agent that the thesis does not have, in one panel each."""
    models = [model for model in scores.models if model not in AGENTS]
    panels = [
        Panel(_titled(scores, model), partial(_draw_corridors, scores, [model], styles, False))
        for model in models
    ]
    return Chart(
        f"{scores.edition.slug}-controls",
        f"Controls: success against corridor, {_what(scores, models)}",
        "Drawn as the figures above. None of these is in the thesis.",
        panels,
    )


def windows(scores: Scores, styles: Styles) -> Chart | None:
    """GTrXL-128 learning with the whole chunk in view, beside one whose learner sees a window."""
    models = [model for model in WINDOWS.get(scores.which, ()) if model in scores.models]
    if len(models) < 2:
        return None
    panels = [
        Panel("success", partial(_draw_corridors, scores, models, styles, False)),
        *(
            Panel(f"corridor {n}", _learning(scores, models, n, styles, "success"))
            for n in scores.corridors
            if all(scores.rows(model, n) for model in models)
        ),
    ]
    return Chart(
        f"{scores.edition.slug}-windows",
        f"GTrXL-128, its learner's window as published and banded, {_what(scores, models)}",
        "The published code acts with 128 steps in view and learns with all of the chunk in view; "
        "banded, it learns with the 128 that it acts with. Right: success while learning.",
        panels,
        models,
        columns=2,
    )


def learning(
    scores: Scores, styles: Styles, metric: str, models: Sequence[str], whose: str
) -> Chart:
    """Learning curves of some agents, a panel for each corridor."""
    panels = [
        Panel(f"corridor {n}", _learning(scores, models, n, styles, metric))
        for n in scores.corridors
        if any(scores.rows(model, n) for model in models)
    ]
    return Chart(
        f"{scores.edition.slug}-learning-{metric}-{whose}",
        f"{metric.capitalize()} while learning, {whose}, {_what(scores, models)}",
        "Thick: mean over seeds; thin: seeds. Each point pools the episodes that ended in a bin of "
        "steps; where none ended, the last value stands.",
        panels,
        models,
        size=(3.8, 2.8),
    )


def lengths(scores: Scores, styles: Styles) -> Chart:
    """Success on longer corridors of agents that were trained on one."""
    panels = [
        Panel(f"trained on {n}", partial(_draw_lengths, scores, n, styles))
        for n in scores.corridors
        if any(row["further"] for model in scores.models for row in scores.rows(model, n))
    ]
    return Chart(
        f"{scores.edition.slug}-lengths",
        f"Success on longer corridors, {_what(scores, scores.models)}",
        "Lines: stretched corridors, which show each position of the agent's own corridor for "
        "several places, so that only the time is new. Crosses: corridors as they are, whose "
        "positions beyond its own the agent has never seen. Mean over seeds; agents that reach the "
        "junction of their own corridor in fewer than half of the episodes are not sent further.",
        panels,
        scores.models,
        size=(3.8, 2.8),
    )


def _what(scores: Scores, models: Sequence[str]) -> str:
    there = [model for model in models if model in scores.models]
    return f"{scores.budget}, {scores.seeds(there) if there else 'not run'}"


def _titled(scores: Scores, model: str) -> str:
    return f"{model}: {scores.seeds([model])}"


def _draw_corridors(
    scores: Scores, models: Sequence[str], styles: Styles, claimed: bool, axes: Axes
) -> None:
    axes.axhline(0.5, color=FADED, linestyle=":", linewidth=1)
    for each in RANGES if claimed else ():
        if each.model in models:
            first, last = each.corridors[0], each.corridors[-1]
            alone = _WIDE if first == last else 0.0
            places = [first - alone, last + alone]
            axes.fill_between(places, each.low, each.high, color=FADED, alpha=0.22, linewidth=0)
    for model in models:
        _draw_scores(scores, model, styles[model], axes)
    axes.set_xticks(sorted({*CORRIDORS, *scores.corridors}))
    axes.set_xlim(min(*CORRIDORS, *scores.corridors) - 10, max(*CORRIDORS, *scores.corridors) + 10)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("corridor")
    axes.set_ylabel(_SUCCESS)


def _draw_scores(scores: Scores, model: str, style: Style, axes: Axes) -> None:
    found = {n: scores.success(model, n) for n in scores.corridors}
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
            interval = mean_interval(values)
            axes.plot([place] * 2, [interval.low, interval.high], color=style.colour, linewidth=1)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def _learning(
    scores: Scores, models: Sequence[str], corridor: int, styles: Styles, metric: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for model in models:
            there = scores.rows(model, corridor)
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
        axes.set_xlim(0, scores.steps)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("environment steps")
        axes.set_ylabel(_SUCCESS if metric == "success" else metric)

    return draw


def _draw_lengths(scores: Scores, corridor: int, styles: Styles, axes: Axes) -> None:
    axes.axhline(0.5, color=FADED, linestyle=":", linewidth=1)
    seen = {corridor}
    for model in scores.models:
        rows = [row for row in scores.rows(model, corridor) if row["further"]]
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
