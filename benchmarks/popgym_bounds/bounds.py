"""Bounds on an optimal return."""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """An expected return."""

    mean: float
    standard_error: float = 0.0
    """0 if the return was computed exactly."""


class Bounds(NamedTuple):
    """The optimal return from below and from above."""

    lower: Estimate
    policy: str
    """What earns it."""
    upper: Estimate
    reason: str
    """Why no policy earns more."""


def mean_of(returns: np.ndarray) -> Estimate:
    """Estimates the expected return from those of episodes."""
    return Estimate(float(returns.mean()), float(returns.std() / np.sqrt(len(returns))))


def exact(value: float, policy: str) -> Bounds:
    """An optimal return that was computed exactly."""
    return Bounds(Estimate(value), policy, Estimate(value), "exact")
