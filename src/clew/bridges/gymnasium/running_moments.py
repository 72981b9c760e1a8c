"""Running mean and variance of rows of numbers."""

from dataclasses import dataclass

import numpy as np

from clew.bridges.gymnasium.spaces import Array


@dataclass
class RunningMoments:
    """Mean and variance of all rows seen, in float64, by merging batches.

    With n, m, S the count, mean and sum of squared deviations of what was seen and n', m', S' of
    a batch, d = m' - m:

        m <- m + d n' / (n + n')        S <- S + S' + d^2 n n' / (n + n')        n <- n + n'

    Source: Chan, Golub and LeVeque (1983), equations 2.1. Gymnasium's `RunningMeanStd` begins
    with a made-up mean of 0 and variance of 1 that weigh 1e-4 rows; this is exact.
    """

    mean: Array
    m2: Array
    count: float = 0.0

    @staticmethod
    def of(shape: tuple[int, ...]) -> "RunningMoments":
        """Moments of no rows of a shape."""
        return RunningMoments(np.zeros(shape), np.zeros(shape))

    def update(self, rows: Array) -> None:
        """Takes rows [n, ...] in."""
        n = len(rows)
        if n == 0:
            return
        rows = rows.astype(np.float64)
        mean = rows.mean(axis=0)
        total = self.count + n
        away = mean - self.mean
        self.mean = self.mean + away * (n / total)
        squares = ((rows - mean) ** 2).sum(axis=0)
        self.m2 = self.m2 + squares + away**2 * (self.count * n / total)
        self.count = total

    def variance(self) -> Array:
        """Sum of squared deviations over the count; 1 before anything was seen."""
        return self.m2 / self.count if self.count else np.ones_like(self.m2)
