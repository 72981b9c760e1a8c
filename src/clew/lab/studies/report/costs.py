"""Parameters and time beside scores, and the provenance of a study."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clew.lab.grid.results import Row
from clew.lab.studies.report.data import StudyData
from clew.lab.studies.report.means import lacks, mean_score
from clew.lab.studies.report.tables import MISSING, model_cell, score_label, shade, title_of
from clew.report.document import Cell, Column, Table, duration, tabulate


def rates(data: StudyData) -> dict[str, float]:
    """Environment steps trained per second, by model.

    A program trains several cells at once, so its seconds are divided among those of its cells that
    have rows. Rows without a training time count with all of their seconds.
    """
    found = {}
    for model in data.models:
        rows = data.rows_of(model)
        seconds = sum(_training_seconds(row) for row in rows)
        if rows and seconds > 0:
            found[model] = sum(row["steps"] for row in rows) / seconds
    return found


def _training_seconds(row: Row) -> float:
    """The seconds of a run's training, or a row's share of its program's seconds."""
    if "timed" in row:
        return row["timed"]["train"]
    pack = row.get("pack", {})
    whole = sum(pack.get(key, 0.0) for key in ("compile", "train", "evaluate"))
    return row["seconds"] * (pack["train"] / whole if whole else 1.0)


def costs(data: StudyData) -> Table:
    """Parameters, seconds and rate of every model beside its mean scores."""
    speed = rates(data)
    columns = ["model", "parameters", f"seconds of {data.machine} per cell", "training steps/s"]
    columns += [Column(title_of(data, p), f"mean {score_label(data)}") for p in data.parts]
    rows, records = [], []
    for model in data.models:
        own = data.rows_of(model)
        cells = [model_cell(data, model)]
        if not own:
            rows.append([*cells, *[MISSING] * (len(columns) - 1)])
            continue
        parameters = [row["parameters"] for row in own]
        seconds = sum(row["seconds"] for row in own) / len(own)
        found = {part: data.begun(model, data.averaged(part)) for part in data.parts}
        means = {p: mean_score(data, model, names) for p, names in found.items() if names}
        cells += [
            Cell(_range(parameters), _published_parameters(data, model)),
            Cell(f"{seconds:,.1f}"),
            Cell(f"{speed[model]:,.0f}") if model in speed else MISSING,
        ]
        cells += [_mean_cell(data, model, part, means.get(part)) for part in data.parts]
        rows.append(cells)
        record: dict[str, Any] = {"model": model, "parameters_from": min(parameters)}
        record |= {"parameters_to": max(parameters), "seconds_per_cell": seconds}
        record |= {"steps_per_second": speed.get(model)}
        records.append(record | {part: means.get(part) for part in data.parts})
    note = (
        "Parameters are those of the whole agent; their number grows with the size of an "
        "observation. Seconds are a cell's share of its program's time, including compilation and "
        "evaluation. Steps per second are of training alone, on one core, with many small agents "
        "at once."
    )
    if data.study.get("resumable"):
        note = (
            "Parameters are those of the whole agent. Seconds are of a cell's training and "
            "evaluation, without compilation; steps per second are of training alone, on "
            f"{data.machine}."
        )
    title = "Parameters and cost beside score"
    return tabulate(f"{data.slug}-cost", title, columns, rows, note, records)


def _mean_cell(data: StudyData, model: str, part: str, mean: float | None) -> Cell:
    if mean is None:
        return MISSING
    wanted = data.averaged(part)
    below = lacks(data, model, data.begun(model, wanted), wanted)
    return Cell(f"{mean:.3f}", below, shade=shade(mean))


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _published_parameters(data: StudyData, model: str) -> tuple[str, ...]:
    known = data.publication
    if model not in known.parameters:
        return ()
    return (f"{known.parameters_table}: {known.parameters[model]:,}",)


def provenance(data: StudyData, note: str) -> Table:
    """The provenance of the numbers: command, budget, evaluation, versions, machine."""
    study, rows = data.study, data.rows
    settings = study.get("evaluation", {})
    played = "greedy actions" if settings.get("greedy") else "actions sampled from the policy"
    fresh = "the first of a fixed stream" if settings.get("stream") else "fresh ones"
    evaluation = f"{settings.get('episodes', 0):,} episodes, {fresh}; {played}"
    if not any(row.get("episodes", 1) for row in rows):
        last = _range([row["last"]["steps"] for row in rows])
        evaluation = f"none: scores are means over the last {last} steps of training"
    steps = f"{_range([row['steps'] for row in rows])} steps"
    budget = f"{study['episodes']:,} episodes" if study.get("episodes") else steps
    versions = dict.fromkeys(
        ", ".join(f"{k} {v}" for k, v in row.get("versions", {}).items()) for row in rows
    )
    commits = dict.fromkeys(str(row.get("git_commit") or "unknown") for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    facts = {
        "latest command": data.page.command(data),
        "folder": str(data.folder),
        "seeds": ", ".join(map(str, data.seeds)),
        "training": f"{budget} per cell",
        "evaluation": evaluation,
        "cells": f"{data.there:,} of {data.wanted:,}",
        "time": f"{duration(seconds)} of {data.machine}; {_dates(rows)}",
        "versions": "; ".join(versions),
        "commit": ", ".join(commits),
        "machine": note or "not recorded (--note)",
    }
    rows = list(facts.items())
    return tabulate(f"{data.slug}-made", "How this was made", ("what", "how"), rows)


def _dates(rows: Sequence[Row]) -> str:
    """When the first and the last cell were finished."""
    times = sorted(datetime.fromisoformat(r["finished"]) for r in rows if r.get("finished"))
    if not times:
        return "dates unknown"
    first, last = (f"{time:%Y-%m-%d %H:%M}" for time in (times[0], times[-1]))
    span = duration((times[-1] - times[0]).total_seconds())
    return f"finished from {first} to {last} UTC, {span} of wall time"
