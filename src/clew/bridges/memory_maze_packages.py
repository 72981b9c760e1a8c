"""Loads the packages of Memory Maze, and says what to install if one is missing."""

import importlib
import importlib.util
import os
import re
import sys
import traceback
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import gymnasium

from clew.errors import UserError

INSTALL = "pip install 'clew[memory-maze]'"
PACKAGES = ("memory_maze", "dm_control", "mujoco", "labmaze")
LAST_PYTHON = (3, 12)
FIRST_MUJOCO, BROKEN_MUJOCO = (3, 17), (4, 0)
APT = "on Debian and Ubuntu: apt-get install -y --no-install-recommends"
REMEDIES = {
    "egl": f"{APT} libegl1 libegl-mesa0 libgl1-mesa-dri libopengl0",
    "osmesa": f"{APT} libosmesa6",
    "glfw": "glfw needs a screen; MUJOCO_GL=egl draws without one",
}
DRAWING = "_make_rendering_contexts"  # dm_control's function that makes drawing contexts
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
STAND_IN = ("gym", "gym.envs", "gym.envs.registration", "gym.spaces")


def load_tasks() -> Any:
    """The module `memory_maze.tasks`, imported without side effects on other packages.

    The package registers its tasks with the old `gym`, and cannot be imported without it. If `gym`
    is not installed, an empty stand-in takes its place during the import, so that nothing is
    registered anywhere; otherwise the package finds the real one. `dm_control` also makes Python
    show every deprecation warning of every package; the filters are restored.

    MUJOCO_GL, which selects how pictures are drawn, becomes "egl" on Linux unless it is set, which
    needs no screen, and "glfw" elsewhere.

    Raises:
        UserError: a package or a system library is missing or has the wrong version; the message
            says what to install.
    """
    require_packages()
    os.environ.setdefault("MUJOCO_GL", "egl" if sys.platform == "linux" else "glfw")
    _require_screen()
    with warnings.catch_warnings(), _stand_in_for_gym():
        try:
            importlib.import_module("dm_control._render")
        except ModuleNotFoundError as error:
            raise _missing([str(error.name)]) from error
        except Exception as error:  # PyOpenGL raises many types if a library is missing
            raise _cannot_draw(error) from error
        try:
            return importlib.import_module("memory_maze.tasks")
        except ModuleNotFoundError as error:
            raise _missing([str(error.name)]) from error


def _require_screen() -> None:
    """Raises if there is no screen, since GLFW would end the process instead of raising."""
    if sys.platform != "linux" or os.environ["MUJOCO_GL"].lower() != "glfw":
        return
    if not any(map(os.environ.get, SCREENS)):
        raise _cannot_draw(RuntimeError(f"neither {' nor '.join(SCREENS)} is set"))


def require_packages(python: tuple[int, int] | None = None) -> None:
    """Raises `UserError` unless the packages are installed, in versions that work together.

    Args:
        python: a version of Python other than the running one.
    """
    python = python or sys.version_info[:2]
    missing = [name for name in PACKAGES if not _is_there(name)]
    if "labmaze" in missing and python > LAST_PYTHON:
        raise UserError(
            f"Memory Maze needs labmaze, which has no wheel for Python {python[0]}.{python[1]}: "
            f"use Python 3.11 or 3.12, and there {INSTALL}"
        )
    if missing:
        raise _missing(missing)
    try:
        found = metadata.version("mujoco")
    except metadata.PackageNotFoundError:  # importable, but installed without metadata
        return
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", found)[:2])
    if not FIRST_MUJOCO <= numbers < BROKEN_MUJOCO:
        raise UserError(
            f"Memory Maze works with mujoco 3.17 up to, not including, 4 (no dm_control works with "
            f"4 yet), and mujoco {found} is installed: pip install 'mujoco>=3.17,<4'"
        )


def require_drawing(error: Exception) -> None:
    """Raises `UserError` if `error` came from making a drawing context, as without a screen."""
    # Found in the traceback, not by a second try: after such an error MuJoCo may abort the process.
    if DRAWING in (frame.name for frame in traceback.extract_tb(error.__traceback__)):
        raise _cannot_draw(error) from error


def _cannot_draw(error: Exception) -> UserError:
    way = os.environ.get("MUJOCO_GL", "")
    remedy = REMEDIES.get(way, "MUJOCO_GL is egl (needs no screen), osmesa or glfw")
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return UserError(f"Memory Maze cannot draw with MUJOCO_GL={way} ({reason}); {remedy}")


def _is_there(name: str) -> bool:
    return sys.modules.get(name) is not None or importlib.util.find_spec(name) is not None


def _missing(names: list[str]) -> UserError:
    hidden = sys.modules.get(names[0].split(".")[0])
    if hidden is not None and not hasattr(hidden, "__path__"):
        file = getattr(hidden, "__file__", None)
        return UserError(f"{file} hides the package {hidden.__name__}: give that file another name")
    return UserError(f"Memory Maze needs {', '.join(names)}, not installed here: {INSTALL}")


@contextmanager
def _stand_in_for_gym() -> Iterator[None]:
    if _is_there("gym"):
        yield
        return
    modules = {name: types.ModuleType(name) for name in STAND_IN}
    modules["gym"].__dict__.update(
        Env=gymnasium.Env, Space=gymnasium.Space, spaces=modules["gym.spaces"]
    )
    modules["gym.envs.registration"].__dict__["register"] = lambda **settings: None
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in STAND_IN:
            del sys.modules[name]
