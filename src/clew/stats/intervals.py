"""Intervals for what a few seeds and many episodes say."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError, require_at_least, require_choice
from clew.stats.checks import require_confidence

Method = Literal["bca", "percentile"]


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval, all in the unit of the data."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """Writes `mean [low, high]`, each number by `spec` (two decimals unless told)."""
        spec = spec or ".2f"
        if math.isnan(self.low):
            return format(self.mean, spec)
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion of independent trials.

    With p = successes / trials and z the normal quantile of (1 + confidence) / 2:

        (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

    It stays within [0, 1] and is right at 0 and at 1, where the textbook interval has no width.
    Episodes of one policy are independent; episodes of several seeds are not, for those take
    `bootstrap_interval` over the seeds.

    Args:
        successes: how many of the trials succeeded.
        trials: how many there were, at least 1.
        confidence: of the interval, between 0 and 1.

    Raises:
        UserError: for impossible counts or an impossible confidence.

    Source:
        Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    require_at_least("trials", trials, 1)
    require_at_least("successes", successes, 0)
    if successes > trials:
        raise UserError(f"successes must be at most trials ({trials}), got {successes}")
    z = _quantile((1 + require_confidence(confidence)) / 2)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    width = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # Rounding may put an end a hair inside the rate itself at 0 and 1, where it is exact.
    low = 0.0 if successes == 0 else (centre - width) / scale
    high = 1.0 if successes == trials else (centre + width) / scale
    return Interval(rate, low, high)


def bootstrap_interval(
    values: Sequence[float] | Float[np.ndarray, " n"],
    confidence: float = 0.95,
    *,
    resamples: int = 9999,
    method: Method = "bca",
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of the mean over independent values, such as the results of seeds.

    `percentile` takes the quantiles of the resampled means; `bca` moves those quantiles by the
    estimated bias and skewness (acceleration from the jackknife). Equal values give an interval
    of no width, one value gives NaN ends: nothing is known of the spread then. With fewer than
    about 10 values every bootstrap interval is too narrow (two values can only ever give the
    two values as ends), so read it as a picture of the spread and not as a test.

    Args:
        values: one number for each seed, finite, at least one.
        confidence: of the interval, between 0 and 1.
        resamples: number of resampled sets, at least 1.
        method: "bca" or "percentile".
        seed: of the resampling, so that the same values give the same interval.

    Raises:
        UserError: if there is no value, or one that is not finite, or an unknown method.

    Source:
        Efron (1987), "Better bootstrap confidence intervals", Eqs. 2.3 and 6.6.
    """
    require_choice("method", method, ("bca", "percentile"))
    require_at_least("resamples", resamples, 1)
    data = _finite(values)
    mean = float(data.mean())
    if data.size == 1:
        return Interval(mean, math.nan, math.nan)
    if np.all(data == data[0]):
        return Interval(mean, mean, mean)
    picks = np.random.default_rng(seed).integers(0, data.size, (resamples, data.size))
    means = data[picks].mean(axis=-1)
    tail = (1 - require_confidence(confidence)) / 2
    tails = (tail, 1 - tail)
    if method == "bca":
        tails = _bca_tails(data, means, tails)
    low, high = np.quantile(means, tails)
    return Interval(mean, float(low), float(high))


def _bca_tails(data: Any, means: Any, tails: tuple[float, float]) -> tuple[float, float]:
    """The quantiles to read instead of `tails`, for bias z0 and acceleration a (Eq. 6.6)."""
    below = (np.sum(means < data.mean()) + np.sum(means <= data.mean())) / (2 * means.size)
    if not 0 < below < 1:
        return tails
    bias = _quantile(float(below))
    # The jackknifed mean without value i differs from the mean by (mean - value) / (n - 1).
    pulls = data - data.mean()
    acceleration = float(np.sum(pulls**3) / (6 * np.sum(pulls**2) ** 1.5))

    def moved(tail: float) -> float:
        shift = bias + _quantile(tail)
        return NormalDist().cdf(bias + shift / (1 - acceleration * shift))

    return moved(tails[0]), moved(tails[1])


def _finite(values: Any) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.all(np.isfinite(data)):
        raise UserError(f"an interval needs one finite number or more in a list, got {values!r}")
    return data


def _quantile(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
