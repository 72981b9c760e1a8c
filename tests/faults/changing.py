"""Environments that change their process, or leave something behind in it."""

import os
import threading
import time
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

LENGTH = 5


def leave_a_thread() -> None:
    """Starts a thread that would run for ten minutes, and for which Python waits."""
    threading.Thread(target=time.sleep, args=(600,), name="left").start()


def leave_a_fork() -> None:
    """Starts a fork that keeps this process's files open."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


CHANGES = {
    "nothing": lambda: None,
    "chdir": lambda: os.chdir("/"),
    "x64": lambda: jax.config.update("jax_enable_x64", True),
    "exit": lambda: os._exit(0),
    "thread": leave_a_thread,
    "fork": leave_a_fork,
}
"""Actions of an environment, once per process."""


class Changing(gymnasium.Env):
    """Episodes of five steps that reward the action 1.

    Args:
        what: one of `CHANGES`.
        when: "build", "reset", "step" or "close".
        once: a folder for a file that records that it has been done; "" does it every time.
    """

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, what: str = "nothing", when: str = "build", once: str = ""):
        self._what, self._when, self._once = what, when, once
        self._time = 0
        self._change("build")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode."""
        super().reset(seed=seed)
        self._time = 0
        self._change("reset")
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step; `info` has numbers and other values."""
        self._time += 1
        self._change("step")
        over = self._time == LENGTH
        info = {"success": bool(action), "distance": np.float32(1 - action), "name": "changing"}
        return self._observation(), float(action), over, False, info | ({"late": 1} if over else {})

    def close(self) -> None:
        """Closes."""
        self._change("close")

    def _observation(self) -> np.ndarray:
        return np.array([self._time / LENGTH, 1.0], np.float32)

    def _change(self, when: str) -> None:
        if when != self._when:
            return
        if self._once:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        CHANGES[self._what]()
