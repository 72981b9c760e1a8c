"""Comparisons of whole distributions of scores: probability of improvement, profiles, ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clew.errors import UserError, require_at_least
from clew.stats.checks import (
    Samples,
    Scores,
    generator,
    require_confidence,
    require_samples,
    require_scores,
)
from clew.stats.intervals import Interval, blocks, resampled_counts


class Profile(NamedTuple):
    """The share of runs above each threshold, with the ends of its pointwise band."""

    thresholds: Float[np.ndarray, " thresholds"]
    share: Float[np.ndarray, " thresholds"]
    low: Float[np.ndarray, " thresholds"]
    high: Float[np.ndarray, " thresholds"]


class Ranks(NamedTuple):
    """Scores from the best seed to the worst, with the ends of a pointwise band."""

    rank: Int[np.ndarray, " seeds"]
    score: Float[np.ndarray, " seeds"]
    low: Float[np.ndarray, " seeds"]
    high: Float[np.ndarray, " seeds"]


def probability_of_improvement(
    x: Scores, y: Scores, confidence: float = 0.95, *, resamples: int = 9999, seed: int = 0
) -> Interval:
    """The probability that a run of x beats a run of y on the same task, averaged over the tasks.

        P = mean over tasks of (pairs with x > y + half of the pairs with x = y) / (n_x n_y)

    which is Mann and Whitney's U / (n_x n_y) for each task. The interval is a stratified bootstrap:
    the seeds of x and of y are resampled separately in each task. Only the order of the scores
    counts: they need not be normalised, and the result does not say how much better x is. Where
    every run of x beats every run of y the interval is [1, 1], with three seeds as with thirty: use
    `welch_test` beside it.

    Args:
        x: `[seeds, tasks]`, finite, at least two seeds.
        y: `[other seeds, tasks]`, on the same tasks.
        confidence: of the interval, between 0 and 1.
        resamples: number of resampled sets, at least 1.
        seed: of the resampling.

    Returns:
        The probability, in the field `mean`, and the ends of its interval; 0.5 means no difference.

    Raises:
        UserError: for wrong shapes, unequal tasks, one seed, scores that are not finite, or an
            impossible level.

    Source:
        Agarwal et al. (2021), section 4.3; Mann and Whitney (1947).
    """
    first, second = require_scores("x", x).T, require_scores("y", y).T
    require_at_least("resamples", resamples, 1)
    tail = (1 - require_confidence(confidence)) / 2
    if len(first) != len(second):
        raise UserError(
            f"x and y must be scores of the same tasks, got {len(first)} and {len(second)} tasks"
        )
    difference = first[:, :, None] - second[:, None, :]
    wins = (np.sign(difference) + 1) / 2  # [tasks, seeds of x, seeds of y]
    rng = generator(seed)
    found = []
    for count in blocks(resamples, first.size + second.size):
        of_x = resampled_counts(first.shape[1], len(first), count, rng)
        of_y = resampled_counts(second.shape[1], len(second), count, rng)
        won = np.matmul(of_x.transpose(1, 0, 2), wins)  # [tasks, count, seeds of y]
        found.append(np.sum(won * of_y.transpose(1, 0, 2), axis=(0, 2)) / wins.size)
    low, high = np.quantile(np.concatenate(found), (tail, 1 - tail))
    return Interval(float(wins.mean()), float(low), float(high))


def performance_profile(
    scores: Scores,
    thresholds: Sequence[float] | Float[np.ndarray, " thresholds"],
    confidence: float = 0.95,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Profile:
    """The share of all runs, over seeds and tasks, that score above each threshold.

        share(tau) = mean over seeds and tasks of [score > tau]

    It shows the whole distribution in one picture: the area under it, from a floor that all runs
    exceed, is the mean. The band is the stratified bootstrap's at each threshold separately; the
    whole curve lies within it with a lower probability than the confidence.

    Args:
        scores: `[seeds, tasks]`, finite, at least two seeds; normalised if tasks differ in scale.
        thresholds: in the unit of the scores, finite, at least one, in any order.
        confidence: of the band at each threshold, between 0 and 1.
        resamples: number of resampled sets, at least 1.
        seed: of the resampling.

    Raises:
        UserError: for wrong shapes, one seed, numbers that are not finite, or an impossible level.

    Source:
        Agarwal et al. (2021), section 4.2 (run-score distributions).
    """
    data = require_scores("scores", scores)
    at = require_samples("thresholds", thresholds, minimum=1)
    require_at_least("resamples", resamples, 1)
    tail = (1 - require_confidence(confidence)) / 2
    above = (data.T[:, :, None] > at).astype(np.float64)  # [tasks, seeds, thresholds]
    runs = above.reshape(data.size, at.size)
    rng = generator(seed)
    seeds, tasks = data.shape
    found = [
        resampled_counts(seeds, tasks, count, rng).reshape(count, -1) @ runs / data.size
        for count in blocks(resamples, data.size)
    ]
    low, high = np.quantile(np.concatenate(found), (tail, 1 - tail), axis=0)
    return Profile(at, runs.mean(axis=0), low, high)


def ranked_scores(values: Samples, confidence: float = 0.95) -> Ranks:
    """The scores of the seeds from best to worst; a high and flat curve is robust to the seed.

    The band is the bootstrap's, which here needs no resampling. With the n scores in ascending
    order, the k-th of a resample is at most x_(j) if k or more of the n draws are:

        P(x*_(k) <= x_(j)) = P(Binomial(n, j / n) >= k) = I_{j/n}(k, n - k + 1)

    and the ends are the first scores at which this reaches (1 -+ confidence) / 2. The band ends at
    the best and the worst score seen, so it is too narrow at both ends of the curve.

    Args:
        values: one number for each seed, finite, at least two.
        confidence: of the band at each rank, between 0 and 1.

    Returns:
        Ranks from 1, the best, with score and band.

    Raises:
        UserError: for fewer than two seeds, another shape, numbers that are not finite, or an
            impossible confidence.

    Source:
        Parisotto et al. (2019), "Stabilizing transformers for reinforcement learning", for the
        picture; Efron (1979), "Bootstrap methods", section 3, for the probability.
    """
    from scipy.special import betainc  # start: SciPy takes 0.2 s

    data = np.sort(require_samples("values", values))
    tail = (1 - require_confidence(confidence)) / 2
    order = np.arange(1, data.size + 1)
    reached = betainc(order[:, None], data.size + 1 - order[:, None], order / data.size)
    low = data[np.argmax(reached >= tail, axis=1)]
    high = data[np.argmax(reached >= 1 - tail, axis=1)]
    return Ranks(order, data[::-1], low[::-1], high[::-1])
