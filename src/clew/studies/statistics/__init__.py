"""What a few seeds say, and how surely: intervals, comparisons and aggregates on NumPy arrays.

Scores are one number for each seed, or an array `[seeds, tasks]`. Every function that draws
random numbers takes a `seed`, so that the same scores always give the same numbers.
"""

from clew.studies.statistics.intervals import Interval, bootstrap_interval, wilson_interval

__all__ = [
    "Interval",
    "bootstrap_interval",
    "wilson_interval",
]
