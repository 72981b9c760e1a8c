"""The files of a study's folder: one line for every finished cell, one for every failure."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from clew.errors import UserError
from clew.files import read_json, write_json
from clew.lab.grid.packs import Pack
from clew.lab.grid.study import Cell, Study
from clew.run import json_lines
from clew.run.json_lines import Kinds, Row, RowFile
from clew.run.machine import git_commit, versions
from clew.run.metrics import mean_of_rows

RESULTS, FAILURES, STUDY, LOGS = "results.jsonl", "failures.jsonl", "study.json", "logs"
FORMAT = 1
_CELL: Kinds = {"model": str, "setting": str, "seed": int}
_FAILED: Kinds = {"model": str, "settings": list, "seeds": list}


def read_results(path: str | Path) -> list[Row]:
    """The rows of a study, in the order in which they were finished; nothing is changed.

    A last line that a kill cut short is skipped. A damaged row is skipped with a
    `DamagedRowWarning` that names it.

    Args:
        path: the study's folder.

    Raises:
        UserError: if the file cannot be read.
    """
    return [line.row for line in json_lines.read(Path(path) / RESULTS)]


def mean_at_end(row: Row, metric: str, steps: float) -> float | None:
    """The mean over the episodes in the last steps of a row's curve; None if none ended there."""
    curve = row["curve"]
    begin = curve["steps"][-1] - steps
    points = zip(curve["steps"], curve[metric], curve["episodes"], strict=True)
    return mean_of_rows((mean, count) for at, mean, count in points if at > begin)


def cell_of(row: Row) -> Cell:
    """The cell of a row."""
    return Cell(row["model"], row["setting"], row["seed"])


def refuse_other_study(study: Study, path: Path) -> None:
    """Refuses a folder whose study.json belongs to a study with another name.

    Raises:
        UserError: naming both.
    """
    try:
        name = read_json(path / STUDY).get("name", study.name)
    except UserError:  # it is missing, or cannot be read
        return
    if name != study.name:
        raise UserError(
            f"{path} is the folder of the study {name!r}, not of {study.name!r}: choose another "
            f"folder (--run-dir); if the study has only been renamed, remove {path / STUDY}"
        )


def finished_cells(study: Study, rows: Iterable[Row], path: Path) -> set[Cell]:
    """The study's cells that already have a row in its folder; rows of other cells are ignored.

    Raises:
        UserError: if a row was made with other settings, so that it could not be compared with the
            new ones, or does not name its cell.
    """
    wanted, found = set(study.cells()), set()
    known: Kinds = {"digest": str} | ({"steps": int} if study.resumable else {})
    digest_of = cache(study.digest)
    for row in rows:
        _require(row, _CELL, path)
        cell = cell_of(row)
        if cell not in wanted:
            continue
        _require(row, known, path)
        if not of_budget(study, row):
            continue
        digest = digest_of(cell.model, cell.setting)
        if row["digest"] != digest:
            raise UserError(
                f"{path / RESULTS} has {cell.model} on {cell.setting} with other settings or "
                f"another budget ({row['digest']}, now {digest}): choose another folder (--run-dir)"
            )
        found.add(cell)
    return found


def _require(row: Row, kinds: Kinds, path: Path) -> None:
    reason = json_lines.lack(row, kinds)
    if reason:
        lines = json_lines.read(path / RESULTS)
        number = next((line.number for line in lines if line.row == row), 0)
        raise UserError(
            f"{path / RESULTS}: line {number} is not a row of a study, {reason}; fix or remove it"
        )


def of_budget(study: Study, row: Row) -> bool:
    """Whether a row has the study's budget; only a resumable study may have rows of others."""
    if not study.resumable:
        return True
    config = study.config(row["model"], row["setting"])
    return row["steps"] == config.updates * config.steps_per_update


def rows_of(study: Study, rows: Sequence[Row]) -> list[Row]:
    """The study's rows in its own order; the first row of a cell that has two."""
    wanted = set(study.cells())
    mine = [row for row in reversed(rows) if cell_of(row) in wanted]
    found = {cell_of(row): row for row in mine if of_budget(study, row)}
    return [found[cell] for cell in study.cells() if cell in found]


def record_failure(path: Path, pack: Pack, error: str, attempts: int) -> list[str]:
    """Appends a pack that could not be run to the folder's failures.jsonl.

    Returns:
        A line for the user about each damaged row that was moved.
    """
    row = {
        "format": FORMAT,
        "model": pack.model,
        "settings": list(pack.settings),
        "seeds": list(pack.seeds),
        "attempts": attempts,
        "error": error,
    }
    with contextlib.closing(RowFile(path / FAILURES)) as file:
        file.append([row])
        file.sync()
        return file.mended


def failed_cells(path: Path) -> list[Cell]:
    """The cells in the folder's failures.jsonl, in order; some may have been trained since.

    A row that does not say what failed is skipped with a `DamagedRowWarning` that names it.
    """
    packs = [line.row for line in json_lines.read(path / FAILURES, _FAILED)]
    cells = (Cell(p["model"], *pair) for p in packs for pair in product(p["settings"], p["seeds"]))
    return list(dict.fromkeys(cells))


def write_study(path: Path, study: Study) -> None:
    """Writes study.json: everything that the latest command asked for, with versions and commit."""
    values = {field.name: getattr(study, field.name) for field in dataclasses.fields(study)}
    values["models"] = {name: config.to_json() for name, config in study.models.items()}
    values["settings"] = {name: dataclasses.asdict(s) for name, s in study.settings.items()}
    values["expected"] = [[*pair, *numbers] for pair, numbers in study.expected.items()]
    values["evaluation"] = dataclasses.asdict(study.evaluation)
    made_with = {"versions": versions(), "git_commit": git_commit()}
    write_json(path / STUDY, {"format": FORMAT, **values, **made_with})
