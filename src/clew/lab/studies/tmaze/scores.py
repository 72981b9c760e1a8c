"""A T-Maze study's folder at one budget: success rates by agent, corridor and seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.lab.grid.results import Row
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.one_budget import OneBudget, in_order, most_rows
from clew.lab.studies.tmaze import grid as tmaze

NAME = "pramanik/tmaze-"


@dataclass(frozen=True)
class Grid(OneBudget):
    """The rows of one budget by agent and corridor."""

    corridors: Sequence[int]
    """Those with a row, ascending."""

    @property
    def which(self) -> str:
        """ "published" or "repaired"."""
        return self.edition.name.removeprefix(NAME)

    def rows(self, model: str, corridor: int) -> list[Row]:
        """A cell's rows, seed by seed."""
        return self.rows_of(model, f"corridor-{corridor}")

    def success(self, model: str, corridor: int) -> Float[np.ndarray, " seeds"]:
        """The thesis's score of every seed: success over the last 100K steps of training."""
        scores = [row["last"]["success"] for row in self.rows(model, corridor)]
        return np.array([score for score in scores if score is not None], np.float64)

    def seeds(self, models: Sequence[str] | None = None) -> str:
        """How many seeds the cells of some models have, in words."""
        return self.seeds_of(models or self.models, [f"corridor-{n}" for n in self.corridors])


def make_grid(edition: Edition) -> Grid:
    """The rows of the budget that most rows are of, the larger one if two have as many.

    Raises:
        UserError: if the folder is not of the T-Maze study.
    """
    if not edition.name.startswith(NAME) or "last" not in edition.rows[0]:
        raise UserError(f"{edition.folder} is of {edition.name}, not a grid of the T-Maze study")
    whole, steps, left_out = most_rows(edition)
    which = edition.name.removeprefix(NAME)
    models = in_order(whole, list(tmaze.models(which)) if which in tmaze.EDITIONS else [])
    corridors = sorted({int(setting.removeprefix("corridor-")) for _, setting in whole.cells})
    return Grid(whole, steps, left_out, models, corridors)
