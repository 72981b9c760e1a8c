"""Influence by lag, and the effective memory length that follows from it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clew.errors import UserError
from clew.stats import Interval, bootstrap_interval

SHARE = 0.9


class MemoryLength(NamedTuple):
    """The effective memory length of several episodes, in steps."""

    share: float
    """The fraction of all influence that is reached at that lag."""
    lengths: Float[np.ndarray, " episodes"]
    """The length in every episode; NaN if nothing has any influence."""
    mean: Interval
    """The mean with its 95% bootstrap interval over episodes; NaN if no episode has a length."""
    quartiles: tuple[float, float, float]
    """The quartiles over episodes."""


def by_lag(
    influence: Float[np.ndarray, "episodes time"], at: Int[np.ndarray, " episodes"]
) -> Float[np.ndarray, "episodes lags"]:
    """Each episode's influence on its decision by lag k = t - s, from 0.

    Args:
        influence: of every observation s.
        at: the step t of each episode's decision.

    Returns:
        Influence for all lags of the latest decision; zero if an episode is shorter than the lag.
    """
    found = np.zeros((len(influence), int(at.max()) + 1), np.float64)
    for row, values, t in zip(found, influence, at, strict=True):
        row[: t + 1] = values[: t + 1][::-1]
    return found


def shares(lags: Float[np.ndarray, "episodes lags"]) -> Float[np.ndarray, "episodes lags"]:
    """Each episode's influence as shares of its sum; NaN if there is no influence."""
    total = lags.sum(axis=1, keepdims=True)
    return np.divide(lags, total, out=np.full_like(lags, np.nan), where=total > 0)


def memory_length(lags: Float[np.ndarray, "episodes lags"], share: float = SHARE) -> MemoryLength:
    """The effective memory length: the lag at which a share of the influence is reached.

        L = min { k : I_0 + .. + I_k >= share (I_0 + I_1 + ..) }

    with I_k the influence of the observation k steps before the decision. A memory that carries
    nothing has L = 0; one that weighs m steps equally has about share m.

    Args:
        lags: influence [episodes, lags], as `by_lag` gives it.
        share: above 0 and at most 1.

    Raises:
        UserError: for an impossible share.
    """
    if not 0 < share <= 1:
        raise UserError(f"share must be above 0 and at most 1, got {share!r}")
    reached = np.cumsum(shares(lags), axis=1)
    # A rounding error must not miss a share of exactly one half.
    lengths = np.argmax(reached >= share - 1e-9, axis=1).astype(np.float64)
    lengths = np.where(np.isnan(reached[:, 0]), np.nan, lengths)
    known = lengths[np.isfinite(lengths)]
    if not known.size:
        nothing = float("nan"), float("nan"), float("nan")
        return MemoryLength(share, lengths, Interval(*nothing), nothing)
    low, half, high = (float(q) for q in np.quantile(known, (0.25, 0.5, 0.75)))
    mean = bootstrap_interval(known, method="percentile", resamples=2000)
    return MemoryLength(share, lengths, mean, (low, half, high))
