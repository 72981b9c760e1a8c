"""Returns of a Memory Maze study's folder, and what section 5.2 claims of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED, Claim, Finding
from clew.lab.grid.results import Row
from clew.lab.studies.memory_maze.grid import NAME, PRESETS
from clew.lab.studies.report.budget import OneBudget, in_order, most_rows
from clew.lab.studies.report.charts import curve_of
from clew.lab.studies.report.edition import Edition
from clew.report.curves import Curves
from clew.stats import Comparison, bootstrap_interval, seeds_needed, welch_test

SPEED = "memory-maze-learner.json"
"""What `clew bench --memory-maze --output FOLDER` writes."""
ORDERS = {
    "9x9": ("lstm", "gtrxl-256", "arelit"),
    "11x11": ("lstm", "gtrxl-256", "arelit"),
    "13x13": ("lstm", "gtrxl-256", "arelit"),
    "15x15": ("gtrxl-256", "lstm", "arelit"),
}
"""Agents by final return, the best first (section 5.2.3, three seeds, 100M steps)."""
WINDOWS = ("gtrxl-64", "gtrxl-128", "gtrxl-256")
WINDOWS_MAZE = "13x13"
"""Of section 5.2.4."""
ALIKE = 0.1
"""Share of the agents' mean return below which a difference counts as none."""
NEAR = 0.9
"""Share of the lowest final return at which an agent counts as converged."""
FASTER, LESS_MEMORY = 1.54, 0.43
"""Of AReLiT against GTrXL-256 in Figure 5.6."""
MOST = 10_000
"""Seeds beyond which no number is given."""


@dataclass(frozen=True)
class Scores(OneBudget):
    """The rows of one budget by agent and maze."""

    mazes: Sequence[str]
    """Settings with a row, in order of size."""
    speed: Mapping[str, Any] | None
    """The learner's measurements, if they are in the folder."""

    def returns(self, model: str, maze: str) -> Float[np.ndarray, " seeds"]:
        """Every seed's mean return over the last steps of training."""
        scores = [row["last"]["return"] for row in self.rows_of(model, maze)]
        return np.array([score for score in scores if score is not None], np.float64)

    def curves(self, model: str, maze: str) -> Curves:
        """The learning curves of a cell's seeds."""
        rows: list[Row] = [{**row, "score": "return"} for row in self.rows_of(model, maze)]
        return curve_of(rows, min(len(row["curve"]["steps"]) for row in rows))


def scores_of(edition: Edition) -> Scores:
    """The rows of the budget that most rows are of, the larger one if two have as many.

    Raises:
        UserError: if the folder is not of the study, or its speed file is damaged.
    """
    if edition.name != NAME or "last" not in edition.rows[0]:
        raise UserError(f"{edition.folder} is of {edition.name}, not a grid of {NAME}")
    whole, steps, left_out = most_rows(edition)
    models = in_order(whole, [name.removeprefix("memory-maze/") for name in PRESETS])
    mazes = sorted({maze for _, maze in whole.cells}, key=lambda name: (len(name), name))
    return Scores(whole, steps, left_out, models, mazes, _read_speed(edition))


def _read_speed(edition: Edition) -> dict[str, Any] | None:
    path = edition.folder / SPEED
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["model"]: row for row in data["rows"]}
        return {"machine": data["machine"], "rows": rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _order(scores: Scores, maze: str) -> list[Finding]:
    return [
        _compare(f"{a} > {b}", scores.returns(a, maze), scores.returns(b, maze), _above)
        for a, b in pairwise(ORDERS[maze])
    ]


def _above(test: Comparison) -> str:
    return HELD if test.low > 0 else NOT_HELD if test.high < 0 else UNDECIDED


def _alike(scores: Scores) -> list[Finding]:
    found = {model: scores.returns(model, WINDOWS_MAZE) for model in WINDOWS}
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


def _slower(scores: Scores) -> list[Finding]:
    there = [model for model in WINDOWS if scores.returns(model, WINDOWS_MAZE).size]
    finals = [float(scores.returns(model, WINDOWS_MAZE).mean()) for model in there]
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


def _arrival(scores: Scores, model: str, level: float) -> Float[np.ndarray, " seeds"]:
    """Steps at which each seed's curve first reaches a return; all of them if it never does."""
    curves = scores.curves(model, WINDOWS_MAZE)
    reached = curves.values >= level  # which a value that is not there yet is not
    steps = np.append(curves.steps, scores.steps)
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(curves.steps))
    return steps[first].astype(np.float64)


def _compare(
    what: str,
    x: Float[np.ndarray, " seeds"],
    y: Float[np.ndarray, " seeds"],
    decide: Callable[[Comparison], str],
) -> Finding:
    """Two groups of seeds by Welch's test; fewer than two seeds, or none with a spread, say
    nothing."""
    seeds = f"{x.size} and {y.size}"
    if not x.size or not y.size:
        return Finding(what, NOT_RUN, seeds)
    means = f"{x.mean():.2f} and {y.mean():.2f}"
    if min(x.size, y.size) < 2:
        return Finding(what, UNDECIDED, seeds, f"{means}, one seed: no interval")
    test = welch_test(x, y)
    seen = f"{means}, difference {test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}]"
    verdict = decide(test)
    # How many seeds would show that two are alike is another question.
    needed = _needed(test.difference, x, y) if verdict == UNDECIDED and decide is _above else None
    return Finding(what, verdict, seeds, seen, needed)


def _needed(difference: float, x: np.ndarray, y: np.ndarray) -> int | None:
    try:
        return seeds_needed(
            abs(difference), float(x.std(ddof=1)), float(y.std(ddof=1)), most=MOST
        ).seeds
    except UserError:
        return None


def _faster(scores: Scores) -> list[Finding]:
    if scores.speed and {"arelit", "gtrxl-256"} <= scores.speed["rows"].keys():
        arelit, gtrxl = (scores.speed["rows"][m]["times_faster"] for m in ("arelit", "gtrxl-256"))
        middle, low, high = (arelit[n] / gtrxl["middle"] for n in ("middle", "low", "high"))
        what, count = "learner alone, turn by turn", "–"
    else:
        what, ratios = "whole trainings, maze by maze and seed by seed", _rate_ratios(scores)
        if not ratios:
            return [Finding(what, NOT_RUN, "0")]
        count, middle = str(len(ratios)), float(np.mean(ratios))
        if len(ratios) < 2:
            return [Finding(what, UNDECIDED, count, f"{middle:.2f} times, one pair: no interval")]
        middle, low, high = bootstrap_interval(ratios)
    verdict = HELD if low >= FASTER else NOT_HELD if high < FASTER else UNDECIDED
    return [Finding(what, verdict, count, f"{middle:.2f} [{low:.2f}, {high:.2f}] times")]


def _rate_ratios(scores: Scores) -> list[float]:
    """Steps per second of AReLiT's trainings by those of GTrXL-256's, where both are there."""
    found = []
    for maze in scores.mazes:
        gtrxl = {row["seed"]: row["rate"] for row in scores.rows_of("gtrxl-256", maze)}
        arelit = {row["seed"]: row["rate"] for row in scores.rows_of("arelit", maze)}
        found += [arelit[seed] / gtrxl[seed] for seed in sorted(arelit.keys() & gtrxl.keys())]
    return found


def _smaller(scores: Scores) -> list[Finding]:
    what = "peak of the learner's gradient step, as planned"
    if not scores.speed or not {"arelit", "gtrxl-256"} <= scores.speed["rows"].keys():
        return [Finding(what, NOT_RUN)]
    arelit, gtrxl = (scores.speed["rows"][m]["bytes"] for m in ("arelit", "gtrxl-256"))
    less = 1.0 - arelit / gtrxl
    seen = f"{arelit / 2**20:,.0f} and {gtrxl / 2**20:,.0f} MiB, {less:.0%} less"
    return [Finding(what, HELD if less >= LESS_MEMORY else NOT_HELD, seen=seen)]


CLAIMS: tuple[Claim[Scores], ...] = (
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
    Claim("Figure 5.6", "arelit trains 54% more frames/s than gtrxl-256", _faster),
    Claim("Figure 5.6", "arelit takes 43% less memory than gtrxl-256", _smaller),
)
"""Every claim of section 5.2."""
