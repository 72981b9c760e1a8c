"""Confidence intervals: Wilson's for success rates, the bootstrap's for a few seeds.

SciPy is imported inside functions, here and in the other files: importing `scipy.stats` takes 0.6
s, which would delay every start of the command line.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clew.errors import UserError, require_at_least, require_choice
from clew.stats.aggregates import Aggregates, Tables, interquartile_mean
from clew.stats.checks import (
    Scores,
    generator,
    require_confidence,
    require_samples,
    require_scores,
    require_successes,
)

Method = Literal["bca", "percentile"]
BLOCK = 2**22
"""Numbers resampled at a time, 32 MB."""
FEW_SEEDS = 5
"""The number of seeds from which an interval over seeds is useful."""


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval, all in the unit of the data."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self, ".3f")

    def __format__(self, spec: str) -> str:
        """Writes `mean [low, high]`, each number by `spec` (two decimals by default)."""
        spec = spec or ".2f"
        if math.isnan(self.low):
            return format(self.mean, spec)
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def over_seeds(seeds: int) -> str:
    """What an interval is over, with a caution if there are few seeds."""
    few = f"; {seeds} are too few for it: it is too narrow, take 5 or more"
    return f"seeds{few if seeds < FEW_SEEDS else ''}"


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion of independent trials.

    With p = successes / trials and z the normal quantile of (1 + confidence) / 2:

        low, high = (p + z^2 / (2 n) -+ z sqrt(p (1 - p) / n + z^2 / (4 n^2))) / (1 + z^2 / n)

    It stays within [0, 1] and is valid at 0 and at 1, where the textbook interval has no width.
    Episodes of one policy are independent; episodes of several seeds are not: for those use
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
    require_successes(successes, trials)
    require_confidence(confidence)
    from scipy.stats import binomtest  # start: scipy.stats takes 0.6 s

    ends = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(ends.low), float(ends.high))


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
    estimated bias and skewness (acceleration from the jackknife). Equal values give an interval of
    no width; one value gives NaN ends, because its spread is unknown. With fewer than about 10
    values every bootstrap interval is too narrow (two values can only have themselves as ends), so
    read it as a description of the spread and not as a test.

    Args:
        values: one number for each seed, finite, at least one.
        confidence: of the interval, between 0 and 1.
        resamples: number of resampled sets, at least 1.
        method: "bca" or "percentile".
        seed: of the resampling, so that the same values give the same interval.

    Raises:
        UserError: for no value, a value that is not finite, or an unknown method.

    Source:
        Efron (1987), "Better bootstrap confidence intervals", Eqs. 2.3 and 6.6.
    """
    require_choice("method", method, ("bca", "percentile"))
    require_at_least("resamples", resamples, 1)
    require_confidence(confidence)
    data, rng = require_samples("values", values, minimum=1), generator(seed)
    mean = float(data.mean())
    if data.size == 1:
        return Interval(mean, math.nan, math.nan)
    if np.all(data == data[0]):
        return Interval(mean, mean, mean)
    from scipy.stats import bootstrap  # start: scipy.stats takes 0.6 s

    with warnings.catch_warnings():
        # SciPy warns of a single resample, and if it cannot correct the bias (see below).
        warnings.simplefilter("ignore", RuntimeWarning)
        found = bootstrap(
            (data,),
            np.mean,
            n_resamples=resamples,
            confidence_level=confidence,
            method="BCa" if method == "bca" else "percentile",
            rng=rng,
        )
    low, high = found.confidence_interval
    if math.isnan(low):
        # All resampled means lie on one side of the mean: the bias cannot be estimated.
        tail = (1 - confidence) / 2
        low, high = np.quantile(found.bootstrap_distribution, (tail, 1 - tail))
    return Interval(mean, float(low), float(high))


def stratified_interval(
    scores: Scores,
    aggregate: Callable[[Tables], Aggregates] = interquartile_mean,
    confidence: float = 0.95,
    *,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of an aggregate of seeds and tasks, stratified by task.

    The seeds of each task are resampled with replacement, each task separately, and the aggregate
    is taken over all tasks; the ends are the quantiles (1 -+ confidence) / 2 of these aggregates.
    The set of tasks is fixed: the interval says nothing about other tasks. With few seeds it is too
    narrow, and seeds with equal scores give an interval of no width.

    Args:
        scores: `[seeds, tasks]`, finite, at least two seeds.
        aggregate: `interquartile_mean`, `mean_of_tasks`, `median_of_tasks`, `optimality_gap`, or
            another function from `[resamples, seeds, tasks]` to `[resamples]`.
        confidence: of the interval, between 0 and 1.
        resamples: number of resampled sets, at least 1.
        seed: of the resampling.

    Returns:
        The aggregate of the scores, in the field `mean`, and the ends of its interval.

    Raises:
        UserError: for wrong shapes, one seed, a score that is not finite, an impossible level, or
            an aggregate that returns another shape.

    Source:
        Agarwal et al. (2021), section 4.1, with the percentile method of Efron (1979).
    """
    data = require_scores("scores", scores)
    require_at_least("resamples", resamples, 1)
    tail = (1 - require_confidence(confidence)) / 2
    rng = generator(seed)
    found = []
    for count in blocks(resamples, data.size):
        picks = rng.integers(0, len(data), (count, *data.shape))
        found.append(_aggregated(aggregate, np.take_along_axis(data[None], picks, axis=1)))
    low, high = np.quantile(np.concatenate(found), (tail, 1 - tail))
    return Interval(float(_aggregated(aggregate, data[None])[0]), float(low), float(high))


def _aggregated(aggregate: Callable[[Tables], Aggregates], tables: Tables) -> Aggregates:
    result = np.asarray(aggregate(tables))
    if result.shape != tables.shape[:1]:
        raise UserError(
            f"aggregate must turn scores of shape {tables.shape} into {tables.shape[:1]}, "
            f"got {result.shape}: take it over the last two axes"
        )
    return result


def blocks(resamples: int, numbers: int) -> Iterator[int]:
    """Splits resamples of `numbers` scores each into blocks that fit in memory."""
    most = max(1, BLOCK // numbers)
    for first in range(0, resamples, most):
        yield min(most, resamples - first)


def resampled_counts(
    seeds: int, tasks: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count tasks seeds"]:
    """How often each seed of each task is resampled: enough for any sum over seeds."""
    picks = rng.integers(0, seeds, (count, tasks, seeds))
    cells = np.arange(count * tasks).reshape(count, tasks, 1) * seeds + picks
    counted = np.bincount(cells.ravel(), minlength=count * tasks * seeds)
    return counted.reshape(count, tasks, seeds)
