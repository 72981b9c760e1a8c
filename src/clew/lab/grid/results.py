"""The files of a study's folder: one line for every finished cell, one for every failure."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.errors import UserError
from clew.lab.grid.packs import Pack
from clew.lab.grid.study import Cell, Study
from clew.run.folder import write_json
from clew.run.machine import git_commit, versions

RESULTS, FAILURES, STUDY, LOGS = "results.jsonl", "failures.jsonl", "study.json", "logs"
FORMAT = 1

Row = dict[str, Any]


def read_results(path: str | Path) -> list[Row]:
    """The rows of a study, in the order in which they were finished; nothing is changed.

    A last line that a kill cut short is left out.

    Args:
        path: the study's folder.

    Raises:
        UserError: if the file is damaged anywhere else, naming the line.
    """
    return _read(Path(path) / RESULTS)[0]


def cell_of(row: Row) -> Cell:
    """The cell that a row is of."""
    return Cell(row["model"], row["setting"], row["seed"])


def finished_cells(study: Study, rows: Iterable[Row], path: Path) -> set[Cell]:
    """The study's cells that have a row already.

    Args:
        study: what is to be run.
        rows: of its folder; those of cells that the study does not have are ignored.
        path: of the folder, for the message.

    Raises:
        UserError: if a row was made with other settings, so that it would be something else
            beside the new ones.
    """
    wanted, found = set(study.cells()), set()
    digests: dict[tuple[str, str], str] = {}
    for row in rows:
        cell = cell_of(row)
        if cell not in wanted or not of_budget(study, row):
            continue
        pair = (cell.model, cell.setting)
        digests[pair] = digests.get(pair) or study.digest(*pair)
        if row["digest"] != digests[pair]:
            raise UserError(
                f"{path / RESULTS} has {cell.model} on {cell.setting} with other settings or "
                f"another budget ({row['digest']}, now {digests[pair]}): choose another folder "
                "(--run-dir)"
            )
        found.add(cell)
    return found


def of_budget(study: Study, row: Row) -> bool:
    """Whether a row is of the study's budget; only a resumable study may have others in it."""
    if not study.resumable:
        return True
    config = study.config(row["model"], row["setting"])
    return row["steps"] == config.updates * config.steps_per_update


def rows_of(study: Study, rows: Sequence[Row]) -> list[Row]:
    """The study's rows in its own order; a cell's first row if there were two."""
    wanted = set(study.cells())
    mine = [row for row in reversed(rows) if cell_of(row) in wanted]
    found = {cell_of(row): row for row in mine if of_budget(study, row)}
    return [found[cell] for cell in study.cells() if cell in found]


class ResultsFile:
    """The study's results.jsonl, appended to and nothing else.

    Opening it mends what a kill left: a last line without its end is cut off.

    Raises:
        UserError: if the disk is full or cannot be written to, or the file is damaged.
    """

    def __init__(self, path: Path):
        self._path = path / RESULTS
        try:
            if self._path.exists():
                self.rows, good = _read(self._path)
                if good < self._path.stat().st_size:
                    os.truncate(self._path, good)
            else:
                self.rows = []
            self._file = open(self._path, "ab", buffering=0)
        except OSError as error:
            raise UserError(f"cannot write {self._path}: {error.strerror}") from error

    def append(self, rows: Sequence[Row]) -> None:
        """Writes rows, whole lines at once, and waits until the disk has them."""
        _append(self._file, self._path, rows)
        self.rows.extend(rows)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def record_failure(path: Path, pack: Pack, error: str, attempts: int) -> None:
    """Appends a pack that could not be run to the folder's failures.jsonl."""
    row = {
        "format": FORMAT,
        "model": pack.model,
        "settings": list(pack.settings),
        "seeds": list(pack.seeds),
        "attempts": attempts,
        "error": error,
    }
    with open(path / FAILURES, "ab", buffering=0) as file:
        _append(file, path / FAILURES, [row])


def write_study(path: Path, study: Study) -> None:
    """Writes study.json: what the newest command asked for, in full, with versions and commit."""
    models = {name: config.to_json() for name, config in study.models.items()}
    settings = {
        name: {"env": s.env, "options": dict(s.options), "decisions": s.decisions}
        | {"a2c": dict(s.a2c), "ppo": dict(s.ppo)}
        | {"floors": dict(s.floors), "further": {n: dict(o) for n, o in s.further.items()}}
        for name, s in study.settings.items()
    }
    expected = [[*pair, *numbers] for pair, numbers in study.expected.items()]
    write_json(
        path / STUDY,
        {
            "format": FORMAT,
            "name": study.name,
            "models": models,
            "settings": settings,
            "seeds": list(study.seeds),
            "episodes": study.episodes,
            "steps": study.steps,
            "evaluation": vars(study.evaluation),
            "score": study.score,
            "expected": expected,
            "memories": dict(study.memories),
            "tasks": dict(study.tasks),
            "resumable": study.resumable,
            "versions": versions(),
            "git_commit": git_commit(),
        },
    )


def _read(path: Path) -> tuple[list[Row], int]:
    """The rows of a file and how many of its bytes they take."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    rows: list[Row] = []
    good = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            if not line.endswith(b"\n"):
                break
            rows.append(json.loads(line))
        except ValueError as error:
            if good + len(line) == len(data):
                break  # a power cut may leave a last line of the right length and no content
            raise UserError(f"{path}: line {number} is damaged; remove it to resume") from error
        good += len(line)
    return rows, good


def _append(file: Any, path: Path, rows: Sequence[Row]) -> None:
    data = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
    try:
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; make room and resume") from error
