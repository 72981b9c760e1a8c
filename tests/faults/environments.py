"""A small environment that fails once, when a file says so."""

import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 5


class Faulty(gymnasium.Env):
    """Episodes of five steps that observe a category and a byte, and fail when armed.

    Args:
        armed: a file with the kind of trouble and the step of the process at which it comes; it is
            removed first, so that trouble comes once.
        seconds: duration of a step.
    """

    observation_space = spaces.Dict(
        {"category": spaces.Discrete(LENGTH + 1), "byte": spaces.Box(0, 255, (2,), np.uint8)}
    )
    action_space = spaces.Discrete(2)

    def __init__(self, armed: str = "", seconds: float = 0.0):
        self._armed, self._seconds = armed, seconds
        self._time, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode."""
        super().reset(seed=seed)
        self._time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
        """Takes a step; the action 1 is rewarded."""
        time.sleep(self._seconds)
        self._time += 1
        self._steps += 1
        observation, reward, over = self._observation(), float(action), self._time == LENGTH
        trouble = self._trouble()
        if trouble == "nan reward":
            reward = float("nan")
        if trouble == "category":
            observation["category"] = np.int64(LENGTH + 7)
        if trouble == "fraction":
            observation["byte"] = np.array([0.5, 1.0])
        flag: Any = float("nan") if trouble == "nan flag" else over
        return observation, reward, flag, False, {}

    def close(self) -> None:
        """Closes, or hangs a while."""
        if self._trouble(closing=True) == "close":
            time.sleep(60)

    def _observation(self) -> dict[str, Any]:
        byte = np.array([self._time, self._steps % 256], np.uint8)
        return {"category": np.int64(self._time), "byte": byte}

    def _trouble(self, *, closing: bool = False) -> str:
        """Makes the armed trouble, or returns its name if it changes values."""
        if not (self._armed and os.path.exists(self._armed)):
            return ""
        try:
            with open(self._armed, encoding="utf-8") as file:
                name, at = file.read().rsplit(" ", 1)
            if (name == "close") != closing or self._steps < int(at):
                return ""
            os.unlink(self._armed)
        except FileNotFoundError:
            return ""  # another environment took it first
        if name == "raise":
            raise RuntimeError("[/red] 100% broken")
        if name == "exit":
            sys.exit(3)
        if name == "interrupt":
            raise KeyboardInterrupt
        if name == "die":
            os._exit(3)
        if name == "hang":
            time.sleep(600)
        if name == "chdir":
            os.chdir("/")
        return name
