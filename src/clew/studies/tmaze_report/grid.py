"""A T-Maze study's folder at one budget: success rates by agent, corridor and seed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.studies import tmaze
from clew.studies.engine.results import Row
from clew.studies.report.edition import Edition

NAME = "pramanik/tmaze-"


@dataclass(frozen=True)
class Grid:
    """The rows of one budget, which every figure tells."""

    edition: Edition
    steps: int
    """Training steps of every cell that is shown."""
    left_out: Mapping[int, int]
    """Other budgets to the number of their rows, which are not shown."""
    models: Sequence[str]
    """Those with a row, the thesis's six first."""
    corridors: Sequence[int]
    """Those with a row, ascending."""

    @property
    def which(self) -> str:
        """ "published" or "repaired"."""
        return self.edition.name.removeprefix(NAME)

    def rows(self, model: str, corridor: int) -> list[Row]:
        """A cell's rows, seed by seed."""
        found = self.edition.cells.get((model, f"corridor-{corridor}"), {})
        return [found[seed] for seed in sorted(found)]

    def success(self, model: str, corridor: int) -> Float[np.ndarray, " seeds"]:
        """The thesis's score of every seed: success over the last 100K steps of training."""
        scores = [row["last"]["success"] for row in self.rows(model, corridor)]
        return np.array([score for score in scores if score is not None], np.float64)

    def seeds(self, models: Sequence[str] | None = None) -> str:
        """How many seeds the cells of some models have, in words."""
        counts = [
            len(self.rows(model, corridor))
            for model in models or self.models
            for corridor in self.corridors
        ]
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
        UserError: if the folder is not of the T-Maze study.
    """
    if not edition.name.startswith(NAME) or "last" not in edition.rows[0]:
        raise UserError(f"{edition.folder} is of {edition.name}, not a grid of the T-Maze study")
    counts = Counter(row["steps"] for row in edition.rows)
    steps = max(counts, key=lambda budget: (counts[budget], budget))
    rows = [row for row in edition.rows if row["steps"] == steps]
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["setting"]), {})[row["seed"]] = row
    which = edition.name.removeprefix(NAME)
    known = list(tmaze.models(which)) if which in tmaze.EDITIONS else []
    there = dict.fromkeys(model for model, _ in cells)
    models = [m for m in known if m in there] + [m for m in there if m not in known]
    corridors = sorted({int(setting.removeprefix("corridor-")) for _, setting in cells})
    left_out = {budget: count for budget, count in counts.items() if budget != steps}
    return Grid(replace(edition, rows=rows, cells=cells), steps, left_out, models, corridors)
