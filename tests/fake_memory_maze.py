"""Packages that stand in for Memory Maze's, as far as `clew.bridges.memory_maze` uses them."""

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

Write = Callable[..., None]

MEMORY_MAZE = """
import gym
from gym import spaces
from gym.envs.registration import register

class GymWrapper(gym.Env):
    pass

register(id="MemoryMaze-9x9-v0", entry_point=GymWrapper)
from memory_maze import tasks
"""

TARGETS = """
class TargetSphere:
    _activated = False
    _specific_collision_geom_ids = None

    def _update_activation(self, physics):
        raise AssertionError("the slow way")
"""

TASKS = """
import warnings
import numpy as np
from absl import logging
from dm_control import textures as labmaze_textures
from dm_control.locomotion.props.target_sphere import TargetSphere

warnings.simplefilter("always", DeprecationWarning)

class MemoryMazeTask:
    def __init__(self):
        self._create_targets()

    def _create_targets(self):
        self._targets = [TargetSphere()]

class TimeStep:
    discount = 1.0

    def __init__(self, observation, reward, last):
        self.observation, self.reward, self._last = observation, reward, last

    def last(self):
        return self._last

class Task:
    def __init__(self, size, targets, steps, walls, **options):
        self.size, self.targets, self.steps, self.options = size, targets, steps, options
        self.walls, self.task, self.resets, self.closed = walls, MemoryMazeTask(), 0, False

    def reset(self):
        logging.warning("Cannot set velocity on Entity with no free joint.")
        logging.warning("something else")
        self.resets += 1
        self.time = 0
        return self._show(None)

    def step(self, action):
        self.time += 1
        return self._show(1.0 if action == 1 else 0.0)

    def _show(self, reward):
        pixels = self.options["camera_resolution"]
        first = self.options["seed"] + 10 * self.resets
        image = np.full((pixels, pixels, 3), first % 256, np.uint8)
        image[0, 0, 0] = self.time % 256
        shown = {"image": image, "target_color": np.ones(3)}
        two, many = np.zeros(2), np.zeros((self.targets, 2))
        if self.options["global_observables"]:
            shown |= dict(agent_pos=two, agent_dir=two, target_pos=two, target_vec=two)
            shown |= dict(targets_pos=many, targets_vec=many)
            shown |= dict(maze_layout=np.ones((self.size, self.size), np.uint8))
        return TimeStep(shown, reward, self.time == self.steps)

    def close(self):
        assert not self.closed
        self.closed = True

def memory_maze_9x9(**options):
    return _memory_maze(9, 3, 250, **options)

def memory_maze_11x11(**options):
    return _memory_maze(11, 4, 500, **options)

def memory_maze_13x13(**options):
    return _memory_maze(13, 5, 750, **options)

def memory_maze_15x15(**options):
    return _memory_maze(15, 6, 1000, **options)

def _memory_maze(size, targets, seconds, control_freq=4.0, seed=None, **options):
    if options["good_visibility"]:
        _make_rendering_contexts()
    if options["top_camera"]:
        raise RuntimeError("another fault")
    walls = {str(i): labmaze_textures.WallTextures("style_01") for i in range(10)}
    made = Task(size, targets, seconds * control_freq, walls, seed=seed, **options)
    made.task = MemoryMazeTask()
    return made

def _make_rendering_contexts():
    raise RuntimeError("no screen")
"""

SOURCES = {
    "labmaze.py": "",
    "mujoco.py": "",
    "dm_control/__init__.py": "",
    "dm_control/_render.py": "",
    "dm_control/textures.py": "class WallTextures:\n    def __init__(self, style): pass\n",
    "dm_control/locomotion/__init__.py": "",
    "dm_control/locomotion/props/__init__.py": "",
    "dm_control/locomotion/props/target_sphere.py": TARGETS,
    "memory_maze/__init__.py": MEMORY_MAZE,
    "memory_maze/tasks.py": TASKS,
}
ROOTS = ("labmaze", "mujoco", "dm_control", "memory_maze", "gym")


def write(folder: Path, **changed: str) -> None:
    """Writes the packages, with other text for some of their files, named without folders."""
    for path, source in SOURCES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changed.get(file.stem, source))


def forget(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Removes them from the imported modules; with `monkeypatch` they return after the test."""
    for name in [n for n in sys.modules if n.split(".")[0] in ROOTS]:
        if monkeypatch is None:
            del sys.modules[name]
        else:
            monkeypatch.delitem(sys.modules, name)
    from clew.bridges import memory_maze

    memory_maze._quick_task_class.cache_clear()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Packages that stand in for Memory Maze's; call it to write them with other text."""
    write(tmp_path)
    forget(monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gym", None)  # marks it as not installed
    monkeypatch.setattr(metadata, "version", {"mujoco": "3.17.0"}.__getitem__)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    yield lambda **changed: write(tmp_path, **changed)
    forget()
