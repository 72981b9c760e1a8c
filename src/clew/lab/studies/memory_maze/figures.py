"""The study's figures; what was run is in the title of each."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from clew.lab.claims import Judged, verdict_on
from clew.lab.studies.memory_maze.claims import WINDOWS, Scores
from clew.report.document import Chart, Panel
from clew.report.figures import Styles

BESIDE_WINDOWS = (*WINDOWS, "arelit")
"""Of Figure 5.7."""


def learning(scores: Scores, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.5, a panel for each maze: the agents of the thesis and what else is not of 5.7."""
    models = [m for m in scores.models if m not in WINDOWS or m == "gtrxl-256"]
    verdict = verdict_on(judged, "Section 5.2.3")
    panels = [
        Panel(f"{maze}: {scores.seeds_of(models, [maze])}", _learning(scores, models, maze, styles))
        for maze in scores.mazes
        if any(scores.rows_of(model, maze) for model in models)
    ]
    return Chart(
        f"{scores.edition.slug}-figure-5-5",
        f"Figure 5.5, {verdict}: return while learning, {scores.budget}",
        f"Thick: mean over seeds; shaded: its standard error; thin: seeds. {_ABOUT} The thesis "
        "has three seeds of 100M steps.",
        panels,
        models,
        size=(4.4, 3.0),
        columns=2,
    )


def windows(scores: Scores, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.7, for each maze that two windows of GTrXL were trained on."""
    models = [m for m in BESIDE_WINDOWS if m in scores.models]
    verdict = verdict_on(judged, "Section 5.2.4")
    panels = [
        Panel(f"{maze}: {scores.seeds_of(models, [maze])}", _learning(scores, models, maze, styles))
        for maze in scores.mazes
        if sum(bool(scores.rows_of(model, maze)) for model in WINDOWS) > 1
    ]
    return Chart(
        f"{scores.edition.slug}-figure-5-7",
        f"Figure 5.7, {verdict}: GTrXL's windows and AReLiT, {scores.budget}",
        f"Drawn as Figure 5.5. {_ABOUT} The thesis has them in the maze of 13x13.",
        panels,
        models,
        size=(4.4, 3.0),
        columns=2,
    )


_ABOUT = (
    "Each point pools the episodes that ended in a bin of steps; where none ended, the last value "
    "stands. Actions are sampled from the policy that learns."
)


def speed(scores: Scores, judged: Sequence[Judged]) -> Chart:
    """Figure 5.6: frames per second and memory of the learner, and the rate of trainings."""
    panels = []
    if scores.speed:
        rows = [row for row in scores.speed["rows"].values()]
        panels += [
            Panel("learner, frames/s", partial(_draw_rates, rows)),
            Panel("learner, MiB at the peak", partial(_draw_memory, rows)),
        ]
    panels.append(Panel("trainings, environment steps/s", partial(_draw_trainings, scores)))
    return Chart(
        f"{scores.edition.slug}-figure-5-6",
        f"Figure 5.6, {verdict_on(judged, 'Figure 5.6')}: speed and memory, {scores.budget}",
        "Learner: one gradient step on noise, median of turns and 95% interval; its memory is the "
        "compiler's plan. Trainings: each dot is a cell, the bar their mean; acting, environments "
        "and whatever else the machine did are in it. The thesis compares GTrXL-256 and AReLiT on "
        "a graphics card.",
        panels,
        size=(3.8, 2.6),
    )


def _learning(
    scores: Scores, models: Sequence[str], maze: str, styles: Styles
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for model in models:
            if not scores.rows_of(model, maze):
                continue
            steps, values = scores.curves(model, maze)
            style, mean = styles[model], values.mean(axis=0)
            if len(values) > 1:
                error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
                axes.fill_between(
                    steps, mean - error, mean + error, color=style.colour, alpha=0.2, linewidth=0
                )
                for one in values:
                    axes.plot(steps, one, color=style.colour, linewidth=0.5, alpha=0.35)
            axes.plot(steps, mean, color=style.colour, linestyle=style.dash, linewidth=1.6)
        axes.set_xlim(0, scores.steps)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return")

    return draw


def _draw_rates(rows: Sequence[dict[str, Any]], axes: Axes) -> None:
    rates = [row["rate"] for row in rows]
    below = [rate["middle"] - rate["low"] for rate in rates]
    above = [rate["high"] - rate["middle"] for rate in rates]
    middles = [rate["middle"] for rate in rates]
    axes.barh([row["model"] for row in rows], middles, xerr=[below, above], color=_BAR)
    axes.invert_yaxis()


def _draw_memory(rows: Sequence[dict[str, Any]], axes: Axes) -> None:
    axes.barh([row["model"] for row in rows], [row["bytes"] / 2**20 for row in rows], color=_BAR)
    axes.invert_yaxis()


def _draw_trainings(scores: Scores, axes: Axes) -> None:
    for place, model in enumerate(scores.models):
        rates = [row["rate"] for row in scores.edition.rows if row["model"] == model]
        axes.barh(place, float(np.mean(rates)), color=_BAR)
        axes.plot(rates, [place] * len(rates), "o", color="black", ms=3)
    axes.set_yticks(range(len(scores.models)), scores.models)
    axes.invert_yaxis()


_BAR = "#56B4E9"
