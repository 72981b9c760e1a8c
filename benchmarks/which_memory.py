"""Draws what every memory was seen to remember, from rows that are there.

    python -m benchmarks.which_memory docs/images/which-memory.png
    python -m benchmarks.which_memory mine.png --add mine

A line for each memory at its defaults, a column for each thing that had to be remembered. 0 is what
needs no memory and 1 all right, so that columns of different scores can stand side by side. Each
column has agents of one size, learner and budget; nothing is trained here. A memory of your own is
a line where its rows are among those of `results/`; docs/add-a-memory.md has the commands.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.heatmap import draw_heatmap
from benchmarks.options import described
from benchmarks.short_to_long import SOLVED

from clew.errors import unknown_name
from clew.lab.studies.popgym.floors import floors
from clew.memory import MEMORIES
from clew.run import json_lines

RESULTS = Path(__file__).parents[1] / "results"
OTHER_NAMES = {
    "small-gru-fast": "gru",
    "small-gtrxl-256-fast": "gtrxl",
    "small-chrono-relit-fast": "relit",
    "small-chrono-fast": "arelit",
}
"""Of memories at their defaults, in the study that the T-Maze of 160 began with."""

Scores = dict[str, list[float]]
"""Of every seed, by memory."""


class Column(NamedTuple):
    """One thing to be remembered."""

    title: str
    scores: Scores
    floor: float
    """What needs no memory."""

    def share(self, memory: str) -> float:
        """The mean over seeds, 0 at the floor and 1 for all right; NaN if nobody tried it."""
        if memory not in self.scores:
            return np.nan
        return max(0.0, (float(np.mean(self.scores[memory])) - self.floor) / (1 - self.floor))


def columns() -> list[Column]:
    """All of them, from the rows of `results/`."""
    mazes = by_memory(rows("endless-tmaze"))
    return [
        Column("one bit\nfor 160\nsteps", long_ago(), 0.5),
        Column("for 160,\nlearned\nin 20", further(), 0.5),
        Column("bits\nthat are\nreplaced", mazes, float(np.mean(mazes["none"]))),
        Column("sixteen\npairs", pairs(), 0.12),
        Column("a list\nof five", by_memory(rows("lists"), "cards-5"), 0.2),
        Column("a list\nof ten", by_memory(rows("lists"), "cards-10"), 0.1),
        popgym("three\nsteps\nback", "repeat-previous"),
        popgym("speeds", "position-only-pendulum"),
        popgym("speeds\nunder\nnoise", "noisy-position-only-cartpole"),
        popgym("counts", "count-recall"),
        popgym("a\nbandit's\narms", "multiarmed-bandit"),
        popgym("what is\ndone\nalready", "mine-sweeper"),
    ]


@cache
def rows(folder: str, name: str = "results.jsonl") -> list[Mapping[str, Any]]:
    """Of one of the results."""
    return [line.row for line in json_lines.read(RESULTS / folder / name)]


def by_memory(
    rows: Sequence[Mapping[str, Any]],
    setting: str = "",
    score: Callable[[Mapping[str, Any]], float] = lambda row: row["mean"],
) -> Scores:
    """The scores of a study's rows, of one of its settings or of all."""
    found: Scores = {}
    for row in rows:
        memory: str = row["model"]
        if not setting or row["setting"] == setting:
            found.setdefault(OTHER_NAMES.get(memory, memory), []).append(score(row))
    return found


def long_ago() -> Scores:
    """Success in a T-Maze of 160."""
    first = by_memory(rows("arelit-tmaze"), "corridor-160")
    return first | by_memory(rows("modern-memories-160"))


def further() -> Scores:
    """Success in a T-Maze of 160, of seeds that have learned one of 20."""
    solved = [row for row in rows("short-to-long") if row["mean"] >= SOLVED]
    return by_memory(solved, score=lambda row: row["further"]["corridor-160"]["success"])


def pairs() -> Scores:
    """The share of values named right, of 16 keys that were shown before their values."""
    found: Scores = {}
    for row in rows("associative-recall", "rows.jsonl"):
        if row["shown"] == "apart" and row["width"] == 64:
            found.setdefault(called(row["memory"]), []).append(row["right_16"])
    return found


def called(memory: str) -> str:
    """Its name in studies: of a `module:Class` that of the class."""
    return memory.rpartition(":")[2].lower() if ":" in memory else memory


def popgym(title: str, task: str) -> Column:
    """A task of POPGym, easy, by PPO."""
    floor = max(floors("easy")[task.replace("-", "_")].values())
    return Column(title, by_memory(rows("popgym-easy-ppo"), task), floor)


def tried(found: Sequence[Column], added: Sequence[str]) -> dict[str, list[float]]:
    """A line for each memory that somebody tried, and for models beside the library's.

    Raises:
        UserError: for an added one without rows.
    """
    there = {name for column in found for name in column.scores}
    for name in added:
        if name not in there:
            raise unknown_name("model with rows in results/", name, there)
    names = [name for name in MEMORIES if name in there] + [*added]
    return {name: [column.share(name) for column in found] for name in names}


def main() -> None:
    """Draws the picture."""
    parser = described(__doc__)
    parser.add_argument("path", type=Path, help="of the picture")
    parser.add_argument("--add", nargs="+", default=[], help="models, by their names in the rows")
    given = parser.parse_args()
    found = columns()
    draw_heatmap(
        tried(found, given.add),
        [column.title for column in found],
        "what has to be remembered",
        given.path,
        best_first=False,
        label="0: what needs no memory, 1: all right",
    )


if __name__ == "__main__":
    main()
