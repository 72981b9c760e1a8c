"""Scores of memories as a heat map."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clew.report.figures import draw_cells, new_figure, save, tidy


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
    cells = np.array([scores[name] for name in order])
    picture = draw_cells(axes, cells, cells, order, columns)
    axes.set_xlabel(about)
    figure.colorbar(picture, label=label)
    save(tidy(figure), path)
