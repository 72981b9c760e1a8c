"""Environments with typical mistakes of beginners."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Nothing:
    """Has no base class."""


class Spaceless(gymnasium.Env):
    """Declares neither observations nor actions."""


class Numbered(gymnasium.Env):
    """Declares the number of actions instead of their space."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = 4  # pyright: ignore[reportAssignmentType]


class Raising(gymnasium.Env):
    """Raises while it is built."""

    def __init__(self) -> None:
        raise RuntimeError("no robot")


class Former(gymnasium.Env):
    """Has the `reset` of the old Gym."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The observation alone, without a seed."""
        return np.zeros(3)


class Outside(gymnasium.Env):
    """Observes 50 in a space that ends at 1."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Has Gymnasium's signature."""
        return np.full(3, 50.0), {}


class Rewarding(Outside):
    """Rewards with arrays of one number."""

    def step(self, action: Any) -> Any:
        """Earns 1."""
        return np.zeros(3), np.ones(1), False, False, {}


def forgotten() -> None:
    """Returns nothing."""


nothing = Nothing()
