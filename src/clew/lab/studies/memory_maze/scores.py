"""A Memory Maze study's folder at one budget: returns by agent, maze and seed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.lab.grid.results import Row
from clew.lab.studies.memory_maze.settings import PRESETS
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.one_budget import OneBudget, in_order, most_rows
from clew.lab.studies.report.training import curve_of
from clew.report.curves import Curves

NAME = "pramanik/memory-maze"
SPEED = "memory-maze-learner.json"
"""What `clew bench --memory-maze --output FOLDER` writes."""


@dataclass(frozen=True)
class Grid(OneBudget):
    """The rows of one budget by agent and maze."""

    mazes: Sequence[str]
    """Settings with a row, in order of size."""
    speed: Mapping[str, Any] | None
    """The learner's measurements, if they are in the folder."""

    def returns(self, model: str, maze: str) -> Float[np.ndarray, " seeds"]:
        """Every seed's mean return over the last steps of training."""
        scores = [row["last"]["return"] for row in self.rows_of(model, maze)]
        return np.array([score for score in scores if score is not None], np.float64)

    def curves(self, model: str, maze: str) -> Curves:
        """The learning curves of a cell's seeds."""
        rows: list[Row] = [{**row, "score": "return"} for row in self.rows_of(model, maze)]
        return curve_of(rows, min(len(row["curve"]["steps"]) for row in rows))


def make_grid(edition: Edition) -> Grid:
    """The rows of the budget that most rows are of, the larger one if two have as many.

    Raises:
        UserError: if the folder is not of the study, or its speed file is damaged.
    """
    if edition.name != NAME or "last" not in edition.rows[0]:
        raise UserError(f"{edition.folder} is of {edition.name}, not a grid of {NAME}")
    whole, steps, left_out = most_rows(edition)
    models = in_order(whole, [name.removeprefix("memory-maze/") for name in PRESETS])
    mazes = sorted({maze for _, maze in whole.cells}, key=lambda name: (len(name), name))
    return Grid(whole, steps, left_out, models, mazes, _read_speed(edition))


def _read_speed(edition: Edition) -> dict[str, Any] | None:
    path = edition.folder / SPEED
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["model"]: row for row in data["rows"]}
        return {"machine": data["machine"], "rows": rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
