"""A Memory Maze study's folder at one budget: returns by agent, maze and seed."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.studies.engine.results import Row
from clew.studies.memory_maze import PRESETS
from clew.studies.plots import Curves
from clew.studies.report.edition import Edition
from clew.studies.report.training import curve_of

NAME = "pramanik/memory-maze"
SPEED = "memory-maze-learner.json"
"""What `clew bench --memory-maze --output FOLDER` writes."""


@dataclass(frozen=True)
class Grid:
    """The rows of one budget, which every figure tells."""

    edition: Edition
    steps: int
    """Training steps of every cell that is shown."""
    left_out: Mapping[int, int]
    """Rows of other budgets, by their steps."""
    models: Sequence[str]
    """Those with a row, in the study's order."""
    mazes: Sequence[str]
    """Settings with a row, in order of size."""
    speed: Mapping[str, Any] | None
    """The learner's measurements, if they are in the folder."""

    def rows(self, model: str, maze: str) -> list[Row]:
        """A cell's rows, seed by seed."""
        found = self.edition.cells.get((model, maze), {})
        return [found[seed] for seed in sorted(found)]

    def returns(self, model: str, maze: str) -> Float[np.ndarray, " seeds"]:
        """Every seed's mean return over the last steps of training."""
        scores = [row["last"]["return"] for row in self.rows(model, maze)]
        return np.array([score for score in scores if score is not None], np.float64)

    def curves(self, model: str, maze: str) -> Curves:
        """The learning curves of a cell's seeds."""
        rows: list[Row] = [{**row, "score": "return"} for row in self.rows(model, maze)]
        return curve_of(rows, min(len(row["curve"]["steps"]) for row in rows))

    def seeds(self, models: Sequence[str], mazes: Sequence[str]) -> str:
        """How many seeds some cells have, in words."""
        counts = [len(self.rows(model, maze)) for model in models for maze in mazes]
        known = [count for count in counts if count]
        if not known:
            return "no seed yet"
        low, high = min(known), max(known)
        return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.steps / 1e6:.3g}M steps"


def make_grid(edition: Edition) -> Grid:
    """The rows of the budget that most rows are of, the larger one if two have as many.

    Raises:
        UserError: if the folder is not of the study, or its speed file is damaged.
    """
    if edition.name != NAME or "last" not in edition.rows[0]:
        raise UserError(f"{edition.folder} is of {edition.name}, not a grid of {NAME}")
    counts = Counter(row["steps"] for row in edition.rows)
    steps = max(counts, key=lambda budget: (counts[budget], budget))
    rows = [row for row in edition.rows if row["steps"] == steps]
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["setting"]), {})[row["seed"]] = row
    known = [name.removeprefix("memory-maze/") for name in PRESETS]
    there = dict.fromkeys(model for model, _ in cells)
    models = [m for m in known if m in there] + [m for m in there if m not in known]
    mazes = sorted({maze for _, maze in cells}, key=lambda name: (len(name), name))
    left_out = {budget: count for budget, count in counts.items() if budget != steps}
    whole = replace(edition, rows=rows, cells=cells)
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
