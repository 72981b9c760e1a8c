"""Means of a model over settings, and notes on missing seeds or settings."""

import math
from collections.abc import Sequence

import numpy as np

from clew.lab.studies.report.data import StudyData
from clew.stats import Interval, mean_of_tasks, stratified_interval


def mean_score(data: StudyData, model: str, settings: Sequence[str]) -> float:
    """The mean over settings of the means over seeds; the model is `begun` in all of them."""
    columns = [data.values(model, name) for name in settings]
    if len({column.size for column in columns}) == 1:  # rounded as in `mean_of_tasks`
        return float(np.stack(columns, axis=1).mean())
    return float(np.mean([column.mean() for column in columns]))


def mean_interval(
    data: StudyData, model: str, settings: Sequence[str], resamples: int = 9999
) -> Interval:
    """`mean_score` with its 95% interval, each setting resampled with its own seeds.

    If a setting has a single seed, its spread is unknown, and the ends are NaN.
    """
    columns = [data.values(model, name) for name in settings]
    sizes = {column.size for column in columns}
    if 1 in sizes:
        return Interval(mean_score(data, model, settings), math.nan, math.nan)
    if len(sizes) == 1:
        return stratified_interval(np.stack(columns, axis=1), mean_of_tasks, resamples=resamples)
    rng = np.random.default_rng(0)
    drawn = [c[rng.integers(0, c.size, (resamples, c.size))].mean(axis=1) for c in columns]
    low, high = np.quantile(np.mean(drawn, axis=0), (0.025, 0.975))
    return Interval(mean_score(data, model, settings), float(low), float(high))


def lacks(
    data: StudyData, model: str, settings: Sequence[str], wanted: Sequence[str]
) -> tuple[str, ...]:
    """Lines below a mean, such as "3 of 5 seeds", if it lacks seeds or wanted settings."""
    few = f"{len(settings)} of {len(wanted)} settings" if len(settings) < len(wanted) else ""
    return tuple(line for line in (few, some_seeds(data, model, settings)) if line)


def some_seeds(data: StudyData, model: str, settings: Sequence[str]) -> str:
    """How many seeds of a model have a score in some settings; empty if all have one."""
    counts = [data.values(model, name).size for name in settings]
    fewest, most, all_of_them = min(counts), max(counts), len(data.seeds)
    if fewest >= all_of_them:
        return ""
    some = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return f"{some} of {all_of_them} seeds"
