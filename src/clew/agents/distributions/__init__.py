"""Distributions over actions, by the space that an environment declares."""

from typing import Any

import numpy as np
from gymnasium import spaces

from clew.agents.distributions.base import Distribution
from clew.agents.distributions.continuous import (
    DEVIATIONS,
    Bounds,
    DiagonalGaussian,
    Gaussian,
    TanhGaussian,
)
from clew.agents.distributions.discrete import Categorical, MultiBinary, MultiCategorical
from clew.errors import UserError, require_choice

__all__ = [
    "CONTINUOUS",
    "DEVIATIONS",
    "Bounds",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "Gaussian",
    "MultiBinary",
    "MultiCategorical",
    "TanhGaussian",
    "make_distribution",
]

CONTINUOUS = {"gaussian": DiagonalGaussian, "tanh": TanhGaussian}
"""Distributions over the actions of a Box, by their name in the settings."""

EXPECTED = "Discrete, MultiDiscrete, MultiBinary or a Box of floating-point numbers"


def make_distribution(
    action_space: spaces.Space[Any],
    *,
    continuous: str = "gaussian",
    log_std: str = "free",
    initial_log_std: float = 0.0,
    log_std_bounds: tuple[float, float] = (-5.0, 2.0),
    noise_steps: int = 1,
) -> Distribution:
    """The distribution over the actions of a space.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, or a Box of floating-point numbers.
        continuous: for a Box, gaussian (clipped to its limits) or tanh (squashed into them).
        log_std: for a Box, free, a standard deviation that does not depend on the observation, or
            head, an output of the actor's head.
        initial_log_std: for a Box, the log standard deviation before training.
        log_std_bounds: for a Box, lower and upper bound of the log standard deviation.
        noise_steps: for a Box, the number of steps that share the same noise.

    Raises:
        UserError: for another space, an empty one, a Box of integers, infinite limits with tanh, or
            an unknown setting.
    """
    require_choice("continuous", continuous, CONTINUOUS)
    dtype = str(action_space.dtype)
    if isinstance(action_space, spaces.Discrete):
        n, start = int(action_space.n), int(action_space.start)
        _require_representable(action_space, start, start + n - 1)
        return Categorical(n, start, dtype=dtype)
    if isinstance(action_space, spaces.MultiDiscrete):
        start, last = action_space.start, action_space.start + (action_space.nvec - 1)
        if action_space.nvec.size:
            _require_representable(action_space, int(start.min()), int(last.max()))
        return MultiCategorical(action_space.nvec, start, dtype=dtype)
    if isinstance(action_space, spaces.MultiBinary):
        return MultiBinary(action_space.shape, dtype=dtype)
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
        return CONTINUOUS[continuous](
            action_space.shape,
            action_space.low,
            action_space.high,
            dtype=dtype,
            log_std=log_std,
            initial_log_std=initial_log_std,
            log_std_bounds=log_std_bounds,
            noise_steps=noise_steps,
        )
    raise UserError(f"the action space {_line(action_space)} is not supported; expected {EXPECTED}")


def _require_representable(space: spaces.Space[Any], first: int, last: int) -> None:
    """Raises `UserError` unless every action is a 32-bit integer."""
    limits = np.iinfo(np.int32)
    if first < limits.min or last > limits.max:
        raise UserError(
            f"actions must be between {limits.min} and {limits.max}, got {first} to {last} in "
            f"{_line(space)}"
        )


def _line(space: spaces.Space[Any]) -> str:
    """A space in one short line."""
    line = " ".join(str(space).split())
    return line if len(line) <= 120 else f"{line[:117]}..."
