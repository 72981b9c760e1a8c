"""A T-Maze study's folder with made-up rows: nothing is trained."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clew.lab.grid import Cell
from clew.lab.studies.tmaze import grid as tmaze
from made_up_rows import row_of_cell, write_whole

Score = Callable[[Cell], float | None]
STEPS = 3_000_320


def tmaze_row(cell: Cell, further: list[str] | None, success: float) -> dict[str, Any]:
    """A row as the engine writes it, with a curve of four bins."""
    ended = {"success": success, "junction": 1.0, "timeout": 0.0, "return": -8.0, "length": 120.0}
    return row_of_cell(
        cell,
        mean=success,
        episodes=192,
        score="success",
        evaluation={"greedy": False, "stream": False, "seed": 0, "means": ended},
        last={"steps": 100_000, "episodes": 90, **ended},
        further=None if further is None else {name: ended for name in further},
        curve={
            "steps": [STEPS * n // 4 for n in (1, 2, 3, 4)],
            "episodes": [0, 10, 20, 20],
            "success": [None, success / 2, success, success],
            "return": [None, -80.0, -8.0, -8.0],
        },
        steps=STEPS,
        parameters=1000,
        seconds=1900.0,
        timed={"train": 1800.0, "evaluate": 100.0},
        rate=1667.0,
    )


def write_tmaze(folder: Path, score: Score, edition: str = "published", **changes: Any) -> Path:
    """A study's folder with a row for every cell that `score` gives a success rate."""
    study = replace(tmaze.study(edition=edition, corridors=(120, 200)), **changes)
    rows = []
    for cell in study.cells():
        success = score(cell)
        if success is not None:
            further = list(study.settings[cell.setting].further) if success > 0.4 else None
            rows.append(tmaze_row(cell, further, success))
    return write_whole(folder, study, rows)
