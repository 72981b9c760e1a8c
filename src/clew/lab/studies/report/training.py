"""Charts of training: learning curves, and how much the seed matters on the way."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from clew.lab.grid.results import Row
from clew.lab.studies.report import thesis
from clew.lab.studies.report.charts import seen_limits
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.words import score_label, title_of
from clew.report.curves import Curves, curves, mean_and_band
from clew.report.document import Chart, Panel
from clew.report.figures import Styles
from clew.stats import Ranks, ranked_scores

BINS = 25
"""Points of a curve; each pools the episodes of a few bins of the rows."""
MOMENTS = (0.25, 0.5)
"""Of training, beside the evaluation; the thesis's 2,500th and 5,000th episode."""
MANY = 5
"""Seeds from which on ranks are drawn for a single setting."""


def pick(edition: Edition, part: str) -> list[str]:
    """A short, a middle and a long setting of those that have rows; the thesis's two if there."""
    names = [name for name in edition.of_part(part) if edition.most_seeds(name)]
    if len(names) <= 3:
        return names
    chosen = [name for name in names if name in thesis.MANY] if edition.thesis else []
    places = [len(names) * share // 6 for share in (1, 3, 5)]
    spaced = [names[place] for place in places]
    wanted = {spaced[0], *chosen} if len(chosen) > 1 else {*spaced}
    return [name for name in names if name in wanted]


def learning(edition: Edition, styles: Styles) -> Chart:
    """Means of training over episodes, a panel for each of a few settings (Figure 4.1.4)."""
    panels = [
        Panel(name, _learning(edition, name, styles))
        for part in edition.parts
        for name in pick(edition, part)
    ]
    caption = (
        f"Mean over seeds of the episodes that ended in each of at most {BINS} bins of training; "
        "shaded: 95% bootstrap interval where there are three seeds or more. It is what the agent "
        "earned while it learned, on the episodes it learned from."
    )
    return Chart(f"{edition.slug}-learning", "Learning curves", caption, panels, edition.models)


def _learning(edition: Edition, setting: str, styles: Styles) -> Callable[[Axes], None]:
    drawn = {}
    for model in edition.models:
        rows = list(edition.cells.get((model, setting), {}).values())
        if rows:
            data = curve_of(rows)
            drawn[model] = data.steps, len(rows), mean_and_band(data.values)

    def draw(axes: Axes) -> None:
        for model, (steps, seeds, (mean, low, high)) in drawn.items():
            style = styles[model]
            if seeds > 2:
                axes.fill_between(steps, low, high, color=style.colour, alpha=0.09, linewidth=0)
            axes.plot(steps, mean, color=style.colour, linestyle=style.dash, linewidth=1.6)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("environment steps")
        axes.set_ylabel(score_label(edition))

    return draw


def curve_of(rows: Sequence[Row], bins: int = BINS) -> Curves:
    """The curves of several seeds in one setting, in so many bins at most."""
    score = rows[0]["score"]
    each = [row["curve"] for row in rows]
    points = min(len(curve["steps"]) for curve in each)
    pooled = [
        {
            "steps": each[0]["steps"][at],
            "episodes": [curve["episodes"][at] for curve in each],
            score: [curve[score][at] for curve in each],
        }
        for at in range(points)
    ]
    return curves(pooled, score, bins)


def ranks(edition: Edition, settings: Sequence[str], styles: Styles) -> Chart | None:
    """Scores from the best seed to the worst (Figures 4.1.5 and 4.2.4).

    Args:
        edition: ours.
        settings: with `MANY` seeds: three panels each, of two moments of training and of the
            evaluation. If there are none, a panel for each part, of each seed's mean over it.
        styles: of the models.
    """
    panels = [
        Panel(f"{name}, {words}", partial(_draw_ranks, edition, styles, found))
        for name in settings
        for words, found in _moments(edition, name).items()
    ]
    if settings:
        about = "At a quarter and at half of the training, and evaluated after it."
    else:
        for part in edition.parts:
            found = _ranks_of_part(edition, part)
            if found:
                draw = partial(_draw_ranks, edition, styles, found)
                panels.append(Panel(title_of(edition, part), draw))
        about = "Each seed's mean over the settings of a part: too few seeds for single settings."
    if not panels:
        return None
    caption = (
        f"{about} Seeds from the best to the worst, shaded: 95% bootstrap band at each rank. High "
        "and flat is robust: the seed hardly matters. A cliff is a lottery."
    )
    return Chart(f"{edition.slug}-ranks", "Seed sensitivity", caption, panels, edition.models)


def _moments(edition: Edition, setting: str) -> dict[str, dict[str, Ranks]]:
    found: dict[str, dict[str, Ranks]] = {f"{share:.0%} of training": {} for share in MOMENTS}
    last = found["evaluated"] = {}
    for model in edition.models:
        rows = edition.cells.get((model, setting), {})
        if len(rows) < MANY:
            continue
        values = curve_of(list(rows.values())).values
        for share in MOMENTS:
            column = values[:, max(0, round(share * values.shape[1]) - 1)]
            if np.isfinite(column).all():
                found[f"{share:.0%} of training"][model] = ranked_scores(column)
        last[model] = ranked_scores(edition.values(model, setting))
    return {words: by_model for words, by_model in found.items() if by_model}


def _ranks_of_part(edition: Edition, part: str) -> dict[str, Ranks]:
    tables = {model: edition.table(model, edition.of_part(part)) for model in edition.models}
    return {m: ranked_scores(t.mean(axis=1)) for m, t in tables.items() if t.shape[0] > 1}


def _draw_ranks(edition: Edition, styles: Styles, found: Mapping[str, Ranks], axes: Axes) -> None:
    for model, line in found.items():
        style = styles[model]
        axes.fill_between(
            line.rank, line.low, line.high, color=style.colour, alpha=0.1, linewidth=0
        )
        axes.plot(
            line.rank,
            line.score,
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markersize=2.5 if len(line.rank) > 9 else 4,
            linewidth=1.2,
        )
    axes.set_ylim(seen_limits(edition))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("seeds, from the best")
    axes.set_ylabel(score_label(edition))
