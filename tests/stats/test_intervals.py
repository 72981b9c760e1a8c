"""Intervals equal scipy's and cases worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from clew.errors import UserError
from clew.stats import Interval, bootstrap_interval, wilson_interval


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 40), (3, 40), (39, 40), (40, 40)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_wilson_is_scipys(k: int, n: int, confidence: float) -> None:
    result = wilson_interval(k, n, confidence)
    reference = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert result.mean == k / n
    np.testing.assert_allclose(result[1:], (reference.low, reference.high), atol=1e-12)
    assert 0 <= result.low <= result.mean <= result.high <= 1


@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("n", [3, 8, 30])
def test_bootstrap_is_scipys(method: str, n: int) -> None:
    data = np.random.default_rng(n).exponential(size=n)  # skewed, so that bca differs
    result = bootstrap_interval(data, method=method, seed=5)
    reference = stats.bootstrap(
        (data,), np.mean, method=method, n_resamples=9999, rng=np.random.default_rng(5)
    ).confidence_interval
    assert result.mean == data.mean()
    np.testing.assert_allclose(result[1:], reference, rtol=2e-3)


def test_bootstrap_covers_the_true_mean() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        interval = bootstrap_interval(rng.normal(3.0, 1.0, size=25), resamples=500)
        hits += interval.low <= 3.0 <= interval.high
    assert 0.89 < hits / 300 < 0.98


def test_degenerate_samples() -> None:
    assert bootstrap_interval([2.0, 2.0, 2.0]) == Interval(2.0, 2.0, 2.0)
    one = bootstrap_interval([4.0])
    assert one.mean == 4.0 and math.isnan(one.low) and math.isnan(one.high)
    assert f"{one}" == "4.00"
    assert f"{Interval(0.5, 0.25, 0.75):.3f}" == "0.500 [0.250, 0.750]"
    two = bootstrap_interval([0.0, 1.0])
    assert (two.low, two.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wilson_interval(3, 2), "successes"),
        (lambda: wilson_interval(0, 0), "trials"),
        (lambda: wilson_interval(-1, 2), "successes"),
        (lambda: wilson_interval(1, 2, 1.0), "confidence"),
        (lambda: wilson_interval(1, 2, 95), "confidence"),
        (lambda: bootstrap_interval([]), "one number or more"),
        (lambda: bootstrap_interval([1.0, math.nan]), "nan"),
        (lambda: bootstrap_interval([1.0, 2.0], confidence=0.0), "confidence"),
        (lambda: bootstrap_interval([1.0, 2.0], method="basic"), "'basic'"),  # type: ignore[arg-type]
    ],
)
def test_impossible_samples_are_refused(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
