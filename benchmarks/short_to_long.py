"""Does what a memory learned in a short T-Maze hold in a longer one?

    python -m benchmarks.short_to_long results/short-to-long --seeds 3

Every memory learns a corridor of 20, as in `benchmarks/modern_memories.py`; its agents are then
tried in corridors of 40 to 640. These show the places of the corridor of 20, each for several
steps, so that nothing is new to an agent but the time. It goes on where it stopped, and draws
success against length, of the seeds that solve the corridor of 20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.modern_memories import NAMES, SHORT, corridor, short
from benchmarks.plans import run_plan

from clew.lab.grid import Study
from clew.report.figures import new_figure, save, tidy

LONGER = (40, 80, 160, 320, 640)
SOLVED = 0.9
"""Success from which on a seed has solved the corridor that it learned in."""


def further() -> Study:
    """The corridor of 20, and then longer ones that look like it."""
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
    """Of an agent at home and in every longer corridor."""
    return [row["mean"], *(row["further"][f"corridor-{n}"]["success"] for n in LONGER)]


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean success of the seeds that solve the short corridor, a line a memory, best first."""
    solved: dict[str, list[list[float]]] = {}
    for row in rows:
        if row["mean"] >= SOLVED:
            solved.setdefault(row["model"], []).append(success(row))
    means = {name: np.mean(found, axis=0) for name, found in solved.items()}
    order = sorted(means, key=lambda name: -means[name].sum())
    figure = new_figure(6.0, 0.27 * len(order) + 1.2)
    axes = figure.subplots()
    picture = axes.imshow([means[name] for name in order], vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(order)), order)
    axes.set_xticks(range(1 + len(LONGER)), [str(n) for n in (SHORT, *LONGER)])
    axes.set_xlabel(f"corridor; learned at {SHORT}")
    for y, name in enumerate(order):
        for x, value in enumerate(means[name]):
            colour = "black" if value > 0.6 else "white"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    figure.colorbar(picture, label="success")
    save(tidy(figure), path)


if __name__ == "__main__":
    result = run_plan(__doc__, {"further": further})
    draw(result.rows, result.path / "short-to-long.png")
