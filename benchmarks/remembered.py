"""What every memory was seen to remember: scores from existing rows, by what the task requires.

Each measure has agents of one width, learner and budget, with memories at their defaults; nothing
is trained here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.short_to_long import SOLVED

from clew.lab.studies.popgym.floors import floors
from clew.lab.studies.report.data import best_floor
from clew.run import json_lines

RESULTS = Path(__file__).parents[1] / "results"
OTHER_NAMES = {
    "small-gru-fast": "gru",
    "small-gtrxl-256-fast": "gtrxl",
    "small-chrono-relit-fast": "relit",
    "small-chrono-fast": "arelit",
}
"""Memories at their defaults in the study that preceded the T-Maze of 160."""

Scores = dict[str, list[float]]
"""Scores of every seed, by memory."""


class Measure(NamedTuple):
    """One measure of what was remembered."""

    need: str
    """What it measures, in a word of `clew advise`."""
    measured: str
    rows: str
    """A folder of results/."""
    scores: Scores
    floor: float
    """The score of a guess or of random actions."""
    title: str = ""
    """The title of its column in the picture; empty if it has none."""

    def share(self, memory: str) -> float:
        """The mean over seeds, 0 at the floor and 1 for a perfect score; NaN without rows."""
        if memory not in self.scores:
            return np.nan
        return max(0.0, (float(np.mean(self.scores[memory])) - self.floor) / (1 - self.floor))


def measures() -> list[Measure]:
    """All measures, from the rows of `results/`; those of one need in order of weight."""
    mazes = by_seed(rows("endless-tmaze"))
    replaced = float(np.mean(mazes["none"]))
    return [
        Measure(
            "cue",
            "success in a T-Maze of 160, by A2C",
            "modern-memories-160",
            long_ago(),
            0.5,
            "one bit\nfor 160\nsteps",
        ),
        Measure(
            "cue",
            "success in a T-Maze of 160, learned in one of 20",
            "short-to-long",
            further(),
            0.5,
            "for 160,\ntrained\non 20",
        ),
        Measure(
            "replaced",
            "success in sixteen endless T-Mazes, by A2C",
            "endless-tmaze",
            mazes,
            replaced,
            "bits\nthat are\nreplaced",
        ),
        Measure(
            "pairs",
            "fraction of 16 values named correctly, from labels",
            "associative-recall",
            pairs(),
            0.12,
            "sixteen\npairs",
        ),
        given_back(10, "a list\nof ten"),
        given_back(5, "a list\nof five"),
        popgym("recent", "RepeatPrevious", title="three\nsteps\nback"),
        popgym("recent", "RepeatPrevious", "A2C"),
        popgym("hidden", "PositionOnlyPendulum", title="velocity"),
        popgym("hidden", "PositionOnlyCartPole"),
        popgym("noise", "NoisyPositionOnlyPendulum", title="velocity\nunder\nnoise"),
        popgym("noise", "NoisyPositionOnlyCartPole"),
        popgym("noise", "NoisyPositionOnlyPendulum", "A2C"),
        popgym("noise", "NoisyPositionOnlyCartPole", "A2C"),
        popgym("counts", "CountRecall", title="counts"),
        popgym("tries", "MultiarmedBandit", title="a\nbandit's\narms"),
        popgym("places", "LabyrinthExplore"),
        popgym("done", "MineSweeper", title="what is\nalready\ndone"),
    ]


@cache
def rows(folder: str, name: str = "results.jsonl") -> list[Mapping[str, Any]]:
    """Reads the rows of one of the results."""
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


def by_seed(rows: Sequence[Mapping[str, Any]]) -> Scores:
    """The means of a study's settings, seed by seed."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        found.setdefault(row["model"], {}).setdefault(row["seed"], []).append(row["mean"])
    return {m: [float(np.mean(one)) for one in seeds.values()] for m, seeds in found.items()}


def long_ago() -> Scores:
    """Success in a T-Maze of 160."""
    first = by_memory(rows("arelit-tmaze"), "corridor-160")
    return first | by_memory(rows("modern-memories-160"))


def further() -> Scores:
    """Success in a T-Maze of 160, of seeds that have learned one of 20."""
    solved = [row for row in rows("short-to-long") if row["mean"] >= SOLVED]
    return by_memory(solved, score=lambda row: row["further"]["corridor-160"]["success"])


def pairs() -> Scores:
    """The fraction of values named correctly, of 16 keys that were shown before their values."""
    found: Scores = {}
    for row in rows("associative-recall", "rows.jsonl"):
        if row["shown"] == "apart" and row["width"] == 64:
            found.setdefault(called(row["memory"]), []).append(row["right_16"])
    return found


def called(memory: str) -> str:
    """Its name in studies: for a `module:Class`, the name of the class."""
    return memory.rpartition(":")[2].lower() if ":" in memory else memory


def given_back(cards: int, title: str) -> Measure:
    """The fraction of a list of cards that was recalled in order."""
    return Measure(
        need="sequence",
        measured=f"fraction of a list of {cards} recalled, by A2C",
        rows="lists",
        scores=by_memory(rows("lists"), f"cards-{cards}"),
        floor=1 / cards,
        title=title,
    )


def popgym(need: str, task: str, learner: str = "PPO", title: str = "") -> Measure:
    """The return in a task of POPGym, easy."""
    folder = f"popgym-easy-{learner.lower()}"
    (setting,) = {
        row["setting"] for row in rows(folder) if row["setting"].replace("-", "") == task.lower()
    }
    floor = best_floor(floors("easy")[setting.replace("-", "_")])
    assert floor is not None
    return Measure(
        need,
        f"return in POPGym's easy {task}, by {learner}",
        folder,
        by_memory(rows(folder), setting),
        floor,
        title,
    )
