"""What section 5.2 claims, and whether the runs that are there can say that it holds."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.lab.studies.memory_maze.scores import Grid
from clew.lab.studies.report.verdicts import HELD, NOT_HELD, NOT_RUN, OPEN, of_parts
from clew.stats import Comparison, bootstrap_interval, seeds_needed, welch_test

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
"""Seeds beyond which a number is not told."""


class Part(NamedTuple):
    """One comparison that a claim rests on."""

    what: str
    seeds: str
    evidence: str
    verdict: str
    needed: int | None = None
    """Seeds of each that would decide if means and deviations are as seen."""


class Claim(NamedTuple):
    """A claim of the thesis and what came of it."""

    source: str
    text: str
    parts: Sequence[Part]

    @property
    def verdict(self) -> str:
        """It holds if all parts do, and does not if one does not."""
        return of_parts(part.verdict for part in self.parts)

    @property
    def needed(self) -> int | None:
        """Seeds that the part hardest to decide needs."""
        known = [part.needed for part in self.parts if part.needed is not None]
        return max(known, default=None) if self.verdict == OPEN else None


def judge(grid: Grid) -> list[Claim]:
    """Every claim of section 5.2."""
    orders = [
        Claim("Section 5.2.3", f"{maze}: {' > '.join(order)}", _order(grid, maze, order))
        for maze, order in ORDERS.items()
    ]
    alike = f"{WINDOWS_MAZE}: windows of 64, 128 and 256 end with the same return"
    slower = f"{WINDOWS_MAZE}: the window of 64 converges more slowly than 128 and 256"
    return [
        *orders,
        Claim("Section 5.2.4", alike, _alike(grid)),
        Claim("Section 5.2.4", slower, _slower(grid)),
        Claim("Figure 5.6", "arelit trains 54% more frames/s than gtrxl-256", [_faster(grid)]),
        Claim("Figure 5.6", "arelit takes 43% less memory than gtrxl-256", [_smaller(grid)]),
    ]


def _order(grid: Grid, maze: str, order: Sequence[str]) -> list[Part]:
    return [
        _compare(f"{a} > {b}", grid.returns(a, maze), grid.returns(b, maze), _above)
        for a, b in pairwise(order)
    ]


def _above(test: Comparison) -> str:
    return HELD if test.low > 0 else NOT_HELD if test.high < 0 else OPEN


def _alike(grid: Grid) -> list[Part]:
    found = {model: grid.returns(model, WINDOWS_MAZE) for model in WINDOWS}
    means = [float(values.mean()) for values in found.values() if values.size]
    margin = ALIKE * abs(float(np.mean(means))) if means else 0.0

    def decide(test: Comparison) -> str:
        if -margin < test.low and test.high < margin:
            return HELD
        return NOT_HELD if test.low > 0 or test.high < 0 else OPEN

    return [
        _compare(f"{a} = {b} within {margin:.2f}", found[a], found[b], decide)
        for a, b in combinations(WINDOWS, 2)
    ]


def _slower(grid: Grid) -> list[Part]:
    there = [model for model in WINDOWS if grid.returns(model, WINDOWS_MAZE).size]
    finals = [float(grid.returns(model, WINDOWS_MAZE).mean()) for model in there]
    level = NEAR * min(finals, default=0.0)
    found = {model: _arrival(grid, model, level) / 1e6 for model in there}
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


def _arrival(grid: Grid, model: str, level: float) -> Float[np.ndarray, " seeds"]:
    """Steps at which each seed's curve first reaches a return; all of them if it never does."""
    curves = grid.curves(model, WINDOWS_MAZE)
    reached = curves.values >= level  # which a value that is not there yet is not
    steps = np.append(curves.steps, grid.steps)
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(curves.steps))
    return steps[first].astype(np.float64)


def _compare(
    what: str,
    x: Float[np.ndarray, " seeds"],
    y: Float[np.ndarray, " seeds"],
    decide: Callable[[Comparison], str],
) -> Part:
    """Two groups of seeds by Welch's test; fewer than two seeds, or none with a spread, say
    nothing."""
    seeds = f"{x.size} and {y.size}"
    if not x.size or not y.size:
        return Part(what, seeds, "–", NOT_RUN)
    means = f"{x.mean():.2f} and {y.mean():.2f}"
    if min(x.size, y.size) < 2:
        return Part(what, seeds, f"{means}, one seed: no interval", OPEN)
    test = welch_test(x, y)
    told = f"{means}, difference {test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}]"
    verdict = decide(test)
    # How many seeds would show that two are alike is another question.
    needed = _needed(test.difference, x, y) if verdict == OPEN and decide is _above else None
    return Part(what, seeds, told, verdict, needed)


def _needed(difference: float, x: np.ndarray, y: np.ndarray) -> int | None:
    try:
        return seeds_needed(
            abs(difference), float(x.std(ddof=1)), float(y.std(ddof=1)), most=MOST
        ).seeds
    except UserError:
        return None


def _faster(grid: Grid) -> Part:
    if grid.speed and {"arelit", "gtrxl-256"} <= grid.speed["rows"].keys():
        ours, theirs = (grid.speed["rows"][m]["times_faster"] for m in ("arelit", "gtrxl-256"))
        middle, low, high = (ours[n] / theirs["middle"] for n in ("middle", "low", "high"))
        what, count = "learner alone, turn by turn", "–"
    else:
        what, ratios = "whole trainings, maze by maze and seed by seed", _rate_ratios(grid)
        if not ratios:
            return Part(what, "0", "–", NOT_RUN)
        count, middle = str(len(ratios)), float(np.mean(ratios))
        if len(ratios) < 2:
            return Part(what, count, f"{middle:.2f} times, one pair: no interval", OPEN)
        middle, low, high = bootstrap_interval(ratios)
    verdict = HELD if low >= FASTER else NOT_HELD if high < FASTER else OPEN
    return Part(what, count, f"{middle:.2f} [{low:.2f}, {high:.2f}] times", verdict)


def _rate_ratios(grid: Grid) -> list[float]:
    """Steps per second of AReLiT's trainings by those of GTrXL-256's, where both are there."""
    found = []
    for maze in grid.mazes:
        theirs = {row["seed"]: row["rate"] for row in grid.rows_of("gtrxl-256", maze)}
        mine = {row["seed"]: row["rate"] for row in grid.rows_of("arelit", maze)}
        found += [mine[seed] / theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
    return found


def _smaller(grid: Grid) -> Part:
    what = "peak of the learner's gradient step, as planned"
    if not grid.speed or not {"arelit", "gtrxl-256"} <= grid.speed["rows"].keys():
        return Part(what, "–", "–", NOT_RUN)
    ours, theirs = (grid.speed["rows"][m]["bytes"] for m in ("arelit", "gtrxl-256"))
    less = 1.0 - ours / theirs
    told = f"{ours / 2**20:,.0f} and {theirs / 2**20:,.0f} MiB, {less:.0%} less"
    return Part(what, "–", told, HELD if less >= LESS_MEMORY else NOT_HELD)
