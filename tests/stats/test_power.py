"""The power of Welch's t-test agrees with the noncentral t, textbook tables and simulation."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from clew.errors import UserError
from clew.stats import (
    Spread,
    detectable_difference,
    seeds_needed,
    welch_from_spreads,
    welch_power,
)
from clew.stats.comparisons import critical_value
from clew.stats.power import rejection_rate


def integrated(critical: float, degrees: float, shift: float) -> float:
    """P(|T| > critical) by adaptive integration over the normal instead of the chi."""

    def rest(z: float) -> float:
        reach = ((z + shift) / critical) ** 2 * degrees
        return float(stats.norm.pdf(z) * stats.chi2.cdf(reach, degrees))

    return integrate.quad(rest, -12, 12, points=[-shift, critical - shift], limit=500)[0]


@pytest.mark.parametrize("count", [2, 3, 5, 30, 200])
@pytest.mark.parametrize("effect", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_power_is_the_noncentral_ts(count: int, effect: float, alpha: float) -> None:
    """The formula of statsmodels' power of the two-sided t-test, in SciPy's distributions."""
    degrees, shift = 2 * count - 2, effect * math.sqrt(count / 2)
    critical = stats.t.isf(alpha / 2, degrees)
    reference = stats.nct.sf(critical, degrees, shift) + stats.nct.cdf(-critical, degrees, shift)
    if math.isnan(reference):  # as SciPy 1.17 returns for some of them
        reference = integrated(critical, degrees, shift)
    result = welch_power(count, effect * 7, 7.0, alpha=alpha)
    np.testing.assert_allclose(result, reference, atol=1e-9)


@pytest.mark.parametrize(
    ("degrees", "shift", "alpha"),
    [(1, 37, 0.001), (2, 50, 0.05), (4, 10, 1e-6), (10, 10, 0.001), (58, 4, 0.001), (1, 0, 0.05)],
)
def test_power_where_scipy_has_none(degrees: float, shift: float, alpha: float) -> None:
    critical = critical_value(alpha, degrees)
    reference = integrated(critical, degrees, shift)
    np.testing.assert_allclose(rejection_rate(critical, degrees, shift), reference, atol=1e-8)


@pytest.mark.parametrize("degrees", [1, 1.5, 4, 100, 1e5])
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_without_a_difference_the_power_is_the_level(degrees: float, alpha: float) -> None:
    critical = critical_value(alpha, degrees)
    np.testing.assert_allclose(rejection_rate(critical, degrees, 0.0), alpha, rtol=1e-8)


@pytest.mark.parametrize("deviations", [(1.0, 1.0), (0.2, 1.0), (0.0, 1.0)])
def test_power_is_how_often_the_test_finds_it(deviations: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    trials, count = 4000, 6
    x = rng.normal(0.0, deviations[0], (count, trials))
    y = rng.normal(1.2, deviations[1], (count, trials))
    tests: Any = stats.ttest_ind(x, y, equal_var=False)
    found = np.mean(tests.pvalue < 0.05)
    expected = welch_power(count, 1.2, *deviations)
    # Two points for Welch's degrees, which vary with the sample, besides four binomial errors.
    assert abs(found - expected) < 0.02 + 4 * math.sqrt(0.25 / trials)


@pytest.mark.parametrize(
    ("effect", "power", "count"),
    # Cohen (1988), Table 2.4.1, two-sided level of 0.05.
    [(0.2, 0.8, 394), (0.5, 0.8, 64), (0.8, 0.8, 26), (0.5, 0.9, 86), (0.8, 0.95, 42)],
)
def test_seeds_are_those_of_the_textbook(effect: float, power: float, count: int) -> None:
    needed = seeds_needed(effect, 1.0, power=power)
    assert needed.seeds == count
    assert needed.power >= power > welch_power(count - 1, effect, 1.0)


def test_seeds_depend_on_what_matters() -> None:
    base = seeds_needed(0.3, 0.4)
    np.testing.assert_allclose(seeds_needed(-30.0, 40.0), base)  # unit and sign do not matter
    assert seeds_needed(0.3, 0.4, 0.4) == base
    assert seeds_needed(0.3, 0.4, 0.1).seeds < base.seeds < seeds_needed(0.3, 0.4, 0.8).seeds
    assert seeds_needed(0.3, 0.4, 0.1) == seeds_needed(0.3, 0.1, 0.4)
    assert seeds_needed(0.3, 0.4, alpha=0.05 / 7).seeds > base.seeds
    assert seeds_needed(1.0, 1e-6) == (2, 1.0)
    assert seeds_needed(0.3, 0.4, most=base.seeds) == base


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: seeds_needed(0.0, 1.0), "difference"),
        (lambda: seeds_needed(math.nan, 1.0), "difference.*nan"),
        (lambda: seeds_needed(1.0, -1.0), "deviation.*-1.0"),
        (lambda: seeds_needed(1.0, 1.0, math.inf), "other_deviation.*inf"),
        (lambda: seeds_needed(1.0, 0.0), "above 0 in one of the groups"),
        (lambda: seeds_needed(1.0, 1.0, power=1.0), "power.*1.0"),
        (lambda: seeds_needed(1.0, 1.0, alpha=0.0), "alpha.*0.0"),
        (lambda: seeds_needed(1.0, 1.0, most=1), "most"),
        (lambda: seeds_needed(0.1, 1.0, most=100), "got 100, which reach 0.1"),
        (lambda: welch_power(1, 1.0, 1.0), "count"),
        (lambda: welch_power(3.5, 1.0, 1.0), "count.*3.5"),
        (lambda: welch_power(3, 1.0, 1.0, alpha=2.0), "alpha"),
    ],
)
def test_impossible_plans_are_refused(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()


@pytest.mark.parametrize(
    ("count", "deviations"), [(3, (0.57, 0.57)), (30, (0.2, 0.4)), (5, (0, 1))]
)
def test_the_detectable_difference_has_the_power(count: int, deviations: Any) -> None:
    found = detectable_difference(count, *deviations, alpha=0.01)
    np.testing.assert_allclose(welch_power(count, found, *deviations, alpha=0.01), 0.8, atol=1e-4)


def test_seeds_that_agree_do_not_say_what_would_be_seen() -> None:
    with pytest.raises(UserError, match="deviation must be above 0"):
        detectable_difference(3, 0.0)


def test_deviations_of_jax_are_taken_in_double_precision() -> None:
    difference, deviation = jnp.float32(0.2), jnp.float32(0.3)
    exact = float(difference), float(deviation)
    assert seeds_needed(difference, deviation) == seeds_needed(*exact)  # not 751,226 seeds
    found = detectable_difference(10, deviation, jnp.float32(0.1))
    assert found == detectable_difference(10, exact[1], float(jnp.float32(0.1)))
    spreads = [Spread(jnp.float32(mean), deviation, 3) for mean in (0.5, 0.7)]
    theirs = [Spread(float(s.mean), exact[1], 3) for s in spreads]
    assert welch_from_spreads(*spreads) == welch_from_spreads(*theirs)
