"""The page of a study whose cells are runs: the rows of one budget of steps, and their tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from clew.lab import claims
from clew.lab.claims import Judged
from clew.lab.grid.results import Row
from clew.lab.studies.report.charts import curve_of, draw_seeds, steps_axis
from clew.lab.studies.report.data import StudyData
from clew.lab.studies.report.tables import MISSING, shade
from clew.report.document import Cell, Numbers, Panel, Table, counted, duration, tabulate
from clew.report.figures import Styles
from clew.stats import Interval, bootstrap_interval

Values = Float[np.ndarray, " seeds"]


@dataclass(frozen=True)
class OneBudget:
    """The rows of one budget, which every figure and table shows."""

    data: StudyData
    steps: int
    """Training steps of every cell shown."""
    not_shown: list[str]
    """A sentence for each other budget."""
    models: Sequence[str]
    """Models with a row, the study's own first."""
    settings: Sequence[str]
    """Settings with a row, in order."""

    def rows(self, model: str, setting: str) -> list[Row]:
        """A cell's rows, seed by seed."""
        found = self.data.cells.get((model, setting), {})
        return [found[seed] for seed in sorted(found)]

    def scores(self, model: str, setting: str) -> Values:
        """Every seed's mean over the last steps of training, if an episode ended there."""
        found = [row["last"][row["score"]] for row in self.rows(model, setting)]
        return np.array([score for score in found if score is not None], np.float64)

    def numbers(self, judged: Sequence[Judged], of: str) -> Numbers:
        """The numbers at the top of a report; `of` says what the trainings' time is of."""
        rows = self.data.rows
        return Numbers(
            [
                (f"{len(rows):,}", f"trainings of {self.budget}"),
                (self.seeds().split(" seed")[0], "seeds per cell"),
                *claims.counts(judged),
                (duration(sum(row["seconds"] for row in rows)), of),
            ]
        )

    def seeds(
        self, models: Iterable[str] | None = None, settings: Sequence[str] | None = None
    ) -> str:
        """The number of seeds of some cells, in words; by default of all cells."""
        asked = [(m, s) for m in models or self.models for s in settings or self.settings]
        counts = [count for cell in asked if (count := len(self.rows(*cell)))]
        if not counts:
            return "no seed yet"
        low, high = min(counts), max(counts)
        return counted(low, "seed") if low == high else f"{low} to {high} seeds"

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.steps / 1e6:.3g}M steps"


def one_budget(data: StudyData, models: Sequence[str], order: Callable[[str], Any]) -> OneBudget:
    """The rows of the budget that most rows have; the larger one of two equally frequent ones.

    The study's own models come first, in their order, and settings are sorted by `order`.
    """
    shown = data.of_one_budget()
    there = dict.fromkeys(model for model, _ in shown.cells)
    return OneBudget(
        shown,
        shown.rows[0]["steps"],
        data.not_shown(shown),
        [m for m in models if m in there] + [m for m in there if m not in models],
        sorted({setting for _, setting in shown.cells}, key=order),
    )


@dataclass(frozen=True)
class Shown:
    """How a study's table shows its scores."""

    name: str
    """Name of the table, after the folder's."""
    axis: str
    """The term for settings."""
    labels: Callable[[str], tuple[str, Any]]
    """For a setting, the head of its column, and its entry in the CSV file."""
    digits: int
    note: str
    interval_of: Callable[[Values], Interval] = bootstrap_interval
    """The 95% interval of a mean over seeds by which the study's claims are judged."""
    more: Callable[[Sequence[Row]], dict[str, Any]] = lambda rows: {"steps": rows[0]["steps"]}
    """Further numbers of a cell, for the CSV file."""
    below: Sequence[str] = ()
    """The further numbers that are shown too."""
    shaded: bool = False
    """Shade the scores, which are then between 0 and 1."""


def scores_table(found: OneBudget, title: str, shown: Shown) -> Table:
    """Every model in every setting: mean and standard error over seeds, interval, seeds."""
    rows, records = [], []
    for model in found.models:
        cells = [Cell(model)]
        for setting in found.settings:
            values = found.scores(model, setting)
            if not values.size:
                cells.append(MISSING)
                continue
            text, below, record = over_seeds(values, shown.digits, shown.interval_of)
            more = shown.more(found.rows(model, setting))
            below[-1] += "".join(f", {name} {more[name]:.2f}" for name in shown.below)
            tone = shade(record["mean"]) if shown.shaded else None
            cells.append(Cell(text, tuple(below), shade=tone))
            named = {"model": model, shown.axis: shown.labels(setting)[1]}
            records.append(named | record | more)
        rows.append(cells)
    heads = ["agent", *(shown.labels(setting)[0] for setting in found.settings)]
    return tabulate(f"{found.data.slug}-{shown.name}", title, heads, rows, shown.note, records)


def over_seeds(
    values: Values, digits: int, interval_of: Callable[[Values], Interval]
) -> tuple[str, list[str], dict[str, Any]]:
    """A table entry for at least one seed.

    Returns:
        Mean and standard error; below, the interval and the number of seeds; and all of these as
        numbers.
    """
    mean, interval = float(values.mean()), interval_of(values)
    error = standard_error(values) if values.size > 1 else None
    text = f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"
    below = [f"[{interval.low:.2f}, {interval.high:.2f}]"] if values.size > 1 else []
    record = {"seeds": values.size, "mean": mean, "standard_error": error}
    record |= {"low": interval.low, "high": interval.high}
    return text, [*below, counted(values.size, "seed")], record


def standard_error(values: Values) -> float:
    """Standard error of the mean over seeds; 0 for a single one."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def learning_panels(
    found: OneBudget,
    titles: Mapping[str, str],
    models: Sequence[str],
    styles: Styles,
    metric: str,
    label: str,
    limits: tuple[float, float | None] | None = None,
    banded: bool = False,
) -> list[Panel]:
    """Learning curves, a panel for each setting with a title in which any model has a row.

    With `banded` the standard error of the mean is shaded.
    """

    def draw(axes: Axes, setting: str) -> None:
        for model in models:
            if rows := found.rows(model, setting):
                curve = curve_of(rows, min(len(row["curve"]["steps"]) for row in rows), metric)
                draw_seeds(axes, curve, styles[model], banded=banded)
        axes.set(xlim=(0, found.steps), ylabel=label)
        if limits:
            axes.set_ylim(min(limits[0], axes.dataLim.y0), limits[1])
        steps_axis(axes)

    return [
        Panel(title, partial(draw, setting=setting))
        for setting, title in titles.items()
        if any(found.rows(model, setting) for model in models)
    ]


def costs_table(found: OneBudget, note: str, *, measured: bool = False) -> Table:
    """The time of every agent's trainings, and with `measured` of their evaluation.

    The note says what the time is of, with {} for the total.
    """
    rows, records = [], []
    for model in found.models:
        own = found.data.rows_of(model)
        train = [row["timed"]["train"] for row in own]
        rate, hours = sum(row["steps"] for row in own) / sum(train), float(np.mean(train)) / 3600
        minutes = float(np.mean([row["timed"]["evaluate"] for row in own])) / 60
        whole = sum(row["seconds"] for row in own) / 3600
        parameters = own[0]["parameters"]
        cells = [model, f"{parameters:,}", str(len(own)), f"{rate:,.0f}", f"{hours:.2f} h"]
        rows.append(cells + ([f"{minutes:.1f} min", f"{whole:.2f} h"] if measured else []))
        record = {"model": model, "parameters": parameters, "cells": len(own)}
        record |= {"steps_per_second": rate, "train_hours": hours}
        records.append(record | ({"evaluate_minutes": minutes} if measured else {}))
    heads = ["agent", "parameters", "cells", "steps/s", "one training"]
    heads += ["its evaluation", "total"] if measured else []
    title = f"Cost, {found.budget} per cell"
    note = note.format(f"{duration(sum(row['seconds'] for row in found.data.rows))} in total")
    return tabulate(f"{found.data.slug}-costs", title, heads, rows, note, records)
