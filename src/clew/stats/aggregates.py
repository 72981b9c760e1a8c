"""Aggregates over seeds and tasks; their intervals are in `clew.stats.intervals`."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.stats.checks import ROUNDING, Samples, require_samples, require_tables

Tables = Float[np.ndarray, "*batch seeds tasks"]
Aggregates = Float[np.ndarray, "*batch"]


class Spread(NamedTuple):
    """Mean and standard deviation over seeds, in the unit of the data, and the number of seeds."""

    mean: float
    deviation: float
    seeds: int

    def __format__(self, spec: str) -> str:
        """Writes `mean ± deviation`, each number by `spec` (three decimals by default)."""
        spec = spec or ".3f"
        return f"{self.mean:{spec}} ± {self.deviation:{spec}}"


def mean_and_deviation(values: Samples, *, magnitude: float | None = None) -> Spread:
    """Mean and standard deviation of independent values, such as the results of seeds.

        deviation^2 = sum_i (x_i - mean)^2 / (n - 1)

    The divisor is n - 1, as in the published tables of this field that show it (a table with 0.660
    +- 0.589 over three returns of at most 1 cannot have divided by n). Values that differ by no
    more than rounding have a deviation of exactly 0. The deviation describes the spread of the
    seeds; it is not an interval for the mean.

    Args:
        values: one number for each seed, finite, at least two.
        magnitude: if the values are differences, the size of the numbers that were subtracted,
            which determines their rounding; by default the largest of the values.

    Raises:
        UserError: for fewer than two values, another shape, or a value that is not finite.
    """
    data = require_samples("values", values)
    # From the first value, so that equal values have no deviation and their own mean, exactly.
    moved = data - data[0]
    mean = float(data[0] + moved.mean())
    farthest = float(np.max(np.abs(moved)))
    size = float(np.max(np.abs(data))) if magnitude is None else magnitude
    if farthest <= ROUNDING * size:
        return Spread(mean, 0.0, data.size)
    # In units of the farthest value: the squares of tiny numbers must not vanish.
    return Spread(mean, farthest * float((moved / farthest).std(ddof=1)), data.size)


def mean_of_tasks(scores: Tables) -> Aggregates:
    """Mean over seeds and tasks, every task with the same weight.

    Args:
        scores: `[..., seeds, tasks]`, finite; leading axes are kept.

    Raises:
        UserError: for fewer axes, an empty array, or a score that is not finite.
    """
    return require_tables(scores).mean(axis=(-2, -1))


def median_of_tasks(scores: Tables) -> Aggregates:
    """Median over the tasks of the means over the seeds.

    Half of the tasks do not influence it; for few tasks prefer `interquartile_mean`.

    Args:
        scores: `[..., seeds, tasks]`, finite; leading axes are kept.

    Raises:
        UserError: for fewer axes, an empty array, or a score that is not finite.
    """
    return np.median(require_tables(scores).mean(axis=-2), axis=-1)


def interquartile_mean(scores: Tables) -> Aggregates:
    """Mean of the middle half of all runs, over seeds and tasks together.

    Of N = seeds * tasks scores, the floor(N / 4) lowest and as many of the highest are left out.
    With three seeds of one task none is left out: the result is their mean.

    Args:
        scores: `[..., seeds, tasks]`, finite and comparable across tasks (normalised); leading
            axes are kept.

    Raises:
        UserError: for fewer axes, an empty array, or a score that is not finite.

    Source:
        Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical
        precipice", section 4.3.
    """
    data = require_tables(scores)
    runs = data.reshape(*data.shape[:-2], -1)
    cut = runs.shape[-1] // 4
    if cut:
        runs = np.partition(runs, (cut, runs.shape[-1] - cut - 1), axis=-1)
    return runs[..., cut : runs.shape[-1] - cut].mean(axis=-1)


def optimality_gap(scores: Tables, target: float = 1.0) -> Aggregates:
    """How far runs stay below a target on average; scores above the target count as the target.

        gap = target - mean(min(score, target))

    Args:
        scores: `[..., seeds, tasks]`, finite; leading axes are kept.
        target: in the unit of the scores, 1 for scores normalised to the best possible.

    Raises:
        UserError: for fewer axes, an empty array, or a score or target that is not finite.

    Source:
        Agarwal et al. (2021), section 4.3.
    """
    if not math.isfinite(target):
        raise UserError(f"target must be a finite number, got {target!r}")
    clipped = np.minimum(require_tables(scores), target)
    return target - clipped.mean(axis=(-2, -1))
