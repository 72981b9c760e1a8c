"""The t-tests equal SciPy's, constant seeds permutation tests, and Holm a hand calculation."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clew.errors import UserError
from clew.stats import (
    Spread,
    equivalence_test,
    fisher_test,
    holm,
    mean_and_deviation,
    paired_test,
    welch_from_spreads,
    welch_test,
)


def groups(n: int, m: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two groups with different means and deviations."""
    rng = np.random.default_rng([n, m])
    return scale * rng.normal(0.0, 1.0, n), scale * rng.normal(0.7, 3.0, m)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (3, 30), (30, 30), (2, 9)])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9, 1e-170])
def test_welch_is_scipys(n: int, m: int, scale: float) -> None:
    x, y = groups(n, m)
    reference: Any = stats.ttest_ind(x, y, equal_var=False)
    ends = reference.confidence_interval(0.9)
    result = welch_test(scale * x, scale * y, 0.9)
    assert result.method == "welch"
    np.testing.assert_allclose(result.difference, scale * (x.mean() - y.mean()))
    np.testing.assert_allclose(result.statistic, reference.statistic, rtol=1e-9)
    np.testing.assert_allclose(result.degrees, reference.df, rtol=1e-9)
    np.testing.assert_allclose(result.p, reference.pvalue, rtol=1e-9)
    np.testing.assert_allclose((result.low, result.high), scale * np.array(ends), rtol=1e-7)
    pooled = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
    np.testing.assert_allclose(result.effect, (x.mean() - y.mean()) / pooled)


def test_welch_of_a_published_table_is_scipys() -> None:
    # Table 4.1 of Makkink (2021): memory length, GTrXL and LSTM, three seeds.
    result = welch_from_spreads(Spread(0.856, 0.225, 3), Spread(0.832, 0.113, 3))
    reference: Any = stats.ttest_ind_from_stats(0.856, 0.225, 3, 0.832, 0.113, 3, equal_var=False)
    np.testing.assert_allclose(
        (result.statistic, result.p), (reference.statistic, reference.pvalue)
    )
    x, y = groups(4, 6)
    assert welch_from_spreads(mean_and_deviation(x), mean_and_deviation(y)) == welch_test(x, y)


def test_one_group_without_spread_is_still_welchs() -> None:
    result = welch_test([0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.7])
    reference: Any = stats.ttest_1samp([0.1, 0.2, 0.3, 0.7], 0.0)
    assert result.method == "welch" and result.degrees == 3
    np.testing.assert_allclose(
        (-result.statistic, result.p), (reference.statistic, reference.pvalue)
    )


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 30), (30, 30)])
@pytest.mark.parametrize("bound", [0.1, 2.0, 9.0])
def test_equivalence_is_two_of_scipys_one_sided_tests(n: int, m: int, bound: float) -> None:
    x, y = groups(n, m)
    above: Any = stats.ttest_ind(x + bound, y, equal_var=False, alternative="greater")
    below: Any = stats.ttest_ind(x - bound, y, equal_var=False, alternative="less")
    result = equivalence_test(x, y, bound)
    np.testing.assert_allclose(result.p, max(above.pvalue, below.pvalue), rtol=1e-9)
    ends: Any = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.9)
    np.testing.assert_allclose(result.within, max(-ends.low, ends.high))
    np.testing.assert_allclose(equivalence_test(x, y, result.within).p, 0.05)
    assert (result.p <= 0.05) == (result.within <= bound)


def test_equivalence_without_spread_and_of_impossible_bounds() -> None:
    solved = [1.0, 1.0, 1.0]
    same = equivalence_test(solved, solved, 0.1)
    assert (same.difference, same.p, same.within) == (0.0, 0.05, 0.0)
    other = equivalence_test(solved, [0.5, 0.5, 0.5], 0.1)
    assert other.p == 0.95 and math.isnan(other.within)
    for bound, alpha in ((0.0, 0.05), (math.inf, 0.05), (0.1, 0.5)):
        with pytest.raises(UserError, match="must be"):
            equivalence_test(solved, solved, bound, alpha)


@pytest.mark.parametrize("n", [2, 3, 30])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_paired_is_scipys(n: int, scale: float) -> None:
    x, y = groups(n, n)
    reference: Any = stats.ttest_rel(x, y)
    ends = reference.confidence_interval(0.99)
    result = paired_test(scale * x, scale * y, 0.99)
    assert result.method == "paired" and result.degrees == n - 1
    np.testing.assert_allclose(
        (result.statistic, result.p), (reference.statistic, reference.pvalue)
    )
    np.testing.assert_allclose((result.low, result.high), scale * np.array(ends))
    np.testing.assert_allclose(result.effect, (x - y).mean() / (x - y).std(ddof=1))


@pytest.mark.parametrize("test", [welch_test, paired_test])
def test_the_other_way_round(test) -> None:
    x, y = groups(5, 5)
    there, back = test(x, y), test(y, x)
    assert there.p == back.p
    np.testing.assert_allclose(
        (there.difference, there.low, there.high, there.statistic, there.effect),
        (-back.difference, -back.high, -back.low, -back.statistic, -back.effect),
    )


@pytest.mark.parametrize("test", [welch_test, paired_test])
def test_equal_constants_do_not_differ(test) -> None:
    same = test([0.3, 0.3, 0.3], [0.1 + 0.2] * 3)  # equal up to rounding
    assert (same.difference, same.p, same.effect, same.method) == (0.0, 1.0, 0.0, "permutation")
    assert all(map(math.isnan, (same.low, same.high, same.statistic, same.degrees)))


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (3, 4), (5, 2)])
def test_different_constants_are_a_permutation_test(n: int, m: int) -> None:
    """SciPy's t-test gives p = 0, from four numbers; its permutation test gives the result."""
    x, y = [1.0] * n, [0.0] * m
    exact = stats.permutation_test((x, y), lambda a, b: np.mean(a) - np.mean(b), n_resamples=9999)
    result = welch_test(x, y)
    np.testing.assert_allclose(result.p, exact.pvalue)
    assert result.method == "permutation" and result.difference == 1.0
    assert result.statistic == result.effect == math.inf
    assert math.isnan(result.low) and math.isnan(result.high)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_differences_that_agree_are_a_test_of_signs(n: int) -> None:
    y = np.arange(n) / 10
    x = y - 0.2  # in floating point the differences are not exactly equal
    exact = stats.permutation_test(
        (x, y), lambda a, b: round(np.mean(a - b), 9), permutation_type="samples"
    )
    result = paired_test(x, y)
    np.testing.assert_allclose(result.p, exact.pvalue)
    assert result.method == "permutation" and result.statistic == -math.inf


@pytest.mark.parametrize("deviation", [0.1, 1.0, 10.0])
def test_welchs_interval_covers_the_difference(deviation: float) -> None:
    rng = np.random.default_rng(7)
    trials = 600
    hits = 0
    for _ in range(trials):
        result = welch_test(rng.normal(1.0, 1.0, 4), rng.normal(0.0, deviation, 6))
        hits += result.low <= 1.0 <= result.high
        assert (result.p < 0.05) == (not result.low <= 0.0 <= result.high)
    # Welch's degrees are approximate: one point either way, in addition to four binomial errors.
    slack = 0.01 + 4 * math.sqrt(0.95 * 0.05 / trials)
    assert abs(hits / trials - 0.95) < slack


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ((5, 5, 1, 5), 12 / 252),  # of 252 ways to draw five of ten, 1 * 6 + its mirror's 6
        ((3, 4, 1, 4), 34 / 70),  # Fisher's tea, (16 + 1) * 2 of the 70
        ((0, 4, 0, 7), 1.0),
        ((2, 2, 2, 2), 1.0),
    ],
)
def test_fisher_by_hand(counts: tuple[int, int, int, int], p: float) -> None:
    first, second = counts[:2], counts[2:]
    np.testing.assert_allclose(fisher_test(*first, *second), p)
    np.testing.assert_allclose(fisher_test(*second, *first), p)


@pytest.mark.parametrize(
    ("given", "adjusted"),
    [
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4p, 3p, 2p, and p raised to 2p
        ([0.5, 0.5, 0.01], [1.0, 1.0, 0.03]),
        ([0.0, 1.0, 0.4], [0.0, 1.0, 0.8]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
    ],
)
def test_holm_by_hand(given: list[float], adjusted: list[float]) -> None:
    np.testing.assert_allclose(holm(given), adjusted, atol=1e-15)
    order = np.random.default_rng(0).permutation(len(given))
    np.testing.assert_allclose(holm(np.array(given)[order]), np.array(adjusted)[order])


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_holm_rejects_what_its_steps_reject(alpha: float) -> None:
    """From the smallest on: reject while p <= alpha / (tests left); stop at the first failure."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        given = rng.random(8) ** 3
        rejected = np.zeros(8, bool)
        for left, i in zip(range(8, 0, -1), np.argsort(given), strict=True):
            if given[i] > alpha / left:
                break
            rejected[i] = True
        np.testing.assert_array_equal(holm(given) <= alpha, rejected)
        assert np.all(holm(given) >= given) and np.all(holm(given) <= np.minimum(1, 8 * given))


def test_holm_keeps_false_calls_rare() -> None:
    """Ten tests without any true effect: at most 5% of families have a false call."""
    rng = np.random.default_rng(5)
    calls = np.mean([np.any(holm(rng.random(10)) <= 0.05) for _ in range(1000)])
    assert calls < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: welch_test([1.0], [1.0, 2.0]), "x must be .* at least 2 seeds"),
        (lambda: welch_test([1.0, 2.0], []), "y must be"),
        (lambda: welch_test([1.0, math.nan], [1.0, 2.0]), r"x must be finite, got nan at \[1\]"),
        (lambda: welch_test(np.zeros((2, 2)), [1.0, 2.0]), r"shape \(2, 2\)"),
        (lambda: welch_test([1.0, 2.0], [1.0, 2.0], 0.0), "confidence .* got 0.0"),
        (lambda: welch_test([1.0, 1.0], [1.0, 1.0], 95), "confidence .* got 95"),
        (lambda: welch_from_spreads(Spread(0.0, 1.0, 1), Spread(0.0, 1.0, 3)), "x.seeds"),
        (lambda: welch_from_spreads(Spread(0.0, 1.0, 3), Spread(0.0, -1.0, 3)), "y.deviation"),
        (lambda: welch_from_spreads(Spread(0.0, 1.0, 3), Spread(math.nan, 1.0, 3)), "y.mean"),
        (lambda: paired_test([1.0, 2.0], [1.0, 2.0, 3.0]), "got 2 and 3"),
        (lambda: paired_test([1.0], [2.0]), "at least 2"),
        (lambda: paired_test([1.0, 1.0], [1.0, 1.0], math.nan), "confidence"),
        (lambda: holm([]), "p_values must be a list with one number or more, got"),
        (lambda: holm([0.5, 1.5]), "between 0 and 1, got 1.5"),
        (lambda: holm([0.5, -0.5]), "got -0.5"),
        (lambda: holm([0.5, math.nan]), "finite"),
    ],
)
def test_impossible_comparisons_are_refused(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
