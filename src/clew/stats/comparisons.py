"""Tests of two groups: of means (Welch, paired) or counts (Fisher), and Holm's correction."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError, require_at_least, require_rate
from clew.stats.aggregates import Spread, mean_and_deviation
from clew.stats.checks import (
    ROUNDING,
    Samples,
    require_confidence,
    require_samples,
    require_successes,
)


class Comparison(NamedTuple):
    """A difference of two means, with its interval, its p-value and the test behind them.

    difference, low, high: first mean minus second, with the ends of its confidence interval, in the
    unit of the data. statistic: t. degrees: of freedom. p: two-sided. effect: the difference in
    standard deviations (see the test). method: "permutation" where no seed differs from another, so
    that there is no t-test; statistic is then NaN or infinite, and the ends are NaN.
    """

    difference: float
    low: float
    high: float
    statistic: float
    degrees: float
    p: float
    effect: float
    method: Literal["welch", "paired", "permutation"]


def welch_test(x: Samples, y: Samples, confidence: float = 0.95) -> Comparison:
    """Welch's t-test: do two groups of independent seeds differ in their means?

    With v = s^2 / n for each group (the deviations need not be equal):

        t = (mean_x - mean_y) / sqrt(v_x + v_y)
        degrees = (v_x + v_y)^2 / (v_x^2 / (n_x - 1) + v_y^2 / (n_y - 1))
        effect = (mean_x - mean_y) / sqrt((s_x^2 + s_y^2) / 2)

    Where neither group has any spread (all seeds of x gave the same number, and so did all seeds of
    y), t is 0 / 0 or x / 0, and the textbook's p of 0 would come from as few as four numbers. Then
    p is that of the permutation test: 1 for equal numbers, 2 n_x! n_y! / (n_x + n_y)! for different
    ones, 0.1 for three seeds against three; `method` says so. If only one group has no spread, the
    test is Welch's, with the other group's deviation and degrees of freedom.

    Args:
        x: one number for each seed of the first group, finite, at least two.
        y: the same for the second.
        confidence: of the interval of the difference, between 0 and 1.

    Raises:
        UserError: for fewer than two seeds, another shape, numbers that are not finite, or an
            impossible confidence.

    Source:
        Welch (1947), "The generalization of Student's problem when several different population
        variances are involved"; the effect is Cohen's d with the mean of the variances, which
        with few seeds is too large (by a quarter for three against three).
    """
    first = mean_and_deviation(require_samples("x", x))
    second = mean_and_deviation(require_samples("y", y))
    return welch_from_spreads(first, second, confidence)


def welch_from_spreads(x: Spread, y: Spread, confidence: float = 0.95) -> Comparison:
    """`welch_test` from means and standard deviations, such as those of a published table.

    A deviation printed as 0.000 is a rounded one. If both are, the result is that of `welch_test`
    for groups without any spread.

    Args:
        x: mean, standard deviation (divisor n - 1) and number of seeds of the first group, two or
            more.
        y: the same for the second.
        confidence: of the interval of the difference, between 0 and 1.

    Raises:
        UserError: for fewer than two seeds, a mean or deviation that is not finite, a negative
            deviation, or an impossible confidence.

    Source:
        Welch (1947).
    """
    require_confidence(confidence)
    for name, spread in (("x", x), ("y", y)):
        require_at_least(f"{name}.seeds", spread.seeds, 2)
        require_rate(f"{name}.deviation", float(spread.deviation))
        if not math.isfinite(spread.mean):
            raise UserError(f"{name}.mean must be a finite number, got {spread.mean!r}")
    # In double precision: JAX users have single precision, too little for these sums.
    x, y = (Spread(float(s.mean), float(s.deviation), s.seeds) for s in (x, y))
    difference = x.mean - y.mean
    if x.deviation == 0 and y.deviation == 0:
        arrangements = math.comb(x.seeds + y.seeds, x.seeds)
        size = max(abs(x.mean), abs(y.mean))
        return _without_spread(difference, size, 2 / arrangements)
    # In units of the larger deviation: the squares of tiny ones must not vanish.
    unit = max(x.deviation, y.deviation)
    v_x, v_y = ((s.deviation / unit) ** 2 / s.seeds for s in (x, y))
    degrees = (v_x + v_y) ** 2 / (v_x**2 / (x.seeds - 1) + v_y**2 / (y.seeds - 1))
    pooled = unit * math.sqrt((v_x * x.seeds + v_y * y.seeds) / 2)
    error = unit * math.sqrt(v_x + v_y)
    return _by_t(difference, error, degrees, pooled, confidence, "welch")


class Equivalence(NamedTuple):
    """Whether two means are equal up to a bound, and the smallest bound that shows it.

    difference: first mean minus second. p: the larger p of the two one-sided tests that the
    difference is at least as large as the bound. within: the bound for which p is alpha; NaN where
    no seed differs from another and the difference is not 0.
    """

    difference: float
    p: float
    within: float


def equivalence_test(x: Samples, y: Samples, bound: float, alpha: float = 0.05) -> Equivalence:
    """Two one-sided tests: is the difference of two groups' means smaller than a bound?

    With Welch's standard error e and degrees of freedom (`welch_test`), and T with these degrees:

        p = max(P(T >= (difference + bound) / e), P(T <= (difference - bound) / e))

    p is at most alpha exactly if the interval with confidence 1 - 2 alpha lies between -bound and
    bound. A `welch_test` that finds no difference does not show this. Where no seed differs from
    another, p is half of the permutation test's.

    Args:
        x: one number for each seed of the first group, finite, at least two.
        y: the same for the second.
        bound: the smallest difference that matters, above 0, in the unit of the data.
        alpha: the level of `within`, between 0 and 0.5.

    Raises:
        UserError: for fewer than two seeds, another shape, numbers that are not finite, or an
            impossible bound or level.

    Source:
        Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power
        approach for assessing the equivalence of average bioavailability".
    """
    if not (math.isfinite(bound) and bound > 0):
        raise UserError(f"bound must be a finite number above 0, got {bound!r}")
    if not 0 < alpha < 0.5:
        raise UserError(f"alpha must be above 0 and below 0.5, got {alpha!r}")
    first = mean_and_deviation(require_samples("x", x))
    second = mean_and_deviation(require_samples("y", y))
    test = welch_from_spreads(first, second, 1 - 2 * alpha)
    p = max(_above(first, second, bound), _above(second, first, bound))
    alike = test.method == "permutation" and test.difference == 0
    return Equivalence(test.difference, p, 0.0 if alike else max(-test.low, test.high))


def _above(x: Spread, y: Spread, bound: float) -> float:
    """The one-sided p for mean_x - mean_y being at most -bound."""
    test = welch_from_spreads(x._replace(mean=x.mean + bound), y)
    return test.p / 2 if test.statistic > 0 else 1 - test.p / 2


def paired_test(x: Samples, y: Samples, confidence: float = 0.95) -> Comparison:
    """The paired t-test: does the mean of the differences x_i - y_i differ from zero?

    With the mean d and the deviation s of the n differences:

        t = d / (s / sqrt(n)),   degrees = n - 1,   effect = d / s

    It is for numbers that belong together, such as two ways of evaluating the same run, or the
    cells of two models on the same tasks. Runs of two models with the same seed are paired only if
    the seed gives them something in common. Differences that are all equal have no t: p is then
    that of the sign-flip test, 1 if they are zero and 2^(1 - n) if not, and `method` says so.

    Args:
        x: one finite number for each pair, at least two pairs.
        y: the other number of each pair, in the same order.
        confidence: of the interval of the mean difference, between 0 and 1.

    Raises:
        UserError: for fewer than two pairs, unequal lengths, another shape, numbers that are not
            finite, or an impossible confidence.

    Source:
        Student (1908), "The probable error of a mean".
    """
    require_confidence(confidence)
    first, second = require_samples("x", x), require_samples("y", y)
    if first.size != second.size:
        raise UserError(
            f"x and y must be pairs and equally long, got {first.size} and {second.size} values"
        )
    size = float(max(np.max(np.abs(first)), np.max(np.abs(second))))
    pairs = mean_and_deviation(first - second, magnitude=size)
    if pairs.deviation == 0:
        return _without_spread(pairs.mean, size, 2.0 ** (1 - pairs.seeds))
    error = pairs.deviation / math.sqrt(pairs.seeds)
    degrees = float(pairs.seeds - 1)
    return _by_t(pairs.mean, error, degrees, pairs.deviation, confidence, "paired")


def fisher_test(successes: int, trials: int, other_successes: int, other_trials: int) -> float:
    """Fisher's exact test: do two groups succeed equally often? The two-sided p-value.

    The p-value is the probability, if they do and given the total of successes, of counts that are
    at most as probable as these, by the hypergeometric distribution. Use it for seeds that either
    solve a task or do not, whose scores are far from normal: 5 of 5 seeds against 1 of 5 is p =
    0.048.

    Args:
        successes: of the first group, for example of its seeds that solve the task.
        trials: number of trials of the first group, at least 1.
        other_successes: of the second group.
        other_trials: number of trials of the second group, at least 1.

    Raises:
        UserError: for impossible counts.

    Source:
        Fisher (1935), "The logic of inductive inference".
    """
    require_successes(successes, trials)
    require_successes(other_successes, other_trials)
    from scipy.stats import fisher_exact  # start: scipy.stats takes 0.6 s

    groups = ((successes, trials), (other_successes, other_trials))
    found: Any = fisher_exact([[solved, of - solved] for solved, of in groups])
    return float(found.pvalue)


def holm(p_values: Sequence[float] | Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Holm's step-down correction: p-values adjusted for having made all of these tests.

    With the p-values in ascending order, p_(1) to p_(m):

        adjusted_(i) = max over j <= i of min(1, (m - j + 1) p_(j))

    Calling differences significant where the adjusted value is at most alpha keeps the probability
    of any false positive at or below alpha, however the tests depend on each other.

    Args:
        p_values: of all tests of one question, including those that are not significant; at least
            one.

    Returns:
        The adjusted values, in the order given.

    Raises:
        UserError: for no p-value, another shape, or one outside [0, 1].

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    given = require_samples("p_values", p_values, minimum=1)
    if np.any((given < 0) | (given > 1)):
        wrong = given[(given < 0) | (given > 1)][0]
        raise UserError(f"p_values must be between 0 and 1, got {wrong}")
    order = np.argsort(given, kind="stable")
    scaled = np.minimum(1.0, given[order] * np.arange(given.size, 0, -1))
    adjusted = np.empty_like(given)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


def two_sided_p(statistic: float, degrees: float) -> float:
    """The probability that |T| is at least |statistic|, for T with these degrees of freedom."""
    from scipy.special import stdtr  # start: SciPy takes 0.2 s

    return min(1.0, float(2 * stdtr(degrees, -abs(statistic))))


def critical_value(alpha: float, degrees: float) -> float:
    """The value that |T| exceeds with probability alpha, for T with these degrees of freedom."""
    from scipy.special import stdtrit  # start: SciPy takes 0.2 s

    return -float(stdtrit(degrees, alpha / 2))


def _by_t(
    difference: float,
    error: float,
    degrees: float,
    deviation: float,
    confidence: float,
    method: Literal["welch", "paired"],
) -> Comparison:
    statistic = difference / error
    reach = critical_value(1 - confidence, degrees) * error
    return Comparison(
        difference,
        difference - reach,
        difference + reach,
        statistic,
        degrees,
        two_sided_p(statistic, degrees),
        difference / deviation,
        method,
    )


def _without_spread(difference: float, size: float, p: float) -> Comparison:
    """The comparison where all seeds agree: no t, no interval, the p of a permutation test."""
    if abs(difference) <= ROUNDING * size:
        return Comparison(0.0, math.nan, math.nan, math.nan, math.nan, 1.0, 0.0, "permutation")
    infinite = math.copysign(math.inf, difference)
    return Comparison(
        difference, math.nan, math.nan, infinite, math.nan, min(p, 1.0), infinite, "permutation"
    )
