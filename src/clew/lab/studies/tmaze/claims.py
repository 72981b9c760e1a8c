"""What Figures 5.2 and 5.3 claim, and whether so many seeds can say that it holds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.lab.studies.report.verdicts import HELD, NOT_HELD, NOT_RUN, OPEN, of_parts
from clew.lab.studies.tmaze.grid import CORRIDORS
from clew.lab.studies.tmaze.scores import Grid
from clew.stats import Interval, seeds_needed
from clew.stats.comparisons import critical_value

ALPHA = 0.05
GUESSED_DEVIATION = 0.25
"""Of one seed alone, for planning: half of the seeds remember (1), half guess (0.5)."""
MOST = 10_000
"""Seeds beyond which a number is not told."""


class Claim(NamedTuple):
    """A range of success rates that the thesis reports for an agent on some corridors."""

    figure: str
    model: str
    corridors: tuple[int, ...]
    low: float
    high: float
    text: str


CLAIMS = (
    Claim("Figure 5.2", "gtrxl-256", CORRIDORS, 0.9, 1.0, "between 0.9 and 1.0"),
    Claim("Figure 5.2", "gtrxl-128", (120,), 0.9, 1.0, "near 1.0 at 120"),
    Claim("Figure 5.2", "gtrxl-128", CORRIDORS[1:], 0.4, 0.6, "quickly 0.5 above 120"),
    Claim("Figure 5.3", "lstm", CORRIDORS, 0.4, 0.6, "close to 0.5"),
    Claim("Figure 5.3", "gru", CORRIDORS[:4], 0.8, 1.0, "0.8 to 1.0 up to 180"),
    Claim("Figure 5.3", "gru", CORRIDORS[4:], 0.4, 0.8, "dropping to 0.5 above 180"),
    Claim("Figure 5.3", "relit", CORRIDORS, 0.8, 1.0, "between 0.8 and 1.0"),
    Claim("Figure 5.3", "arelit", CORRIDORS, 0.8, 1.0, "between 0.8 and 1.0"),
)
"""Source: Pramanik (2023), sections 5.1.3 and 5.1.4, 50 seeds, 10M steps. "Close to 0.5" and
"quickly 0.5" are taken as 0.4 to 0.6, "near 1.0" as 0.9 to 1, "dropping to 0.5" as 0.4 to 0.8."""


class Judged(NamedTuple):
    """One claim at one corridor."""

    claim: Claim
    corridor: int
    seeds: int
    interval: Interval | None
    """Of the mean over seeds; None where there is no seed."""
    verdict: str
    needed: int | None
    """Seeds that would decide if the others are as those seen; None where that cannot be told, or
    it is decided."""


def judge(grid: Grid, claim: Claim) -> list[Judged]:
    """The claim at every corridor that it is about."""
    return [_judge(claim, n, grid.success(claim.model, n)) for n in claim.corridors]


def _judge(claim: Claim, corridor: int, values: Float[np.ndarray, " seeds"]) -> Judged:
    if not values.size:
        return Judged(claim, corridor, 0, None, NOT_RUN, None)
    interval = mean_interval(values)
    verdict = decide(interval, claim.low, claim.high)
    needed = seeds_to_decide(values, claim.low, claim.high) if verdict == OPEN else None
    return Judged(claim, corridor, values.size, interval, verdict, needed)


def overall(judged: Sequence[Judged]) -> tuple[str, int | None]:
    """The verdict over a claim's corridors, and the seeds that the one hardest to decide needs.

    It holds if it holds at every corridor, and does not if it does not at one of them.
    """
    verdict = of_parts(each.verdict for each in judged)
    needs = [each.needed for each in judged if each.needed is not None]
    return verdict, max(needs, default=None) if verdict == OPEN else None


def decide(interval: Interval, low: float, high: float) -> str:
    """Held if the whole interval is in the range, not held if all of it is outside."""
    if low <= interval.low and interval.high <= high:
        return HELD
    return NOT_HELD if interval.high < low or interval.low > high else OPEN


def mean_interval(values: Float[np.ndarray, " seeds"]) -> Interval:
    """A 95% interval of the mean success over seeds that few and equal seeds do not make narrow.

    The wider, at each end, of Student's interval and of

        (1 - q) mean .. (1 - q) mean + q,   q = 1 - 0.025^(1 / n)

    where q is the largest share of seeds of another kind that n seeds may all have missed: agents
    here either remember, guess or never arrive, so two seeds at 1.0 have no spread and yet say
    little.
    """
    count, mean = values.size, float(values.mean())
    low, high = _unseen(count, mean)
    if count > 1:
        reach = float(values.std(ddof=1)) / math.sqrt(count) * critical_value(ALPHA, count - 1)
        low, high = min(low, mean - reach), max(high, mean + reach)
    return Interval(mean, max(low, 0.0), min(high, 1.0))


def seeds_to_decide(values: Float[np.ndarray, " seeds"], low: float, high: float) -> int | None:
    """Seeds with which this mean and deviation, if they are the true ones, would be decided.

    The larger of what a one-sample t-test against the nearest edge of the range needs for a power
    of 0.8 (`seeds_needed`, the other group without spread), and of what `mean_interval`'s second
    part needs. An edge at 0 or 1 is none.

    Returns:
        The number, None if the mean is at the edge or the number is above `MOST`.
    """
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if values.size > 1 else GUESSED_DEVIATION
    margin = min(abs(mean - edge) for edge in (low, high) if 0.0 < edge < 1.0)
    enough = 2
    if deviation > 0:
        try:
            enough = seeds_needed(margin, deviation, 0.0, alpha=ALPHA, most=MOST).seeds
        except UserError:
            return None
    for count in range(enough, MOST):
        if decide(Interval(mean, *_unseen(count, mean)), low, high) != OPEN:
            return count
    return None


def _unseen(count: int, mean: float) -> tuple[float, float]:
    share = 1.0 - (ALPHA / 2) ** (1 / count)
    return (1 - share) * mean, (1 - share) * mean + share
