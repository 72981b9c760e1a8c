"""The study's tables: returns, claims, costs."""

from collections.abc import Sequence
from typing import Any

from clew.lab.studies.memory_maze.claims import Claim
from clew.lab.studies.memory_maze.grid import STEPS
from clew.lab.studies.memory_maze.scores import Grid
from clew.lab.studies.report.one_budget import over_seeds, trainings
from clew.lab.studies.report.tables import MISSING
from clew.lab.studies.report.verdicts import verdict_cell
from clew.report.document import Cell, Column, Table, duration


def returns(grid: Grid) -> Table:
    """Every agent in every maze."""
    rows, records = [], []
    for model in grid.models:
        cells = [Cell(model)]
        for maze in grid.mazes:
            cell, record = _return(grid, model, maze)
            cells.append(cell)
            records += record
        rows.append(cells)
    last = max(row["last"]["steps"] for row in grid.edition.rows)
    return Table(
        f"{grid.edition.slug}-returns",
        f"Return over the last {last:,} of {grid.budget}",
        [Column("agent"), *(Column(maze) for maze in grid.mazes)],
        rows,
        "Mean over seeds of the episodes that ended there, and its standard error; below, the 95% "
        "bootstrap interval over seeds and how many they are.",
        records,
    )


def _return(grid: Grid, model: str, maze: str) -> tuple[Cell, list[dict[str, Any]]]:
    values = grid.returns(model, maze)
    if not values.size:
        return MISSING, []
    text, below, record = over_seeds(values, 2)
    named = {"model": model, "maze": maze} | record | {"steps": grid.steps}
    return Cell(text, tuple(below)), [named]


def claims(grid: Grid, judged: Sequence[Claim]) -> list[Table]:
    """Every claim with its verdict, and the comparisons that it rests on."""
    rows, parts, records = [], [], []
    for claim in judged:
        more = f", {claim.needed:,} seeds would tell" if claim.needed else ""
        seeds = ", ".join(dict.fromkeys(part.seeds for part in claim.parts))
        verdict = verdict_cell(claim.verdict, more)
        steps = grid.budget if seeds != "–" else seeds
        rows.append([Cell(claim.text, (claim.source,)), Cell(seeds), Cell(steps), verdict])
        for part in claim.parts:
            needed = f", {part.needed:,} seeds" if part.needed else ""
            cells = [Cell(claim.text), Cell(part.what), Cell(part.seeds), Cell(part.evidence)]
            parts.append([*cells, verdict_cell(part.verdict, needed)])
            records.append({"source": claim.source, "claim": claim.text} | part._asdict())
    slug = grid.edition.slug
    note = (
        "An order holds where the 95% interval (Welch's) of every difference between neighbours is "
        "above 0, and does not where one is below. Windows are alike where the intervals of all "
        "differences lie within a tenth of the mean return. A window converges more slowly where "
        "it takes more steps to nine tenths of the lowest final return. Speed and memory hold "
        "where they are at least as far apart as in the thesis, by the whole interval. One seed "
        "decides nothing. The seeds that would tell are an estimate (power 0.8), a rough one."
    )
    if grid.steps < STEPS:
        note += (
            f" All verdicts are on agents after {grid.budget}; the thesis speaks of 100M, and what "
            "does not hold here may hold there."
        )
    heads = [Column(name) for name in ("the thesis says", "seeds", "steps", "here")]
    deep = [Column(name) for name in ("claim", "comparison", "seeds", "seen", "verdict")]
    title = "The claims comparison by comparison"
    return [
        Table(f"{slug}-claims", "Claims of section 5.2", heads, rows, note),
        Table(f"{slug}-claims-parts", title, deep, parts, "", records, folded=True),
    ]


def learner(grid: Grid) -> Table | None:
    """What the learner's measurement found."""
    if not grid.speed:
        return None
    rows, records = [], []
    for model, row in grid.speed["rows"].items():
        rate, faster = row["rate"], row["times_faster"]
        rows.append(
            [
                Cell(model),
                Cell(f"{rate['middle']:,.0f}", (f"[{rate['low']:,.0f}, {rate['high']:,.0f}]",)),
                Cell(f"{faster['middle']:.2f}", (f"[{faster['low']:.2f}, {faster['high']:.2f}]",)),
                Cell(f"{row['bytes'] / 2**20:,.0f}"),
                Cell(f"{row['multiply_adds'] / 1e6:.1f}"),
            ]
        )
        records.append({"model": model, "rate": rate["middle"], "faster": faster["middle"]})
        records[-1] |= {"bytes": row["bytes"], "multiply_adds": row["multiply_adds"]}
    machine = grid.speed["machine"]
    heads = ("agent", "frames/s", "by gtrxl-256", "MiB", "million multiply-adds a frame")
    first = next(iter(grid.speed["rows"].values()))
    return Table(
        f"{grid.edition.slug}-learner",
        f"The learner alone: {machine['device']}, {machine['cores']} cores",
        [Column(head) for head in heads],
        rows,
        f"One gradient step, timed at {first['frames']:,} frames of noise; memory as planned for "
        f"{first['planned_frames']:,}. Median of turns and 95% interval.",
        records,
    )


def costs(grid: Grid) -> Table:
    """What the trainings of every agent took."""
    rows, records = [], []
    for model in grid.models:
        took = trainings(grid.edition, model)
        rows.append([Cell(model), *took.cells])
        record = {"model": model, "parameters": took.rows[0]["parameters"]}
        record |= {"cells": len(took.rows), "rate": took.rate, "train_hours": took.hours}
        records.append(record)
    whole = duration(sum(row["seconds"] for row in grid.edition.rows))
    heads = ("agent", "parameters", "cells", "steps/s", "a training")
    return Table(
        f"{grid.edition.slug}-costs",
        f"What it took, {grid.budget} a cell",
        [Column(head) for head in heads],
        rows,
        f"By the clock, whatever else the machine did; {whole} in all.",
        records,
    )
