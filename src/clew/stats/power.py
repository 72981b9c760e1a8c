"""How many seeds it takes to detect a difference, by the power of Welch's t-test."""

import math
from bisect import bisect_left
from functools import cache
from typing import NamedTuple

import numpy as np

from clew.errors import UserError, require_at_least, require_rate
from clew.stats.checks import require_inside
from clew.stats.comparisons import critical_value

NODES = 200
"""Number of Gauss-Legendre nodes on each side of the integrand's step."""
LEFT_OUT = 1e-15
"""Probability left out at each end of the chi distribution."""


class SeedsNeeded(NamedTuple):
    """Seeds in each of the two groups, and the power that they reach."""

    seeds: int
    power: float


def welch_power(
    count: int,
    difference: float,
    deviation: float,
    other_deviation: float | None = None,
    *,
    alpha: float = 0.05,
) -> float:
    """The probability that Welch's t-test with `count` seeds per group detects a difference.

    With the two deviations s and r, n seeds in each group and c the critical value of |t|:

        degrees = (n - 1) (s^2 + r^2)^2 / (s^4 + r^4)
        shift = difference / sqrt((s^2 + r^2) / n)
        power = P(|T| > c),   T noncentral t with these degrees and this shift

    For equal deviations the degrees are 2 (n - 1) and this is the textbook's power of the t-test;
    for unequal ones it is an approximation, since Welch's degrees vary from sample to sample.
    Scores are assumed to be normal; a group whose seeds either solve the task or do not needs more
    seeds than this.

    Args:
        count: seeds in each group, at least 2.
        difference: between the true means, not 0, in the unit of the data.
        deviation: standard deviation of a seed's result in the first group, in the same unit.
        other_deviation: in the second group; by default the same.
        alpha: two-sided level of the test; for the first of m tests under Holm's correction,
            alpha / m.

    Raises:
        UserError: for fewer than 2 seeds, no difference, impossible deviations (including both 0,
            when the spread is unknown) or an impossible level.

    Source:
        Cohen (1988), "Statistical power analysis for the behavioral sciences", chapter 2.
    """
    require_at_least("count", count, 2)
    deviations = _checked_deviations(difference, deviation, other_deviation)
    require_inside("alpha", alpha)
    largest = max(deviations)
    first, second = ((each / largest) ** 2 for each in deviations)
    degrees = (count - 1) * (first + second) ** 2 / (first**2 + second**2)
    shift = abs(float(difference)) / largest / math.sqrt((first + second) / count)
    return rejection_rate(critical_value(alpha, degrees), degrees, shift)


def seeds_needed(
    difference: float,
    deviation: float,
    other_deviation: float | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    most: int = 1_000_000,
) -> SeedsNeeded:
    """The fewest seeds per group with which Welch's t-test detects a difference often enough.

    This is the smallest n for which `welch_power` is at least the requested power; see there for
    equations and limits. A deviation estimated from few seeds is itself uncertain: with three seeds
    the true one may be half or six times the estimate (95%), and n grows with its square.

    Args:
        difference: between the true means, not 0, in the unit of the data.
        deviation: standard deviation of a seed's result in the first group, in the same unit.
        other_deviation: in the second group; by default the same.
        power: requested probability of detecting the difference, between 0 and 1.
        alpha: two-sided level of the test.
        most: maximum number of seeds per group to consider.

    Returns:
        The seeds in each group, at least 2, and the power that they reach.

    Raises:
        UserError: as for `welch_power`, for an impossible power, or if even `most` seeds do not
            reach it.
    """
    require_inside("power", power)
    require_at_least("most", most, 2)

    def reached(count: int) -> float:
        return welch_power(count, difference, deviation, other_deviation, alpha=alpha)

    seeds = 2 + bisect_left(range(2, most + 1), power, key=reached)  # which grows with the seeds
    if seeds > most:
        raise UserError(
            f"most must be enough for a power of {power}, got {most}, "
            f"which reach {reached(most):.3g} for a difference of {difference}"
        )
    return SeedsNeeded(seeds, reached(seeds))


def detectable_difference(
    count: int,
    deviation: float,
    other_deviation: float | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float:
    """The smallest difference that Welch's t-test with `count` seeds per group detects often.

    This is the difference at which `welch_power`, which grows with it, is the requested power; see
    there for equations, arguments and errors. Such a comparison can neither show nor refute a
    smaller difference.

    Returns:
        The difference in the unit of the data, to a millionth of the larger deviation.
    """
    require_inside("power", power)
    unit = float(max(deviation, deviation if other_deviation is None else other_deviation))

    def reached(difference: float) -> float:
        return welch_power(count, difference, deviation, other_deviation, alpha=alpha)

    low, high = 0.0, unit if unit > 0 else 1.0  # 0 is refused by welch_power
    while reached(high) < power:
        low, high = high, 2 * high
    while high - low > 1e-6 * unit:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) >= power else (middle, high)
    return high


def rejection_rate(critical: float, degrees: float, shift: float) -> float:
    """The probability that a noncentral |T| exceeds a critical value.

    T = (Z + shift) / V with Z normal and V the root of a chi-square over its degrees of freedom k,
    so that

        P(|T| > c) = E_V[Phi(shift - c V) + Phi(-shift - c V)]

    integrated over log V, in two parts that meet where the first term steps down (c V = shift).
    `scipy.stats.nct` is not used: it gives NaN in ordinary cases, such as 10 degrees of freedom, a
    shift of 10 and the critical value of alpha = 0.001 (SciPy 1.17, its issue 25470).

    Args:
        critical: value of the test, above 0.
        degrees: of freedom, above 0.
        shift: the noncentrality, at least 0.
    """
    from scipy.special import gammaincinv, gammaln, ndtr  # start: SciPy takes 0.2 s

    half = degrees / 2
    ends = 0.5 * np.log(gammaincinv(half, np.array([LEFT_OUT, 1 - LEFT_OUT])) / half)
    middle = np.clip(np.log(max(shift, 1e-300) / critical), *ends)
    nodes, weights = _nodes()
    total = 0.0
    for low, high in ((ends[0], middle), (middle, ends[1])):
        log_v = low + (high - low) * (nodes + 1) / 2
        squares = np.exp(2 * log_v)
        log_density = np.log(2) + half * np.log(half) - gammaln(half) + half * (2 * log_v - squares)
        reached = critical * np.sqrt(squares)
        values = np.exp(log_density) * (ndtr(shift - reached) + ndtr(-shift - reached))
        total += float(np.sum(weights * values) * (high - low) / 2)
    return min(1.0, total)


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]; computing them takes longer than everything else."""
    return np.polynomial.legendre.leggauss(NODES)


def _checked_deviations(
    difference: float, deviation: float, other: float | None
) -> tuple[float, float]:
    """The deviations of both groups in double precision, after checking all three numbers."""
    require_rate("the difference's size", float(abs(difference)), positive=True)
    require_rate("deviation", float(deviation))
    chosen = deviation if other is None else other
    require_rate("other_deviation", float(chosen))
    if deviation == 0 and chosen == 0:
        raise UserError(
            "deviation must be above 0 in one of the groups, got 0 in both: seeds that all agree "
            "do not show how many are needed"
        )
    return float(deviation), float(chosen)
