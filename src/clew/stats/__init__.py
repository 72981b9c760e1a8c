"""Statistics over a few seeds: intervals, tests, aggregates and sample sizes, on NumPy arrays.

Scores are one number for each seed, or an array `[seeds, tasks]`. Every function that draws random
numbers takes a `seed`, so the same scores always give the same results.
"""

from clew.stats.aggregates import (
    Spread,
    interquartile_mean,
    mean_and_deviation,
    mean_of_tasks,
    median_of_tasks,
    optimality_gap,
)
from clew.stats.comparisons import (
    Comparison,
    Equivalence,
    equivalence_test,
    fisher_test,
    holm,
    paired_test,
    welch_from_spreads,
    welch_test,
)
from clew.stats.distributions import (
    Profile,
    Ranks,
    performance_profile,
    probability_of_improvement,
    ranked_scores,
)
from clew.stats.intervals import Interval, bootstrap_interval, stratified_interval, wilson_interval
from clew.stats.power import SeedsNeeded, detectable_difference, seeds_needed, welch_power

__all__ = [
    "Comparison",
    "Equivalence",
    "Interval",
    "Profile",
    "Ranks",
    "SeedsNeeded",
    "Spread",
    "bootstrap_interval",
    "detectable_difference",
    "equivalence_test",
    "fisher_test",
    "holm",
    "interquartile_mean",
    "mean_and_deviation",
    "mean_of_tasks",
    "median_of_tasks",
    "optimality_gap",
    "paired_test",
    "performance_profile",
    "probability_of_improvement",
    "ranked_scores",
    "seeds_needed",
    "stratified_interval",
    "welch_from_spreads",
    "welch_power",
    "welch_test",
    "wilson_interval",
]
