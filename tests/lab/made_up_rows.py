"""A study's folder with made-up rows: nothing is trained."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clew.lab.grid import Cell, Study
from clew.lab.grid.results import RESULTS, write_study


def row_of_cell(cell: Cell, **more: Any) -> dict[str, Any]:
    """The fields that the engine writes into every row, and more."""
    return {
        "format": 1,
        "model": cell.model,
        "setting": cell.setting,
        "seed": cell.seed,
        "versions": {"clew": "0.1.0"},
        "git_commit": "abc",
        "finished": "2026-01-02T03:04:05+00:00",
        **more,
    }


def write_rows(folder: Path, rows: Iterable[dict[str, Any]], mode: str = "w") -> None:
    """Writes a study's rows; with mode "a" after the existing ones."""
    with open(folder / RESULTS, mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_whole(folder: Path, study: Study, rows: Iterable[dict[str, Any]]) -> Path:
    """A folder with a study and its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    write_study(folder, study)
    write_rows(folder, rows)
    return folder
