"""The rows of a study's folder that have one budget of steps."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clew.lab import claims
from clew.lab.claims import Judged
from clew.lab.grid.results import Row
from clew.lab.studies.report.costs import rows_of
from clew.lab.studies.report.edition import Edition
from clew.report.document import Cell, Heading, Numbers, counted, duration
from clew.stats import Interval, bootstrap_interval


@dataclass(frozen=True)
class OneBudget:
    """The rows of one budget, which every figure and table shows."""

    edition: Edition
    steps: int
    """Training steps of every cell that is shown."""
    left_out: Mapping[int, int]
    """Other budgets to the number of their rows, which are not shown."""
    models: Sequence[str]
    """Those with a row, the study's own first."""

    def rows_of(self, model: str, setting: str) -> list[Row]:
        """A cell's rows, seed by seed."""
        found = self.edition.cells.get((model, setting), {})
        return [found[seed] for seed in sorted(found)]

    def numbers(self, seeds: str, judged: Sequence[Judged], of: str) -> Numbers:
        """The numbers at the head of a report.

        Args:
            seeds: how many seeds the cells have, in words.
            judged: the claims.
            of: whose time it is that the trainings took.
        """
        rows = self.edition.rows
        return Numbers(
            [
                (f"{len(rows):,}", f"trainings of {self.budget}"),
                (seeds.split(" seed")[0], "seeds a cell"),
                *claims.counts(judged),
                (duration(sum(row["seconds"] for row in rows)), of),
            ]
        )

    def seeds_of(self, models: Iterable[str], settings: Sequence[str]) -> str:
        """How many seeds some cells have, in words."""
        counts = [len(self.rows_of(model, setting)) for model in models for setting in settings]
        known = [count for count in counts if count]
        if not known:
            return "no seed yet"
        low, high = min(known), max(known)
        return counted(low, "seed") if low == high else f"{low} to {high} seeds"

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.steps / 1e6:.3g}M steps"

    @property
    def not_shown(self) -> list[str]:
        """A sentence for each other budget."""
        return [
            f"{counted(count, 'row')} of another budget ({steps:,} steps) are not shown."
            for steps, count in sorted(self.left_out.items())
        ]

    def heading(self, text: str, name: str) -> Heading:
        """Of a section."""
        return Heading(text, 2, f"{self.edition.slug}-{name}")


def most_rows(edition: Edition) -> tuple[Edition, int, dict[int, int]]:
    """The rows of the budget that most rows are of, the larger one if two have as many.

    Returns:
        The edition with them alone, the budget, and the other ones to the number of their rows.
    """
    counts = Counter(row["steps"] for row in edition.rows)
    steps = max(counts, key=lambda budget: (counts[budget], budget))
    rows = [row for row in edition.rows if row["steps"] == steps]
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["setting"]), {})[row["seed"]] = row
    left_out = {budget: count for budget, count in counts.items() if budget != steps}
    return replace(edition, rows=rows, cells=cells), steps, left_out


def in_order(edition: Edition, known: Sequence[str]) -> list[str]:
    """The models with a row, the known ones first and in their order."""
    there = dict.fromkeys(model for model, _ in edition.cells)
    return [m for m in known if m in there] + [m for m in there if m not in known]


def over_seeds(
    values: Float[np.ndarray, " seeds"],
    digits: int,
    interval_of: Callable[[Float[np.ndarray, " seeds"]], Interval] = bootstrap_interval,
) -> tuple[str, list[str], dict[str, Any]]:
    """The entry of a table for at least one seed.

    Args:
        values: of the seeds.
        digits: of mean and standard error.
        interval_of: the 95% interval of the mean, the one by which the study's claims are judged.

    Returns:
        Mean and standard error; lines below, the interval and how many seeds; and all of these as
        numbers.
    """
    mean, interval = float(values.mean()), interval_of(values)
    error = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None
    text = f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"
    below = [f"[{interval.low:.2f}, {interval.high:.2f}]"] if values.size > 1 else []
    record = {"seeds": values.size, "mean": mean, "standard_error": error}
    record |= {"low": interval.low, "high": interval.high}
    return text, [*below, counted(values.size, "seed")], record


class Trainings(NamedTuple):
    """What a model's trainings took."""

    rows: list[Row]
    rate: float
    """Environment steps per second."""
    hours: float
    """Mean of a training."""

    @property
    def cells(self) -> list[Cell]:
        """Parameters, trainings, rate and hours."""
        parameters = Cell(f"{self.rows[0]['parameters']:,}")
        taken = [Cell(f"{self.rate:,.0f}"), Cell(f"{self.hours:.2f} h")]
        return [parameters, Cell(str(len(self.rows))), *taken]


def trainings(edition: Edition, model: str) -> Trainings:
    """The trainings of a model that has a row."""
    rows = rows_of(edition, model)
    train = [row["timed"]["train"] for row in rows]
    rate = sum(row["steps"] for row in rows) / sum(train)
    return Trainings(rows, rate, float(np.mean(train)) / 3600)
