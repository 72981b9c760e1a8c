"""The study's tables: success, claims, windows, longer corridors, costs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.errors import UserError
from clew.lab.studies.report.one_budget import over_seeds, trainings
from clew.lab.studies.report.tables import MISSING, shade
from clew.lab.studies.report.verdicts import verdict_cell
from clew.lab.studies.tmaze.claims import CLAIMS, Judged, judge, overall
from clew.lab.studies.tmaze.figures import WINDOWS, further_success
from clew.lab.studies.tmaze.scores import Grid
from clew.report.document import Cell, Column, Table, duration
from clew.stats import seeds_needed, welch_test


def success(grid: Grid) -> Table:
    """Every agent on every corridor."""
    rows, records = [], []
    for model in grid.models:
        cells = [Cell(model)]
        for corridor in grid.corridors:
            cell, record = _success(grid, model, corridor)
            cells.append(cell)
            records += record
        rows.append(cells)
    return Table(
        f"{grid.edition.slug}-success",
        f"Success over the last 100K of {grid.budget}",
        [Column("agent"), *(Column(f"corridor {n}") for n in grid.corridors)],
        rows,
        "Mean over seeds and its standard error, as published; below, the 95% bootstrap interval "
        "over seeds, how many they are, and the share of episodes that reached the junction. 0.5 "
        "is guessing.",
        records,
    )


def _success(grid: Grid, model: str, corridor: int) -> tuple[Cell, list[dict[str, Any]]]:
    values = grid.success(model, corridor)
    if not values.size:
        return MISSING, []
    rows = grid.rows(model, corridor)
    text, below, record = over_seeds(values, 3)
    junction = float(np.mean([row["last"]["junction"] for row in rows]))
    below[-1] += f", junction {junction:.2f}"
    named = {"model": model, "corridor": corridor} | record
    named |= {"junction": junction, "steps": grid.steps}
    named |= {"evaluated": float(np.mean([row["mean"] for row in rows]))}
    return Cell(text, tuple(below), shade=shade(record["mean"])), [named]


def claims(grid: Grid) -> list[Table]:
    """Every claim with its verdict, and the corridors that it rests on."""
    judged = [(claim, judge(grid, claim)) for claim in CLAIMS]
    rows = []
    for claim, each in judged:
        verdict, needed = overall(each)
        more = f", {needed:,} seeds would tell" if needed else ""
        there = f"{sum(j.seeds > 0 for j in each)} of {len(each)}"
        name = Cell(claim.model, (claim.figure,))
        rows.append([name, Cell(claim.text), Cell(there), verdict_cell(verdict, more)])
    columns = [Column("agent"), Column("the thesis says"), Column("corridors run"), Column("here")]
    note = (
        "A claim is a range of success rates, and holds where the whole 95% interval of the mean "
        "over seeds is in it, at every corridor; it does not where the interval is outside at one "
        "of them. The interval is Student's, or wider where so few seeds may all have missed a "
        "kind of outcome. The seeds are those with which each corridor would be decided if mean "
        "and deviation are as seen (power 0.8); an estimate from one or two seeds is a rough one."
    )
    title = f"Claims of Figures 5.2 and 5.3 at {grid.budget}, {grid.seeds()}"
    whole = Table(f"{grid.edition.slug}-claims", title, columns, rows, note)
    return [whole, _corridors(grid, [one for _, each in judged for one in each])]


def _corridors(grid: Grid, judged: Sequence[Judged]) -> Table:
    rows, records = [], []
    for one in judged:
        claim, interval = one.claim, one.interval
        told = "–" if interval is None else f"{interval:.2f}"
        needed = f", {one.needed:,} seeds" if one.needed else ""
        rows.append(
            [
                Cell(claim.model),
                Cell(str(one.corridor)),
                Cell(f"{claim.low:g} to {claim.high:g}"),
                Cell(str(one.seeds)),
                Cell(told),
                verdict_cell(one.verdict, needed),
            ]
        )
        record = {"figure": claim.figure, "model": claim.model, "corridor": one.corridor}
        record |= {"claimed_low": claim.low, "claimed_high": claim.high, "seeds": one.seeds}
        ends = (None,) * 3 if interval is None else interval
        record |= dict(zip(("mean", "low", "high"), ends, strict=True))
        records.append(record | {"verdict": one.verdict, "seeds_needed": one.needed})
    columns = [Column(n) for n in ("agent", "corridor", "claimed", "seeds", "mean, 95%", "verdict")]
    title = "The claims corridor by corridor"
    return Table(
        f"{grid.edition.slug}-claims-corridors", title, columns, rows, "", records, folded=True
    )


def windows(grid: Grid) -> Table | None:
    """GTrXL-128 with its learner's window as published and banded, corridor by corridor."""
    pair = WINDOWS.get(grid.which, ())
    both = [n for n in grid.corridors if all(grid.success(model, n).size for model in pair)]
    if not pair or not both:
        return None
    rows = []
    for corridor in both:
        wide, banded = (grid.success(model, corridor) for model in pair)
        cells = [Cell(f"{v.mean():.3f}", (f"seeds: {_each(v)}",)) for v in (wide, banded)]
        rows.append([Cell(f"corridor {corridor}"), *cells, Cell(*_difference(wide, banded))])
    columns = [Column(""), Column("sees its chunk", "as published"), Column("banded", "repaired")]
    title = f"GTrXL-128: what its learner sees, {grid.budget}"
    note = (
        "Success over the last 100K steps. The difference is that of the means, banded less "
        "published, with Welch's 95% interval; the seeds are those that each would need for a "
        "power of 0.8 if means and deviations are as seen."
    )
    return Table(
        f"{grid.edition.slug}-windows-table",
        title,
        [*columns, Column("banded less published")],
        rows,
        note,
    )


def _each(values: np.ndarray) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _difference(wide: np.ndarray, banded: np.ndarray) -> tuple[str, tuple[str, ...]]:
    difference = float(banded.mean() - wide.mean())
    text = f"{difference:+.3f}"
    if min(wide.size, banded.size) < 2:
        return text, ("one seed: no interval",)
    test = welch_test(banded, wide)
    below = [f"[{test.low:+.2f}, {test.high:+.2f}], p = {test.p:.2g}"]
    try:
        spread = (float(banded.std(ddof=1)), float(wide.std(ddof=1)))
        below.append(f"{seeds_needed(difference, *spread, most=10_000).seeds:,} seeds each")
    except UserError:
        below.append("seeds needed cannot be told")
    return text, tuple(below)


def lengths(grid: Grid) -> Table:
    """Success on longer corridors, agent by agent."""
    names = sorted(
        {n for row in grid.edition.rows for n in row["further"] or ()},
        key=lambda name: (int(name.split("-")[1]), name),
    )
    rows, records = [], []
    for corridor in grid.corridors:
        for model in grid.models:
            there = [row for row in grid.rows(model, corridor) if row["further"]]
            if not there:
                continue
            stretched, plain = further_success(there, corridor)
            cells = [Cell(model, (f"trained on {corridor}",))]
            cells += [_mean(stretched[corridor])]
            for name in names:
                found = stretched if name.endswith("-stretched") else plain
                values = found.get(int(name.split("-")[1])) if name in there[0]["further"] else None
                cells.append(_mean(values))
                if values:
                    record = {"model": model, "trained": corridor, "evaluated": name}
                    records.append(record | {"seeds": len(values), "mean": float(np.mean(values))})
            rows.append(cells)
    columns = [Column("agent"), Column("its own")]
    columns += [Column(*_length_words(name)) for name in names]
    return Table(
        f"{grid.edition.slug}-lengths-table",
        f"Success on longer corridors, {grid.budget}",
        columns,
        rows,
        "Mean over seeds of fresh episodes, with actions drawn from the policy.",
        records,
        folded=True,
    )


def _mean(values: list[float] | None) -> Cell:
    if not values:
        return MISSING
    mean = float(np.mean(values))
    return Cell(f"{mean:.2f}", shade=shade(mean))


def _length_words(name: str) -> tuple[str, str]:
    number, _, stretched = name.removeprefix("corridor-").partition("-")
    return number, stretched or "as it is"


def costs(grid: Grid) -> Table:
    """What the cells of every agent took."""
    rows, records = [], []
    for model in grid.models:
        took = trainings(grid.edition, model)
        minutes = float(np.mean([row["timed"]["evaluate"] for row in took.rows])) / 60
        hours = sum(row["seconds"] for row in took.rows) / 3600
        rows.append([Cell(model), *took.cells, Cell(f"{minutes:.1f} min"), Cell(f"{hours:.2f} h")])
        record = {"model": model, "parameters": took.rows[0]["parameters"]}
        record |= {"cells": len(took.rows), "steps_per_second": took.rate}
        records.append(record | {"train_hours": took.hours, "evaluate_minutes": minutes})
    heads = ("agent", "parameters", "cells", "steps/s", "a training", "a measuring", "in all")
    whole = duration(sum(row["seconds"] for row in grid.edition.rows))
    return Table(
        f"{grid.edition.slug}-costs",
        f"What it took, {grid.budget} a cell",
        [Column(head) for head in heads],
        rows,
        f"Of one core, each cell alone on it with one thread; {whole} in all. Other work on the "
        "machine counts: seconds are by the clock. Measuring is on the own corridor and the longer "
        "ones.",
        records,
    )
