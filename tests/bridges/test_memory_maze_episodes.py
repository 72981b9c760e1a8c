"""Memory Maze's episodes, seeds and settings, with packages that stand for the real ones."""

import logging
import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from clew.bridges import memory_maze
from clew.bridges.memory_maze import MemoryMazeEnv
from clew.bridges.memory_maze_packages import load_tasks
from clew.errors import UserError
from clew.gymnasium_ids import IDS


@pytest.mark.usefixtures("fake")
def test_the_four_sizes() -> None:
    steps = []
    mazes = {name: made["size"] for name, (_, made) in IDS.items() if "size" in made}
    for name, size in mazes.items():
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
    patched: Any = memory_maze.build_task(9, 0, True, **MemoryMazeEnv()._options)
    original: Any = memory_maze.build_task(9, 0, False, **MemoryMazeEnv()._options)
    assert {name: vars(tasks)[name] for name in before} == before
    assert len(set(patched.walls.values())) == 1
    assert len(set(original.walls.values())) == 10
    assert type(original.task._targets[0]) is tasks.TargetSphere
    assert type(patched.task._targets[0]) is not tasks.TargetSphere


@pytest.mark.usefixtures("fake")
def test_one_warning_is_taken_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "absl"):
        MemoryMazeEnv().reset()
        logging.getLogger("absl").warning(memory_maze.NOISE)
    assert [record.getMessage() for record in caplog.records] == [
        "something else",
        memory_maze.NOISE,
    ]


@pytest.mark.usefixtures("fake")
def test_a_process_forked_after_drawing_is_told_instead_of_hanging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_maze, "_drawing_processes", set())
    parent, env = os.getpid(), MemoryMazeEnv()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    env.reset()  # the parent has not rendered yet
    env.reset(seed=1)
    monkeypatch.setattr(os, "getpid", lambda: parent + 2)
    with pytest.raises(UserError, match="forked from one that has drawn: start it with 'spawn'"):
        MemoryMazeEnv().reset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10}, "size must be one of 9, 11, 13, 15, got 10"),
        ({"size": "9x9"}, "size must be one of 9, 11, 13, 15, got '9x9'"),
        ({"control_freq": 3}, "control_freq must be one of 1, 2, 4, 5, .*, 200, got 3"),
        ({"control_freq": True}, "control_freq must be one of"),
        ({"camera_resolution": 32}, "camera_resolution must be an integer of at least 64, got 32"),
        (
            {"render_resolution": 1.5},
            "render_resolution must be an integer of at least 64, got 1.5",
        ),
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
