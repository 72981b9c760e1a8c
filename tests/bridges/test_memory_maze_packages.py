"""Memory Maze without its packages: errors for missing ones, and how they are loaded."""

import os
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path

import gymnasium
import pytest

from clew.bridges.memory_maze import MemoryMazeEnv
from clew.bridges.memory_maze_packages import load_tasks, require_packages
from clew.errors import UserError
from fake_memory_maze import Write


@pytest.mark.parametrize("name", ["memory_maze", "dm_control", "mujoco", "labmaze"])
@pytest.mark.usefixtures("fake")
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    line = rf"^Memory Maze needs {name}, not installed here: pip install 'clew\[memory-maze\]'$"
    with pytest.raises(UserError, match=line):
        require_packages((3, 12))
    with pytest.raises(UserError, match="Memory Maze needs"):
        gymnasium.make("clew.envs.gymnasium_api:clew/MemoryMaze-9x9-v0")


@pytest.mark.usefixtures("fake")
def test_python_3_13_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    require_packages((3, 13))  # the user may have built labmaze
    monkeypatch.setitem(sys.modules, "labmaze", None)
    with pytest.raises(UserError, match="no wheel for Python 3.13: use Python 3.11 or 3.12"):
        require_packages((3, 13))


@pytest.mark.parametrize("version", ["4.0.0", "4.0.0rc1", "5.1", "3.16.2", "2.3.6"])
@pytest.mark.usefixtures("fake")
def test_a_mujoco_that_does_not_work(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    with pytest.raises(UserError, match=rf"mujoco {version} is .*pip install 'mujoco>=3.17,<4'$"):
        require_packages()


@pytest.mark.usefixtures("fake")
def test_a_mujoco_of_no_known_version_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    require_packages()


@pytest.mark.parametrize(
    ("way", "remedy"),
    [
        ("egl", "--no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri libopengl0$"),
        ("osmesa", "apt-get install -y --no-install-recommends libosmesa6$"),
        ("glfw", "needs a screen; MUJOCO_GL=egl draws without one$"),
        ("vulkan", r"MUJOCO_GL is egl \(needs no screen\), osmesa or glfw$"),
    ],
)
def test_a_missing_system_library_is_named(
    way: str, remedy: str, fake: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUJOCO_GL", way)
    monkeypatch.setenv("DISPLAY", ":0")
    fake(_render="None.eglQueryString")
    with pytest.raises(UserError, match=f"MUJOCO_GL={way} .AttributeError: .*{remedy}") as caught:
        load_tasks()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("fake")
def test_glfw_without_a_screen_is_refused_before_it_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    says = "MUJOCO_GL=glfw .RuntimeError: neither DISPLAY nor WAYLAND_DISPLAY is set.; glfw needs"
    with pytest.raises(UserError, match=says):
        load_tasks()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    load_tasks()


@pytest.mark.parametrize("file", ["_render", "tasks"])
def test_a_package_below_that_is_missing_is_named(file: str, fake: Write) -> None:
    fake(**{file: "import lost_below"})
    with pytest.raises(UserError, match="Memory Maze needs lost_below, not installed"):
        load_tasks()


@pytest.mark.usefixtures("fake")
def test_a_script_of_the_packages_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "memory_maze.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "scripts")
    with pytest.raises(UserError, match="scripts/memory_maze.py hides the package memory_maze"):
        load_tasks()


@pytest.mark.usefixtures("fake")
def test_drawing_that_fails_later_is_told_from_other_faults() -> None:
    with pytest.raises(UserError, match="cannot draw with MUJOCO_GL=egl .RuntimeError: no screen"):
        MemoryMazeEnv(good_visibility=True).reset()
    with pytest.raises(RuntimeError, match="another fault"):
        MemoryMazeEnv(top_camera=True).reset()


@pytest.mark.parametrize(("platform", "way"), [("linux", "egl"), ("darwin", "glfw")])
@pytest.mark.usefixtures("fake")
def test_it_draws_without_a_screen_unless_told(
    platform: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_tasks()
    assert os.environ["MUJOCO_GL"] == "egl"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    load_tasks()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(sys, "platform", platform)
    load_tasks()
    assert os.environ["MUJOCO_GL"] == way


@pytest.mark.usefixtures("fake")
def test_loading_leaves_others_alone() -> None:
    ids, filters = set(gymnasium.registry), list(warnings.filters)
    load_tasks()
    assert set(gymnasium.registry) == ids and list(warnings.filters) == filters
    assert not [name for name in sys.modules if name.split(".")[0] == "gym"]


def test_a_gym_that_is_installed_stays(
    fake: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gym")
    own = "import types; envs = types.ModuleType('envs'); Env = object; spaces = None\n"
    (tmp_path / "gym" / "envs").mkdir(parents=True)
    (tmp_path / "gym" / "__init__.py").write_text(own)
    (tmp_path / "gym" / "envs" / "__init__.py").write_text("")
    registration = "found = []\ndef register(id, **settings): found.append(id)\n"
    (tmp_path / "gym" / "envs" / "registration.py").write_text(registration)
    load_tasks()
    assert sys.modules["gym.envs.registration"].found == ["MemoryMaze-9x9-v0"]


def test_registration_imports_none_of_the_packages() -> None:
    names = ("memory_maze", "dm_control", "mujoco", "labmaze")
    code = (
        "import sys, gymnasium, clew.envs.gymnasium_api, clew.bridges.memory_maze\n"
        f"print([n for n in {names} if n in sys.modules])\n"
        "print(sum('MemoryMaze' in name for name in gymnasium.registry))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n4\n"
