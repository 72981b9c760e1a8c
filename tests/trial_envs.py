"""Gymnasium environments whose observations show the draw, for tests of trials."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Drawing(gymnasium.Env):
    """Observes (draw, step, noise); has two steps, whose rewards are the draw and 1.

    It terminates if the draw is even, and is truncated if it is odd.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.drawn, self.time, self.options = 0, 0, []

    def seen(self) -> Any:
        """The present observation."""
        return np.array([self.drawn, self.time, self.np_random.random()], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Draws a number."""
        super().reset(seed=seed)
        self.drawn, self.time = int(self.np_random.integers(1000)), 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        self.time += 1
        over, even = self.time == 2, self.drawn % 2 == 0
        reward = 1.0 if over else float(self.drawn)
        return self.seen(), reward, over and even, over and not even, {}


class Keeping(Drawing):
    """Knows about trials: it keeps its draw, and its noise continues."""

    metadata = {"trials": True}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Draws a number for a new trial."""
        kept = self.drawn
        answer = super().reset(seed=seed)
        if options["new_trial"]:
            return answer
        self.drawn = kept
        return self.seen(), {}
