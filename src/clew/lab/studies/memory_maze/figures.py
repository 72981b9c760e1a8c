"""The study's figures; each title says what was run."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clew.lab.claims import Judged, verdict_on
from clew.lab.studies.memory_maze.claims import WINDOWS, speed_of
from clew.lab.studies.report.budget import OneBudget, learning_panels
from clew.report.document import Chart, Panel
from clew.report.figures import Styles

BESIDE_WINDOWS = (*WINDOWS, "arelit")
"""The agents of Figure 5.7."""


def learning(scores: OneBudget, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.5, a panel for each maze: the thesis's agents, and others not in Figure 5.7."""
    models = [m for m in scores.models if m not in WINDOWS or m == "gtrxl-256"]
    return _learning(
        scores,
        styles,
        models,
        scores.settings,
        "5.5",
        f"{verdict_on(judged, 'Section 5.2.3')}: return during training, {scores.budget}",
        f"Thick: mean over seeds; shaded: its standard error; thin: seeds. {_ABOUT} The thesis "
        "has three seeds of 100M steps.",
    )


def windows(scores: OneBudget, styles: Styles, judged: Sequence[Judged]) -> Chart:
    """Figure 5.7, for each maze on which two windows of GTrXL were trained."""
    models = [m for m in BESIDE_WINDOWS if m in scores.models]
    mazes = [n for n in scores.settings if sum(bool(scores.rows(m, n)) for m in WINDOWS) > 1]
    verdict = verdict_on(judged, "Section 5.2.4")
    return _learning(
        scores,
        styles,
        models,
        mazes,
        "5.7",
        f"{verdict}: GTrXL's windows and AReLiT, {scores.budget}",
        f"Drawn like Figure 5.5. {_ABOUT} The thesis shows the maze of 13x13.",
    )


def _learning(
    scores: OneBudget,
    styles: Styles,
    models: Sequence[str],
    mazes: Sequence[str],
    number: str,
    title: str,
    caption: str,
) -> Chart:
    titles = {maze: f"{maze}: {scores.seeds(models, [maze])}" for maze in mazes}
    return Chart(
        f"{scores.data.slug}-figure-{number.replace('.', '-')}",
        f"Figure {number}, {title}",
        caption,
        learning_panels(scores, titles, models, styles, "return", "return", (0, None), True),
        models,
        size=(4.4, 3.0),
        columns=2,
    )


_ABOUT = (
    "Each point pools the episodes that ended in a bin of steps; a bin without one keeps the last "
    "value. Actions are sampled from the policy during training."
)


def speed(scores: OneBudget, judged: Sequence[Judged]) -> Chart:
    """Figure 5.6: frames per second and memory of the learner, and the rate of trainings."""
    panels = []
    if found := speed_of(scores):
        rows = list(found["rows"].values())
        panels += [
            Panel("learner, frames/s", partial(_draw_rates, rows)),
            Panel("learner, peak MiB", partial(_draw_memory, rows)),
        ]
    panels.append(Panel("trainings, environment steps/s", partial(_draw_trainings, scores)))
    return Chart(
        f"{scores.data.slug}-figure-5-6",
        f"Figure 5.6, {verdict_on(judged, 'Figure 5.6')}: speed and memory, {scores.budget}",
        "Learner: one gradient step on noise, median of the turns and its 95% interval; memory as "
        "planned by the compiler. Trainings: each dot is a cell, the bar is their mean; this "
        "includes acting, environments and other work on the machine. The thesis compares "
        "GTrXL-256 and AReLiT on a GPU.",
        panels,
        size=(3.8, 2.6),
    )


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


def _draw_trainings(scores: OneBudget, axes: Axes) -> None:
    for place, model in enumerate(scores.models):
        rates = [row["rate"] for row in scores.data.rows_of(model)]
        axes.barh(place, float(np.mean(rates)), color=_BAR)
        axes.plot(rates, [place] * len(rates), "o", color="black", ms=3)
    axes.set_yticks(range(len(scores.models)), scores.models)
    axes.invert_yaxis()


_BAR = "#56B4E9"
