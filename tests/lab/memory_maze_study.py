"""A Memory Maze study's folder with made-up rows: nothing is trained."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clew.lab.grid import Cell
from clew.lab.studies.memory_maze import grid as study
from made_up_rows import row_of_cell, write_whole

Score = Callable[[Cell], float | None]
STEPS = 400_000


def maze_row(cell: Cell, score: float, steps: int = STEPS) -> dict[str, Any]:
    """A row as the engine writes it, with a curve of four bins."""
    rate = {"gtrxl-256": 100.0, "arelit": 150.0}.get(cell.model, 120.0)
    return row_of_cell(
        cell,
        mean=score,
        standard_error=None,
        episodes=0,
        score="return",
        evaluation={"greedy": False, "stream": False, "seed": 0, "means": None},
        last={"steps": 40_000, "episodes": 40, "return": score, "length": 1000.0},
        further={},
        curve={
            "steps": [steps * n // 4 for n in (1, 2, 3, 4)],
            "episodes": [0, 100, 100, 100],
            "return": [None, score / 2, score, score],
        },
        steps=steps,
        parameters=1000,
        seconds=steps / rate,
        timed={"train": steps / rate, "evaluate": 0.0},
        rate=rate + cell.seed,
    )


def write_maze(folder: Path, score: Score, **changes: Any) -> Path:
    """A study's folder with a row for every cell that `score` gives a return."""
    whole = replace(study.study(), steps=STEPS, **changes)
    scores = {cell: score(cell) for cell in whole.cells()}
    rows = [maze_row(cell, value) for cell, value in scores.items() if value is not None]
    return write_whole(folder, whole, rows)


def learner_row(model: str, faster: float, megabytes: int) -> dict[str, Any]:
    """The learner's measurements of an agent."""
    return {
        "model": model,
        "parameters": 1000,
        "multiply_adds": 35_000_000,
        "frames": 800,
        "rate": {"middle": 100 * faster, "low": 90 * faster, "high": 110 * faster},
        "times_faster": {"middle": faster, "low": faster - 0.01, "high": faster + 0.01},
        "planned_frames": 3200,
        "bytes": megabytes * 2**20,
    }


def write_learner(folder: Path, faster: float, megabytes: int) -> None:
    """Writes the learner's measurements into a study's folder: GTrXL-256, and AReLiT."""
    rows = [learner_row("gtrxl-256", 1.0, 1000), learner_row("arelit", faster, megabytes)]
    machine = {"device": "cpu", "cores": 2}
    text = json.dumps({"machine": machine, "rows": rows})
    (folder / "memory-maze-learner.json").write_text(text)
