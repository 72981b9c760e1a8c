"""Memory Maze without its packages: what is said of missing ones, and everything of ours."""

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

import fake_memory_maze
from clew.envs import gymnasium_api
from clew.envs.memory_maze import MemoryMazeEnv, building, load_tasks, require_packages
from clew.errors import UserError

Write = Callable[..., None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Packages that stand for Memory Maze's; called, it writes them with other text."""
    fake_memory_maze.write(tmp_path)
    fake_memory_maze.forget(monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gym", None)  # which means: not installed
    monkeypatch.setattr(metadata, "version", {"mujoco": "3.17.0"}.__getitem__)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    yield lambda **changed: fake_memory_maze.write(tmp_path, **changed)
    fake_memory_maze.forget()


@pytest.mark.parametrize("name", ["memory_maze", "dm_control", "mujoco", "labmaze"])
@pytest.mark.usefixtures("fake")
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    line = rf"^Memory Maze needs {name}, not installed here: pip install 'clew\[memory-maze\]'$"
    with pytest.raises(UserError, match=line):
        require_packages((3, 12))
    with pytest.raises(UserError, match="Memory Maze needs"):
        gymnasium.make("clew/MemoryMaze-9x9-v0")


@pytest.mark.usefixtures("fake")
def test_python_3_13_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    require_packages((3, 13))  # somebody may have built labmaze
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
    fake(_render="None.eglQueryString")
    with pytest.raises(UserError, match=f"MUJOCO_GL={way} .AttributeError: .*{remedy}") as caught:
        load_tasks()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["_render", "tasks"])
def test_a_package_below_that_is_missing_is_named(file: str, fake: Write) -> None:
    fake(**{file: "import lost_below"})
    with pytest.raises(UserError, match="Memory Maze needs lost_below, not installed"):
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
        "import sys, gymnasium, clew.envs.gymnasium_api, clew.envs.memory_maze\n"
        f"print([n for n in {names} if n in sys.modules])\n"
        "print(sum('MemoryMaze' in name for name in gymnasium.registry))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n4\n"


@pytest.mark.usefixtures("fake")
def test_the_four_sizes() -> None:
    steps = []
    for name, size in gymnasium_api.MEMORY_MAZES.items():
        env = gymnasium.make(name, extra_observables=True)
        maze = env.unwrapped
        assert isinstance(maze, MemoryMazeEnv) and maze.size == size
        assert env.reset(seed=0)[0] in env.observation_space
        assert env.observation_space["targets_pos"].shape == (3 + (size - 9) // 2, 2)
        steps.append(maze.steps_per_episode)
    assert steps == [1000, 2000, 3000, 4000]


@pytest.mark.usefixtures("fake")
def test_an_episode_is_truncated_and_never_terminates() -> None:
    env = MemoryMazeEnv()
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    answers = [env.step(np.int64(step % 2)) for step in range(1000)]
    assert [reward for _, reward, *_ in answers] == [0.0, 1.0] * 500
    assert all(isinstance(reward, float) for _, reward, *_ in answers)
    assert not any(terminated for _, _, terminated, _, _ in answers)
    assert [truncated for *_, truncated, _ in answers] == [False] * 999 + [True]
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert MemoryMazeEnv(control_freq=40).steps_per_episode == 10_000


@pytest.mark.usefixtures("fake")
def test_a_seed_builds_the_task_anew() -> None:
    env = MemoryMazeEnv()
    assert env.reset(seed=7)[0].max() == 17
    first: Any = env._task
    assert env.reset()[0].max() == 27 and env._task is first
    assert env.reset(seed=7)[0].max() == 17 and first.closed
    env.close()
    env.close()
    with pytest.raises(ResetNeeded):
        env.step(0)
    drawn = [MemoryMazeEnv().reset(seed=2**70 + i)[0].max() for i in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    unseeded = {int(MemoryMazeEnv().reset()[0].max()) for _ in range(5)}
    assert len(unseeded) > 1


@pytest.mark.usefixtures("fake")
def test_only_our_tasks_are_patched() -> None:
    tasks: Any = load_tasks()
    before = {name: value for name, value in vars(tasks).items() if name != "__builtins__"}
    patched: Any = building.build_task(9, 0, True, **MemoryMazeEnv()._options)
    original: Any = building.build_task(9, 0, False, **MemoryMazeEnv()._options)
    assert {name: vars(tasks)[name] for name in before} == before
    assert len(set(patched.walls.values())) == 1
    assert len(set(original.walls.values())) == 10
    assert type(original.task._targets[0]) is tasks.TargetSphere
    assert type(patched.task._targets[0]) is not tasks.TargetSphere


@pytest.mark.usefixtures("fake")
def test_one_warning_is_taken_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "absl"):
        MemoryMazeEnv().reset()
        logging.getLogger("absl").warning(building.NOISE)
    assert [record.getMessage() for record in caplog.records] == ["something else", building.NOISE]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10}, "size must be one of 9, 11, 13, 15, got 10"),
        ({"size": "9x9"}, "size must be one of 9, 11, 13, 15, got '9x9'"),
        ({"control_freq": 3}, "control_freq must be one of 1, 2, 4, 5, .*, 200, got 3"),
        ({"control_freq": True}, "control_freq must be one of"),
        ({"camera_resolution": 32}, "camera_resolution must be an integer from 64 to 480, got 32"),
        ({"render_resolution": 1.5}, "render_resolution must be an integer from 64 to 480"),
        ({"render_camera": "tops"}, "render_camera 'tops'; did you mean 'top'"),
        ({"render_mode": "human"}, "unknown render_mode 'human'; known: rgb_array"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MemoryMazeEnv(**options)


@pytest.mark.usefixtures("fake")
def test_impossible_actions_and_reset_options_are_refused() -> None:
    env = MemoryMazeEnv()
    with pytest.raises(UserError, match="reset option of the Memory Maze 'maze'"):
        env.reset(options={"maze": 1})
    env.reset()
    for action in (6, -1, 1.5, None):
        with pytest.raises(UserError, match="action must be an integer from 0 to 5 .nothing, "):
            env.step(action)  # type: ignore[arg-type]
