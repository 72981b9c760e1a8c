"""Environments whose every observation says where it belongs, and some that fail."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

LENGTHS = (3, 1, 4, 2, 1, 5)
ENDS = ("terminated", "truncated", "both", "truncated", "terminated", "truncated")


class Labelled(gymnasium.Env):
    """Observes (episode, step, id); episode e has the e-th of `lengths` and ends as `ends` says.

    The reward of a step is 10 episode + step, so that a sum shows its terms. The id is the given
    number, or the seed of the first reset.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)
    built = 0
    """How many were built in this process."""

    def __init__(
        self,
        number: int = -1,
        lengths: Sequence[int] = LENGTHS,
        ends: Sequence[str] = ENDS,
        offset: int = 0,
    ):
        Labelled.built += 1
        self.number, self.lengths, self.ends = number, lengths, ends
        self.episode, self.time = offset - 1, 0
        self.running = False

    def label(self) -> Any:
        """The present observation."""
        return np.array([self.episode, self.time, self.number], np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens the next episode."""
        if seed is not None and self.number < 0:
            self.number = seed % 65536
        self.episode, self.time, self.running = self.episode + 1, 0, True
        return self.label(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        assert self.running, "a step after the end"
        self.time += 1
        place = self.episode % len(self.lengths)
        over = self.time == self.lengths[place]
        self.running = not over
        terminated = over and self.ends[place] in ("terminated", "both")
        truncated = over and self.ends[place] in ("truncated", "both")
        return self.label(), 10.0 * self.episode + self.time, terminated, truncated, {}


class Drawn(Labelled):
    """The same episodes with random observations; each environment starts with another episode."""

    def label(self) -> Any:
        """Three numbers that are always the same here."""
        place = (self.number, self.episode, self.time)
        return np.random.default_rng(place).standard_normal(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens the next episode; a seed's first one may be of any kind."""
        if seed is not None:
            self.episode = seed % len(self.lengths)
        return super().reset(seed=seed, options=options)


class DictLabelled(Labelled):
    """The same labels in a Dict with a nested one, and an unusable text."""

    observation_space = spaces.Dict(
        {
            "episode": spaces.Discrete(1000, start=-500),
            "more": spaces.Dict({"step": spaces.Box(0, 255, (1,), np.uint8)}),
            "number": spaces.Box(-np.inf, np.inf, (), np.float64),
            "words": spaces.Text(10),
        }
    )

    def label(self) -> Any:
        """The present observation."""
        return {
            "episode": np.int64(self.episode - 500),
            "more": {"step": np.array([self.time], np.uint8)},
            "number": np.float64(self.number),
            "words": "hello",
        }


class Pictured(Labelled):
    """Shows the step as a shade of red."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None, **options: Any):
        super().__init__(**options)
        self.render_mode = render_mode

    def render(self) -> Any:
        """640 pixels wide, 320 high."""
        picture = np.zeros((320, 640, 3), np.uint8)
        picture[..., 0] = 20 * self.time
        return picture


class Blind(Labelled):
    """Has a render mode that does not exist."""

    def __init__(self, render_mode: str | None = None):
        super().__init__()


class Misfit(DictLabelled):
    """Returns a value outside of its spaces, in the second step with an action 1.

    Args:
        what: "category", "fraction", "large" (for uint8), "terminated" or "truncated" (NaN).
    """

    def __init__(self, what: str):
        super().__init__(lengths=(9,))
        self.what = what

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Trouble if the action is 1, otherwise a normal step."""
        label, reward, terminated, truncated, info = super().step(action)
        if action == 1 and self.time == 2:
            if self.what == "category":
                label["episode"] = np.int64(500)
            if self.what in ("fraction", "large"):
                label["more"]["step"] = np.array([0.5 if self.what == "fraction" else 256])
            terminated = np.nan if self.what == "terminated" else terminated
            truncated = np.nan if self.what == "truncated" else truncated
        return label, reward, terminated, truncated, info


class BadlyClosed(Labelled):
    """Raises, ends the process or hangs when it is closed."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how

    def close(self) -> None:
        """Fails to close."""
        if self.how == "exit":
            sys.exit(3)
        if self.how == "raise":
            raise RuntimeError("100% open")
        time.sleep(60)


class Troubled(Labelled):
    """Fails in step `at` of an episode, if the action is 1.

    Args:
        trouble: "raise", "exit", "interrupt" (KeyboardInterrupt), "unpicklable", "hang" (except for
            a kill), "spin" (holding the interpreter's lock), "sleep", "die", "nan observation",
            "inf reward", "shape", "nothing" (as observation), "no reward", "four" (values), "reset"
            (raises in reset) or "build" (raises when built).
        at: step of the first episode in which it happens.
        only: a file; there is trouble while it exists. "" for always.
        end: episodes have one step and end this way; "" for nine steps and a termination.
    """

    def __init__(self, trouble: str, at: int = 2, only: str = "", end: str = ""):
        super().__init__(lengths=(1 if end else 9,), ends=(end or "terminated",))
        self.trouble, self.at, self.only = trouble, at, only
        if trouble == "build" and self.happens():
            raise RuntimeError("100% out of bricks")

    def happens(self) -> bool:
        """Whether there is trouble left."""
        return not self.only or os.path.exists(self.only)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens the next episode."""
        if self.trouble == "reset" and self.happens():
            raise RuntimeError("100% out of mazes")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Trouble if the action is 1, otherwise a normal step."""
        label, reward, terminated, truncated, info = super().step(action)
        if action == 1 and self.time == self.at and self.happens():
            label, reward = self.make_trouble(label, reward)
            if self.trouble == "four":
                return label, reward, terminated, info  # pyright: ignore
        return label, reward, terminated, truncated, info

    def make_trouble(self, label: Any, reward: Any) -> tuple[Any, Any]:
        """Raises, hangs, dies or corrupts the observation or the reward."""
        if self.trouble == "raise":
            raise RuntimeError("100% broken")
        if self.trouble == "exit":
            sys.exit("no more mazes")
        if self.trouble == "interrupt":
            raise KeyboardInterrupt
        if self.trouble == "unpicklable":
            raise type("Local", (Exception,), {})("cannot be pickled")
        if self.trouble == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.trouble in ("hang", "sleep"):
            time.sleep(60)
        if self.trouble == "spin":
            re.match(r"(x+x+)+y", 60 * "x")  # C code that holds the interpreter's lock
        if self.trouble == "die":
            os._exit(3)
        if self.trouble == "nan observation":
            label[1] = np.nan
        if self.trouble == "shape":
            label = label[:2]
        if self.trouble == "nothing":
            label = None
        if self.trouble == "no reward":
            reward = "nothing"
        return label, np.inf if self.trouble == "inf reward" else reward


def makers(count: int, kind: type[Labelled] = Labelled) -> list[Callable[[], gymnasium.Env]]:
    """Functions that build `count` environments, each starting with another episode."""
    return [_Maker(kind, number) for number in range(count)]


class _Maker:
    def __init__(self, kind: type[Labelled], number: int):
        self.kind, self.number = kind, number

    def __call__(self) -> gymnasium.Env:
        return self.kind(self.number, offset=self.number)


def together(num_envs: int, mode: str = "SameStep", processes: bool = False) -> VectorEnv:
    """A factory of vector environments."""
    if processes:
        context = "forkserver"
        return AsyncVectorEnv(makers(num_envs), context=context, autoreset_mode=AutoresetMode(mode))
    return SyncVectorEnv(makers(num_envs), autoreset_mode=AutoresetMode(mode))


def no_environment() -> str:
    """A factory that returns something else."""
    return "maze"


def hidden_vector() -> VectorEnv:
    """A factory of vector environments without the parameter that declares it."""
    return together(2)


class Strange(Labelled):
    """Has the given spaces."""

    def __init__(self, observation: Any = None, action: Any = None):
        super().__init__()
        if observation is not None:
            self.observation_space = observation
        if action is not None:
            self.action_space = action


class Echo(Strange):
    """Observes the action that it was given."""

    heard: Any = np.zeros(3)

    def label(self) -> Any:
        """The last action, its numbers repeated."""
        return self.heard

    def step(self, action: Any) -> Any:
        """Remembers the action."""
        assert self.action_space.contains(action), action
        self.heard = np.resize(np.asarray(action, np.float64), 3)
        return super().step(action)


def few(num_envs: int) -> int:
    """A factory of vector environments that returns none."""
    return num_envs


def too_many(num_envs: int) -> VectorEnv:
    """A factory that makes more environments than requested."""
    return together(num_envs + 1)


class Scripted(Troubled):
    """Has the trouble that is written in a file, once for each time it is written.

    Args:
        script: the file; the environment that reads it renames it first, so it is read once.
    """

    def __init__(self, script: str):
        super().__init__("", at=2, only=script)

    def happens(self) -> bool:
        """Whether there is trouble, which then belongs to this environment."""
        mine = f"{self.only}-{os.getpid()}"
        try:
            os.rename(self.only, mine)
        except FileNotFoundError:
            return False
        with open(mine) as file:
            self.trouble = file.read()
        return True
