"""Memory Maze's own tasks, as shipped or four times as fast with the same pictures and rewards.

Two things in them cost most of the time and memory and change nothing that can be seen:

- After each of 50 substeps of physics every target walks through the list of contacts, element by
  element from Python, which takes some 240 us even for a single contact. `contact.geom` is the
  same list as one array of pairs of geometries, and a target is touched exactly if its geometry
  is in it.
- Ten kinds of walls get a set each of the same eight textures. One set serves them all: which
  texture a wall gets is drawn as an index into its set, and the sets have the same order.

Neither changes `dm_control` or `memory_maze` for anybody else in the process: the tasks are built
by copies of Memory Maze's functions that see other globals, and a target of ours has a class of
its own. tests/test_memory_maze.py compares every frame and reward of whole episodes.
"""

import functools
import logging
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clew.bridges.memory_maze.packages import load_tasks, require_drawing
from clew.errors import UserError

NOISE = "Cannot set velocity on Entity with no free joint."
_drawing_processes: set[int] = set()


def build_task(size: int, seed: int, patched: bool, **options: Any) -> Any:
    """A task of Memory Maze, as a dm_env environment that shows dictionaries.

    Args:
        size: 9, 11, 13 or 15 cells a side.
        seed: of its mazes, at least 0 and below 2**32.
        patched: False builds it as shipped.
        options: of `memory_maze.tasks`' functions.

    Raises:
        UserError: something is not installed, or nothing can be drawn (see `packages.load_tasks`),
            also because this process was forked from one that has drawn.
    """
    tasks = load_tasks()
    _require_own_drawing()
    make = getattr(tasks, f"memory_maze_{size}x{size}")
    if patched:
        textures = types.SimpleNamespace(
            WallTextures=functools.cache(tasks.labmaze_textures.WallTextures)
        )
        build = _copy(
            tasks._memory_maze, labmaze_textures=textures, MemoryMazeTask=_quick_task_class()
        )
        make = _copy(make, _memory_maze=build)
    try:
        return make(seed=seed, **options)  # draws a first picture
    except Exception as error:
        require_drawing(error)
        raise


def _require_own_drawing() -> None:
    """Mesa's threads do not survive a fork, and a child that draws would wait for them for ever."""
    here = os.getpid()
    if _drawing_processes - {here}:
        raise UserError(
            "Memory Maze cannot draw in a process forked from one that has drawn: start it with "
            "'spawn' or 'forkserver' (in Gymnasium, vector_kwargs={'context': 'spawn'})"
        )
    _drawing_processes.add(here)


@contextmanager
def quiet() -> Iterator[None]:
    """Takes one warning, which tells at every reset that a ball is no free body, out of the log."""
    logger = logging.getLogger("absl")
    noise = _NoNoise()
    logger.addFilter(noise)
    try:
        yield
    finally:
        logger.removeFilter(noise)


class _NoNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != NOISE


def _copy(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """The same function, for which some of its module's names mean something else."""
    seen = {**function.__globals__, **names}
    copy = types.FunctionType(
        function.__code__, seen, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


@functools.cache
def _quick_task_class() -> type:
    from dm_control.locomotion.props import target_sphere  # pyright: ignore

    class QuickTarget(target_sphere.TargetSphere):
        def _update_activation(self, physics: Any) -> None:
            # As in the original, but for geometries that alone may touch it: there are none here.
            if not self._activated and (physics.data.ptr.contact.geom == self._geom_id).any():
                self._activated = True
                physics.bind(self._material).rgba[-1] = 0

    class QuickTask(load_tasks().MemoryMazeTask):
        def _create_targets(self, *args: Any, **settings: Any) -> None:
            super()._create_targets(*args, **settings)
            for target in self._targets:
                assert not target._specific_collision_geom_ids
                target.__class__ = QuickTarget

    return QuickTask
