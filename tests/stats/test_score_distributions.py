"""Wins, profiles and ranks agree with SciPy, plain loops and cases worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from clew.errors import UserError
from clew.stats import (
    Interval,
    performance_profile,
    probability_of_improvement,
    ranked_scores,
)


def tables(n: int, m: int, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores in steps of a quarter, so that there are ties."""
    rng = np.random.default_rng([n, m, tasks])
    x, y = rng.normal(0.3, 1.0, (n, tasks)), rng.normal(0.0, 1.0, (m, tasks))
    return np.round(4 * x) / 4, np.round(4 * y) / 4


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (30, 30)])
@pytest.mark.parametrize("tasks", [1, 4])
def test_improvement_is_mann_and_whitneys(n: int, m: int, tasks: int) -> None:
    x, y = tables(n, m, tasks)
    u = [stats.mannwhitneyu(a, b).statistic / (n * m) for a, b in zip(x.T, y.T, strict=True)]
    result = probability_of_improvement(x, y, resamples=200)
    np.testing.assert_allclose(result.mean, np.mean(u))
    assert 0 <= result.low <= result.mean <= result.high <= 1
    np.testing.assert_allclose(result.mean + probability_of_improvement(y, x).mean, 1.0)


def test_improvement_by_hand() -> None:
    # Task 1: 2 beats 0 and 1, 1 beats 0 and ties with 1: 3.5 of 4. Task 2: all tie, 2 of 4.
    x, y = np.array([[2.0, 5.0], [1.0, 5.0]]), np.array([[0.0, 5.0], [1.0, 5.0]])
    assert probability_of_improvement(x, y).mean == (3.5 / 4 + 0.5) / 2
    same = np.full((3, 2), 0.25)
    assert probability_of_improvement(same, same) == Interval(0.5, 0.5, 0.5)
    assert probability_of_improvement(same + 1, same) == Interval(1.0, 1.0, 1.0)


def test_only_the_order_counts() -> None:
    x, y = tables(5, 6, 3)
    plain = probability_of_improvement(x, y, seed=1)
    assert plain == probability_of_improvement(np.exp(x), np.exp(y), seed=1)
    assert plain != probability_of_improvement(x, y, seed=2)


def test_the_interval_of_improvement_is_that_of_plain_loops() -> None:
    x, y = tables(6, 8, 3)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2000):
        wins = 0.0
        for a, b in zip(x.T, y.T, strict=True):
            drawn, other = a[rng.integers(0, 6, 6), None], b[rng.integers(0, 8, 8)]
            wins += np.mean(drawn > other) + np.mean(drawn == other) / 2
        found.append(wins / 3)
    result = probability_of_improvement(x, y, 0.9)
    # Quantiles of 2,000 values: four standard errors of their level.
    for end, level in ((result.low, 0.05), (result.high, 0.95)):
        assert np.quantile(found, level - 0.02) <= end <= np.quantile(found, level + 0.02)


def test_the_interval_of_improvement_covers_the_truth() -> None:
    """Normal scores one deviation apart: P = Phi(1 / sqrt 2)."""
    rng = np.random.default_rng(2)
    truth = stats.norm.cdf(1 / math.sqrt(2))
    hits = 0
    for _ in range(200):
        x, y = rng.normal(1.0, 1.0, (15, 2)), rng.normal(0.0, 1.0, (15, 2))
        result = probability_of_improvement(x, y, resamples=300)
        hits += result.low <= truth <= result.high
    assert 0.86 < hits / 200 < 0.995


def test_profile_by_hand() -> None:
    scores = np.array([[0.0, 0.5], [0.5, 1.0]])
    profile = performance_profile(scores, [-1.0, 0.0, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(profile.share, [1.0, 0.75, 0.25, 0.25, 0.0])  # above, not at
    # One of four runs above 0.75, drawn 0, 1 or 2 times of its task's two draws.
    np.testing.assert_allclose(profile.low, [1.0, 0.5, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(profile.high, [1.0, 1.0, 0.5, 0.5, 0.0])
    np.testing.assert_array_equal(profile.thresholds, [-1.0, 0.0, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(("seeds", "tasks"), [(2, 1), (5, 3), (30, 2)])
def test_profile_of_any_scores(seeds: int, tasks: int) -> None:
    scores = tables(seeds, 2, tasks)[0]
    at = np.linspace(-5, 5, 401)
    profile = performance_profile(scores, at, resamples=300)
    assert np.all(np.diff(profile.share) <= 0)
    assert np.all((profile.low <= profile.share) & (profile.share <= profile.high))
    np.testing.assert_allclose(profile.share, [np.mean(scores > tau) for tau in at])
    area = np.sum(profile.share) * (at[1] - at[0])
    np.testing.assert_allclose(at[0] + area, scores.mean(), atol=0.026)


def test_the_band_of_a_profile_is_the_binomials() -> None:
    """Of one task and one threshold, the resampled share is Binomial(n, share) / n."""
    scores = np.arange(20.0)[:, None]
    profile = performance_profile(scores, [11.5], 0.9, resamples=20000)
    ends = stats.binom.ppf([0.05, 0.95], 20, 0.4) / 20
    np.testing.assert_allclose((profile.low[0], profile.high[0]), ends)


@pytest.mark.parametrize("n", [2, 3, 8, 30])
def test_the_band_of_ranks_is_the_bootstraps(n: int) -> None:
    scores = np.random.default_rng(n).exponential(size=n)
    ranks = ranked_scores(scores, 0.9)
    np.testing.assert_array_equal(ranks.rank, np.arange(1, n + 1))
    np.testing.assert_array_equal(ranks.score, np.sort(scores)[::-1])
    drawn = np.random.default_rng(0).choice(scores, (20000, n))
    drawn = np.sort(drawn, axis=1)[:, ::-1]
    # At most one score off: a level may fall close to a step of the exact distribution.
    for result, level in ((ranks.low, 0.05), (ranks.high, 0.95)):
        below, above = np.quantile(drawn, (level - 0.006, level + 0.006), axis=0, method="lower")
        assert np.all((below <= result) & (result <= above))


def test_ranks_by_hand() -> None:
    # Two seeds: a resample's best is the worse one with 1/4, its worst the better with 1/4.
    ranks = ranked_scores([3.0, 7.0], 0.6)
    np.testing.assert_array_equal(ranks.score, [7.0, 3.0])
    np.testing.assert_array_equal(ranks.low, [3.0, 3.0])
    np.testing.assert_array_equal(ranks.high, [7.0, 7.0])
    narrow = ranked_scores([3.0, 7.0], 0.4)  # from 0.3 to 0.7
    np.testing.assert_array_equal(narrow.low, [7.0, 3.0])
    np.testing.assert_array_equal(narrow.high, [7.0, 3.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: probability_of_improvement(np.ones((3, 2)), np.ones((3, 3))), "2 and 3 tasks"),
        (lambda: probability_of_improvement(np.ones((1, 2)), np.ones((3, 2))), "x must be"),
        (lambda: probability_of_improvement(np.ones((3, 2)), np.ones(3)), r"y must be.*\(3,\)"),
        (lambda: probability_of_improvement(np.full((3, 2), np.nan), np.ones((3, 2))), "nan"),
        (lambda: probability_of_improvement(np.ones((3, 2)), np.ones((3, 2)), 1.0), "confidence"),
        (lambda: probability_of_improvement(np.eye(2), np.eye(2), resamples=0), "resamples"),
        (lambda: performance_profile(np.ones((1, 2)), [0.5]), "at least 2 seeds"),
        (lambda: performance_profile(np.ones((2, 2)), []), "thresholds"),
        (lambda: performance_profile(np.ones((2, 2)), [math.nan]), "thresholds must be finite"),
        (lambda: performance_profile(np.ones((2, 2)), [0.5], 0.0), "confidence"),
        (lambda: performance_profile(np.ones((2, 2)), [0.5], resamples=-1), "resamples"),
        (lambda: ranked_scores([1.0]), "at least 2 seeds"),
        (lambda: ranked_scores([1.0, math.nan]), "nan"),
        (lambda: ranked_scores([1.0, 2.0], 2.0), "confidence"),
    ],
)
def test_impossible_scores_are_refused(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
