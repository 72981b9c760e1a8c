"""What is known of a best return."""

from typing import NamedTuple

import numpy as np

EXACT = "exact"


class Estimate(NamedTuple):
    """An expected return."""

    value: float
    error: float = 0.0
    """Its standard error; 0 where it is computed."""


class Bracket(NamedTuple):
    """A best return from below and from above."""

    low: Estimate
    policy: str
    """What earns it."""
    high: Estimate
    reason: str
    """Why nobody earns more."""


def mean_of(returns: np.ndarray) -> Estimate:
    """What episodes earned."""
    return Estimate(float(returns.mean()), float(returns.std() / np.sqrt(len(returns))))


def exact(value: float, policy: str) -> Bracket:
    """A best return that is computed."""
    return Bracket(Estimate(value), policy, Estimate(value), EXACT)
