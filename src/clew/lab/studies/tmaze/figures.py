"""The study's figures; each title says what was run."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullFormatter

from clew.lab.claims import Judged, verdict_on
from clew.lab.grid.results import Row
from clew.lab.studies.report.budget import OneBudget, learning_panels, standard_error
from clew.lab.studies.tmaze.claims import RANGES, corridor_of, mean_interval
from clew.lab.studies.tmaze.grid import AGENTS, CORRIDORS, EDITION_OF
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
_WIDE = 6.0  # half the width of a range that is reported for a single corridor
_LINES = (
    "Thick: mean over seeds; thin: seeds. Each point pools the episodes that ended in a bin of "
    "steps; a bin without one keeps the last value."
)


def published(scores: OneBudget, number: str, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.2 or 5.3, a panel for each agent, with the thesis's range for it.

    The verdict on the figure's claims is in the title.
    """
    models = FIGURES[number]
    verdict = verdict_on(judged, f"Figure {number}")
    return Chart(
        f"{scores.data.slug}-figure-{number.replace('.', '-')}",
        f"Figure {number}, {verdict}: success by corridor length, {_what(scores, models)}",
        "Line: mean over seeds; shaded: its standard error, as published; bars: the 95% interval "
        "by which the claims are judged; dots: seeds. Grey: the range that the thesis reports for "
        "this agent (50 seeds, 10M steps). Dotted: guessing.",
        _corridors(scores, models, styles, claimed=True),
        columns=2,
    )


def controls(scores: OneBudget, styles: Styles) -> Chart:
    """A panel for each agent that the thesis does not have."""
    models = [model for model in scores.models if model not in AGENTS]
    return Chart(
        f"{scores.data.slug}-controls",
        f"Controls: success by corridor length, {_what(scores, models)}",
        "Drawn like the figures above. None of these agents is in the thesis.",
        _corridors(scores, models, styles, claimed=False),
    )


def _corridors(
    scores: OneBudget, models: Sequence[str], styles: Styles, claimed: bool
) -> list[Panel]:
    """A panel for each model with a row."""
    return [
        Panel(
            f"{model}: {scores.seeds([model])}",
            partial(_draw_corridors, scores, [model], styles, claimed),
        )
        for model in models
        if model in scores.models
    ]


def windows(scores: OneBudget, styles: Styles) -> Chart | None:
    """GTrXL-128 learning with the whole chunk in view, beside one whose learner sees a window."""
    models = [model for model in WINDOWS[EDITION_OF[scores.data.name]] if model in scores.models]
    if len(models) < 2:
        return None
    both = [n for n in scores.settings if all(scores.rows(model, n) for model in models)]
    success = Panel("success", partial(_draw_corridors, scores, models, styles, False))
    return Chart(
        f"{scores.data.slug}-windows",
        f"GTrXL-128, its learner's window as published and banded, {_what(scores, models)}",
        "The published code acts with 128 steps in view and learns with the whole chunk in view. "
        "The banded agent also learns with 128. Right: success during training.",
        [success, *_learning(scores, models, styles, "success", both)],
        models,
        columns=2,
    )


def learning(
    scores: OneBudget, styles: Styles, metric: str, models: Sequence[str], whose: str
) -> Chart:
    """Learning curves of some agents, a panel for each corridor."""
    return Chart(
        f"{scores.data.slug}-learning-{metric}-{whose}",
        f"{metric.capitalize()} during training, {whose}, {_what(scores, models)}",
        _LINES,
        _learning(scores, models, styles, metric, scores.settings),
        models,
        size=(3.8, 2.8),
    )


def _learning(
    scores: OneBudget, models: Sequence[str], styles: Styles, metric: str, settings: Sequence[str]
) -> list[Panel]:
    titles = {setting: setting.replace("-", " ") for setting in settings}
    label, limits = (_SUCCESS, (-0.03, 1.05)) if metric == "success" else (metric, None)
    return learning_panels(scores, titles, models, styles, metric, label, limits)


def lengths(scores: OneBudget, styles: Styles) -> Chart:
    """Success on longer corridors of agents trained on a shorter one."""
    panels = [
        Panel(f"trained on {corridor_of(n)}", partial(_draw_lengths, scores, n, styles))
        for n in scores.settings
        if any(row["further"] for model in scores.models for row in scores.rows(model, n))
    ]
    return Chart(
        f"{scores.data.slug}-lengths",
        f"Success on longer corridors, {_what(scores, scores.models)}",
        "Lines: stretched corridors, which show each position of the agent's own corridor for "
        "several steps, so that only the time is new. Crosses: unstretched corridors, with "
        "positions beyond the agent's own corridor, which it has never seen. All means are over "
        "the seeds that reach the junction of their own corridor in at least half of the episodes.",
        panels,
        scores.models,
        size=(3.8, 2.8),
    )


def _what(scores: OneBudget, models: Sequence[str]) -> str:
    there = [model for model in models if model in scores.models]
    return f"{scores.budget}, {scores.seeds(there) if there else 'not run'}"


def _draw_corridors(
    scores: OneBudget, models: Sequence[str], styles: Styles, claimed: bool, axes: Axes
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
    shown = sorted({*CORRIDORS, *map(corridor_of, scores.settings)})
    axes.set_xticks(shown)
    axes.set(
        xlim=(shown[0] - 10, shown[-1] + 10),
        ylim=(-0.03, 1.05),
        xlabel="corridor length",
        ylabel=_SUCCESS,
    )


def _draw_scores(scores: OneBudget, model: str, style: Style, axes: Axes) -> None:
    found = {corridor_of(n): scores.scores(model, n) for n in scores.settings}
    found = {n: values for n, values in found.items() if values.size}
    places = np.array(list(found))
    means = np.array([values.mean() for values in found.values()])
    errors = np.array([standard_error(values) for values in found.values()])
    band = means - errors, means + errors
    axes.fill_between(places, *band, color=style.colour, alpha=0.25, linewidth=0)
    axes.plot(places, means, color=style.colour, linestyle=style.dash, marker=style.marker, ms=4)
    for place, values in found.items():
        axes.plot([place + 2.0] * values.size, values, ".", color=style.colour, alpha=0.6, ms=4)
        if values.size > 1:
            axes.plot([place] * 2, mean_interval(values)[1:], color=style.colour, linewidth=1)


def _draw_lengths(scores: OneBudget, setting: str, styles: Styles, axes: Axes) -> None:
    axes.axhline(0.5, color=FADED, linestyle=":", linewidth=1)
    seen = {corridor_of(setting)}
    for model in scores.models:
        rows = [row for row in scores.rows(model, setting) if row["further"]]
        if not rows:
            continue
        style = styles[model]
        stretched, plain = further_success(rows, corridor_of(setting))
        seen |= {*stretched, *plain}
        axes.plot(*_points(stretched), color=style.colour, ls=style.dash, marker=style.marker, ms=4)
        axes.plot(*_points(plain), "x", color=style.colour, ms=5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(seen)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(ylim=(-0.03, 1.05), xlabel="corridor length", ylabel=_SUCCESS)


def further_success(
    rows: Sequence[Row], corridor: int
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Success of every seed by corridor length: its own and stretched corridors, and unstretched
    ones."""
    stretched = {corridor: own_success(rows)}
    plain: dict[int, list[float]] = {}
    for name in rows[0]["further"]:
        found = stretched if name.endswith("-stretched") else plain
        length = int(name.removeprefix("corridor-").removesuffix("-stretched"))
        found[length] = [row["further"][name]["success"] for row in rows]
    return stretched, plain


def own_success(rows: Sequence[Row]) -> list[float]:
    """Success of every seed on the corridor that it was trained on."""
    return [row["evaluation"]["means"]["success"] for row in rows]


def _points(found: dict[int, list[float]]) -> tuple[list[int], list[float]]:
    places = sorted(found)
    return places, [float(np.mean(found[place])) for place in places]
