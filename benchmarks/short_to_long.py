"""Does a memory that was trained in a short T-Maze work in a longer one?

    python -m benchmarks.short_to_long results/short-to-long --seeds 3

Every memory learns a corridor of 20, as in `benchmarks/modern_memories.py`; its agents are then
tested in corridors of 40 to 640. These show the positions of the corridor of 20, each for several
steps, so that only the time is new to an agent. Run it again to resume; it also draws success
against length, for the seeds that solve the corridor of 20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.heatmap import draw_heatmap
from benchmarks.modern_memories import NAMES, SHORT, corridor, short
from benchmarks.plans import run_plan

from clew.lab.grid import Study

LONGER = (40, 80, 160, 320, 640)
SOLVED = 0.9
"""Success from which on a seed counts as having solved its training corridor."""


def further() -> Study:
    """The corridor of 20, and longer ones that look like it."""
    longer = {
        f"corridor-{n}": {"corridor_length": n, "shown_length": SHORT, "time_limit": 1000 + n}
        for n in LONGER
    }
    settings = {
        name: replace(setting, further=longer, further_needs="junction")
        for name, setting in corridor(SHORT).items()
    }
    study = replace(short().only(NAMES), name="short-to-long", settings=settings)
    return replace(study, resumable=True)


def success(row: Mapping[str, Any]) -> list[float]:
    """An agent's success in its training corridor and in every longer one."""
    return [row["mean"], *(row["further"][f"corridor-{n}"]["success"] for n in LONGER)]


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean success of the seeds that solve the short corridor, a row per memory, the best first."""
    solved: dict[str, list[list[float]]] = {}
    for row in rows:
        if row["mean"] >= SOLVED:
            solved.setdefault(row["model"], []).append(success(row))
    means = {name: list(np.mean(found, axis=0)) for name, found in solved.items()}
    lengths = [str(n) for n in (SHORT, *LONGER)]
    draw_heatmap(means, lengths, f"corridor length (steps); trained on {SHORT}", path)


if __name__ == "__main__":
    result = run_plan(__doc__, {"further": further}, draws=True)
    draw(result.rows, result.path / "short-to-long.png")
