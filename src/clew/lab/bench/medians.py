"""Medians of few measurements, with intervals that assume no distribution."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import binom

CONFIDENCE = 0.95


class Median(NamedTuple):
    """A median between two of the measurements, and how surely the true one lies there."""

    middle: float
    low: float
    high: float
    confidence: float

    def __format__(self, spec: str) -> str:
        """Writes `middle [low, high]`, each number by `spec`."""
        return f"{self.middle:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def median_of(values: Sequence[float]) -> Median:
    """The median, between the nearest pair of order statistics that cover it with 95%.

    The number of values below the true median is binomial with 1/2, whatever their distribution,
    so that the k-th smallest and the k-th largest of n enclose it with probability
    1 - 2 P(X < k). With fewer than six values no pair reaches 95%; then they are the smallest and
    the largest, and `confidence` says what they are worth.
    """
    ordered, count = sorted(values), len(values)
    nearest = 1
    while nearest + 1 <= (count + 1) // 2 and _covered(nearest + 1, count) >= CONFIDENCE:
        nearest += 1
    return Median(
        statistics.median(ordered),
        ordered[nearest - 1],
        ordered[count - nearest],
        _covered(nearest, count),
    )


def _covered(nearest: int, count: int) -> float:
    return max(0.0, float(1 - 2 * binom.cdf(nearest - 1, count, 0.5)))
