"""Scores of memories as a heat map."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clew.report.figures import new_figure, save, tidy


def draw_heatmap(
    scores: Mapping[str, Sequence[float]],
    columns: Sequence[str],
    about: str,
    path: Path,
    *,
    best_first: bool = True,
    label: str = "success rate",
) -> None:
    """Draws scores from 0 to 1: one row for each memory, which has a score for each column.

    NaN leaves its cell empty. The text below the columns says what they are.
    """
    order = sorted(scores, key=lambda name: -np.sum(scores[name])) if best_first else list(scores)
    figure = new_figure(1.6 + 0.75 * len(columns), 0.27 * len(order) + 1.2)
    axes = figure.subplots()
    picture = axes.imshow([scores[name] for name in order], vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(order)), order)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_xlabel(about)
    for y, name in enumerate(order):
        for x, value in enumerate(scores[name]):
            if np.isnan(value):
                continue
            colour = "black" if value > 0.6 else "white"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    figure.colorbar(picture, label=label)
    save(tidy(figure), path)
