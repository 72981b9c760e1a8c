"""Returns of a Memory Maze study's folder, and the claims of section 5.2 about them."""

from collections.abc import Callable
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from clew.errors import UserError
from clew.files import read_json
from clew.lab.claims import (
    HELD,
    NOT_HELD,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Finding,
    seeds_that_decide,
    within,
)
from clew.lab.grid.results import Row
from clew.lab.studies.memory_maze.grid import NAME, PRESETS
from clew.lab.studies.report.budget import OneBudget, Values, one_budget
from clew.lab.studies.report.charts import curve_of
from clew.lab.studies.report.comparisons import difference_text
from clew.lab.studies.report.data import StudyData
from clew.stats import Comparison, Interval, bootstrap_interval, welch_test

SPEED = "memory-maze-learner.json"
"""Written by `python -m benchmarks.learner --output FOLDER` in a checkout."""
ORDERS = {
    "9x9": ("lstm", "gtrxl-256", "arelit"),
    "11x11": ("lstm", "gtrxl-256", "arelit"),
    "13x13": ("lstm", "gtrxl-256", "arelit"),
    "15x15": ("gtrxl-256", "lstm", "arelit"),
}
"""Agents by final return, the best first (section 5.2.3, three seeds, 100M steps)."""
WINDOWS = ("gtrxl-64", "gtrxl-128", "gtrxl-256")
WINDOWS_MAZE = "13x13"
"""The maze of section 5.2.4."""
ALIKE = 0.1
"""A difference below this share of the agents' mean return counts as none."""
NEAR = 0.9
"""An agent counts as converged at this share of the lowest final return."""
FASTER, LESS_MEMORY = 1.54, 0.43
"""AReLiT's speed ratio and memory saving against GTrXL-256 in Figure 5.6."""


def scores_of(data: StudyData) -> OneBudget:
    """The rows of a folder, whose scores are returns over the last steps of training.

    Raises:
        UserError: if the folder does not belong to the study.
    """
    if data.name != NAME or "last" not in data.rows[0]:
        raise UserError(f"{data.folder} belongs to {data.name}, not to a grid of {NAME}")
    own = [name.removeprefix("memory-maze/") for name in PRESETS]
    return one_budget(data, own, lambda maze: (len(maze), maze))


def speed_of(scores: OneBudget) -> dict[str, Any] | None:
    """The learner's measurements, None if they are not in the folder.

    Raises:
        UserError: if the file is damaged.
    """
    path = scores.data.folder / SPEED
    if not path.exists():
        return None
    try:
        data = read_json(path)
        rows = {row["model"]: row for row in data["rows"]}
        return {"machine": data["machine"], "rows": rows}
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _order(scores: OneBudget, maze: str) -> list[Finding]:
    return [
        _compare(f"{a} > {b}", scores.scores(a, maze), scores.scores(b, maze), _above)
        for a, b in pairwise(ORDERS[maze])
    ]


def _above(test: Comparison) -> str:
    return within(test, 0.0)


def _alike(scores: OneBudget) -> list[Finding]:
    found = {model: scores.scores(model, WINDOWS_MAZE) for model in WINDOWS}
    means = [float(values.mean()) for values in found.values() if values.size]
    margin = ALIKE * abs(float(np.mean(means))) if means else 0.0

    def decide(test: Comparison) -> str:
        if -margin < test.low and test.high < margin:
            return HELD
        return NOT_HELD if test.low > 0 or test.high < 0 else UNDECIDED

    return [
        _compare(f"{a} = {b} within {margin:.2f}", found[a], found[b], decide)
        for a, b in combinations(WINDOWS, 2)
    ]


def _slower(scores: OneBudget) -> list[Finding]:
    there = [model for model in WINDOWS if scores.scores(model, WINDOWS_MAZE).size]
    finals = [float(scores.scores(model, WINDOWS_MAZE).mean()) for model in there]
    level = NEAR * min(finals, default=0.0)
    found = {model: _arrival(scores, model, level) / 1e6 for model in there}
    nothing = np.zeros(0)

    return [
        _compare(
            f"{WINDOWS[0]} after {other}, M steps to a return of {level:.2f}",
            found.get(WINDOWS[0], nothing),
            found.get(other, nothing),
            _above,
        )
        for other in WINDOWS[1:]
    ]


def _arrival(scores: OneBudget, model: str, level: float) -> Values:
    """Steps at which each seed's curve first reaches a return; all steps if it never does."""
    rows: list[Row] = scores.rows(model, WINDOWS_MAZE)
    curves = curve_of(rows, min(len(row["curve"]["steps"]) for row in rows))
    reached = curves.values >= level  # False for missing values
    steps = np.append(curves.steps, scores.steps)
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(curves.steps))
    return steps[first].astype(np.float64)


def _compare(what: str, x: Values, y: Values, decide: Callable[[Comparison], str]) -> Finding:
    """Welch's test of two groups of seeds; undecided with fewer than two seeds or without any
    spread."""
    seeds = f"{x.size} and {y.size}"
    if not x.size or not y.size:
        return Finding(what, NOT_RUN, seeds)
    means = f"{x.mean():.2f} and {y.mean():.2f}"
    if min(x.size, y.size) < 2:
        return Finding(what, UNDECIDED, seeds, f"{means}, one seed: no interval")
    test = welch_test(x, y)
    seen = f"{means}, difference {difference_text(test)}"
    verdict = decide(test)
    # How many seeds would show that two are alike is another question.
    needed = None
    if verdict == UNDECIDED and decide is _above:
        needed = seeds_that_decide(abs(test.difference), float(x.std(ddof=1)), float(y.std(ddof=1)))
    return Finding(what, verdict, seeds, seen, needed)


def _faster(scores: OneBudget) -> list[Finding]:
    if measured := _pair(scores):
        arelit, gtrxl = (row["times_faster"] for row in measured)
        interval = Interval(*(arelit[n] / gtrxl["middle"] for n in ("middle", "low", "high")))
        what, count = "learner alone, turn by turn", "–"
    else:
        what, ratios = "whole trainings, maze by maze and seed by seed", _rate_ratios(scores)
        if not ratios:
            return [Finding(what, NOT_RUN, "0")]
        count = str(len(ratios))
        if len(ratios) < 2:
            seen = f"{ratios[0]:.2f} times, one pair: no interval"
            return [Finding(what, UNDECIDED, count, seen)]
        interval = bootstrap_interval(ratios)
    return [Finding(what, within(interval, FASTER), count, f"{interval:.2f} times")]


def _pair(scores: OneBudget) -> list[dict[str, Any]]:
    """The measurements of the learners of AReLiT and GTrXL-256; empty without both."""
    rows = (speed_of(scores) or {"rows": {}})["rows"]
    pair = ("arelit", "gtrxl-256")
    return [rows[model] for model in pair] if rows.keys() >= {*pair} else []


def _rate_ratios(scores: OneBudget) -> list[float]:
    """Steps per second of AReLiT's trainings relative to GTrXL-256's, where there are both."""
    found = []
    for maze in scores.settings:
        gtrxl = {row["seed"]: row["rate"] for row in scores.rows("gtrxl-256", maze)}
        arelit = {row["seed"]: row["rate"] for row in scores.rows("arelit", maze)}
        found += [arelit[seed] / gtrxl[seed] for seed in sorted(arelit.keys() & gtrxl.keys())]
    return found


def _smaller(scores: OneBudget) -> list[Finding]:
    what = "peak of the learner's gradient step, as planned"
    measured = _pair(scores)
    if not measured:
        return [Finding(what, NOT_RUN)]
    arelit, gtrxl = (row["bytes"] for row in measured)
    less = 1.0 - arelit / gtrxl
    seen = f"{arelit / 2**20:,.0f} and {gtrxl / 2**20:,.0f} MiB, {less:.0%} less"
    return [Finding(what, HELD if less >= LESS_MEMORY else NOT_HELD, seen=seen)]


CLAIMS: tuple[Claim[OneBudget], ...] = (
    *(
        Claim("Section 5.2.3", f"{maze}: {' > '.join(order)}", partial(_order, maze=maze))
        for maze, order in ORDERS.items()
    ),
    Claim(
        "Section 5.2.4",
        f"{WINDOWS_MAZE}: windows of 64, 128 and 256 end with the same return",
        _alike,
    ),
    Claim(
        "Section 5.2.4",
        f"{WINDOWS_MAZE}: the window of 64 converges more slowly than 128 and 256",
        _slower,
    ),
    Claim("Figure 5.6", "arelit trains at 54% more frames/s than gtrxl-256", _faster),
    Claim("Figure 5.6", "arelit uses 43% less memory than gtrxl-256", _smaller),
)
"""Every claim of section 5.2."""
