"""Distributions over actions, by the space that an environment declares."""

from clew.agents.distributions.base import Distribution
from clew.agents.distributions.bounds import Bounds
from clew.agents.distributions.continuous import DEVIATIONS, DiagonalGaussian
from clew.agents.distributions.discrete import Categorical, MultiBinary, MultiCategorical
from clew.agents.distributions.make import CONTINUOUS, make_distribution
from clew.agents.distributions.squashed import TanhGaussian

__all__ = [
    "CONTINUOUS",
    "DEVIATIONS",
    "Bounds",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "MultiBinary",
    "MultiCategorical",
    "TanhGaussian",
    "make_distribution",
]
