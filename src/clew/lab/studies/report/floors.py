"""What is earned without remembering, and scores with that as their zero."""

from collections.abc import Callable
from typing import Any

import numpy as np

from clew.lab.studies.report.edition import NEEDLESS, Edition
from clew.lab.studies.report.tables import MISSING, head, shade
from clew.lab.studies.report.words import axis_of, model_title, title_of
from clew.report.document import Cell, Column, Table
from clew.stats import (
    interquartile_mean,
    mean_of_tasks,
    optimality_gap,
    stratified_interval,
)

EXACT = 5e-7
"""Rows have six digits."""
SAME = "≡"
AGGREGATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": mean_of_tasks,
    "interquartile mean": interquartile_mean,
    "gap to perfect": optimality_gap,
}


def has_floors(edition: Edition, part: str) -> bool:
    """Whether any setting of a part has a floor."""
    return any(edition.settings[name].floors for name in edition.of_part(part))


def floors(edition: Edition, part: str) -> Table:
    """The floors of every setting, and every model's mean normalised to the best of them."""
    names = edition.of_part(part)
    known = list(dict.fromkeys(f for n in names for f in edition.settings[n].floors))
    columns = [Column(axis_of(edition, part)), *(Column(f, "floor") for f in known)]
    rows, records = [], []
    for name in names:
        info = edition.settings[name]
        record: dict[str, Any] = {"setting": name, **{f: info.floors.get(f) for f in known}}
        cells = [Cell(info.label, ("memory not needed",) if info.needless else ())]
        cells += [Cell(f"{info.floors[f]:.2f}") if f in info.floors else MISSING for f in known]
        for model in edition.models:
            cell, value = _normalised(edition, model, name)
            cells.append(cell)
            record[f"normalised {model}"] = value
        rows.append(cells)
        records.append(record)
    note = (
        "Floors are returns of policies that do not do what the task asks; constant: always the "
        "same answer (the opposite one earns the opposite), memoryless: the best without a memory"
        + (", majority: what most bits were, whatever is asked" if "majority" in known else "")
        + ". Models: mean over seeds, normalised so that 0 is the best of the floors that need no "
        f"memory and 1 is perfect. Where that floor is {NEEDLESS} or more there is nothing to "
        f"normalise. {SAME}: every seed earned exactly what one of the floors earns, on the same "
        "episodes."
    )
    title = f"{title_of(edition, part)}: floors and normalised scores"
    return Table(
        f"{edition.slug}-{part}-floors",
        title,
        [*columns, *head(edition, edition.models)],
        rows,
        note,
        records,
        folded=True,
    )


def _normalised(edition: Edition, model: str, setting: str) -> tuple[Cell, float | None]:
    info, values = edition.settings[setting], edition.values(model, setting)
    if info.floor is None or info.needless or not values.size:
        return MISSING, None
    value = float(edition.normalised(setting, values).mean())
    mark = SAME if _is_a_floor(edition, setting, values) else ""
    return Cell(f"{value:.2f}", (), mark, shade(value)), value


def _is_a_floor(edition: Edition, setting: str, values: np.ndarray) -> bool:
    """Whether every seed earned what one of the floors earns, on the episodes it is known for."""
    if not edition.study.get("evaluation", {}).get("stream"):
        return False
    floors = edition.settings[setting].floors
    known = [sign * v for k, v in floors.items() for sign in ((1, -1) if k == "constant" else (1,))]
    return any(bool(np.all(np.abs(values - floor) < EXACT)) for floor in known)


def aggregates(edition: Edition) -> Table | None:
    """Normalised scores of each part in one number, three ways; None without floors."""
    parts = [part for part in edition.parts if edition.in_need(part)]
    if not parts:
        return None
    columns = [Column("model")]
    columns += [Column(title_of(edition, part), way) for part in parts for way in AGGREGATES]
    rows, records = [], []
    for model in edition.models:
        title = model_title(edition, model)
        cells = [Cell(model, (title,) if title else ())]
        for part in parts:
            scores = edition.table(model, edition.in_need(part), normalised=True)
            for way, aggregate in AGGREGATES.items():
                cell, record = _aggregate(scores, aggregate, way)
                cells.append(cell)
                if record:
                    records.append({"model": model, "part": part, "aggregate": way, **record})
        rows.append(cells)
    note = (
        "Scores normalised to the best floor without a memory (0) and to perfect (1), settings "
        "that need no memory left out; with 95% intervals from a bootstrap over seeds, stratified "
        "by setting. The interquartile mean leaves out the worst and the best quarter of all "
        "trainings. A score below 0 is worse than not remembering."
    )
    return Table(
        f"{edition.slug}-normalised",
        "Normalised scores",
        columns,
        rows,
        note,
        records,
    )


def _aggregate(
    scores: np.ndarray, aggregate: Callable[[np.ndarray], np.ndarray], way: str
) -> tuple[Cell, dict[str, Any]]:
    if not scores.size:
        return MISSING, {}
    record: dict[str, Any] = {"seeds": scores.shape[0], "settings": scores.shape[1]}
    if scores.shape[0] == 1:
        value = float(aggregate(scores[None])[0])
        return Cell(f"{value:.2f}"), record | {"value": value}
    found = stratified_interval(scores, aggregate, resamples=2000)
    value, low, high = found
    tone = None if way == "gap to perfect" else shade(value)
    below = f"[{low:.2f}, {high:.2f}]"
    record |= {"value": value, "low": low, "high": high}
    return Cell(f"{value:.2f}", (below,), "", tone), record
