"""Memory Maze itself: our task shows the original's frames, pixel for pixel.

Needs the packages and OpenGL (`make test-memory-maze`), and is skipped without them.
"""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clew.bridges.memory_maze import MemoryMazeEnv, load_tasks
from memory_maze_oracle import action_towards

if importlib.util.find_spec("labmaze") is None:
    pytest.skip("Memory Maze is not installed (make test-memory-maze)", allow_module_level=True)

EXTRA = {"global_observables": True}


def play(env: MemoryMazeEnv, seed: int, steps: int, by_oracle: bool = False) -> list[tuple]:
    """(observation, reward, truncated) of the first observation and this many steps."""
    rng = np.random.default_rng(seed)
    shown, _ = env.reset(seed=seed)
    answers: list[tuple] = [(shown, 0.0, False)]
    for _ in range(steps):
        if answers[-1][2]:
            answers.append((env.reset()[0], 0.0, False))
            continue
        shown = answers[-1][0]
        action = action_towards(shown) if by_oracle else rng.choice([1, 1, 2, 3, 4, 5])
        shown, reward, terminated, truncated, info = env.step(action)
        assert not terminated and info == {}
        answers.append((shown, reward, truncated))
    return answers


def require_equal(ours: list[tuple], original: Any, by_oracle: bool, seed: int) -> None:
    """The original task, given the same actions, shows and earns the same."""
    rng = np.random.default_rng(seed)
    timestep = original.reset()
    for time, (shown, reward, truncated) in enumerate(ours):
        theirs = timestep.observation
        for name, value in shown.items() if isinstance(shown, dict) else [("image", shown)]:
            np.testing.assert_array_equal(value, theirs[name].astype(value.dtype), f"{name} {time}")
        assert (timestep.reward or 0.0, timestep.last()) == (reward, truncated)
        assert timestep.discount in (None, 1.0)
        if not timestep.last():
            action = action_towards(shown) if by_oracle else rng.choice([1, 1, 2, 3, 4, 5])
            timestep = original.step(action)
        else:
            timestep = original.reset()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed", "steps", "rewards"), [(9, 0, 1060, 25), (15, 5, 400, 5)])
def test_what_is_shown_and_earned_equals_the_original(
    size: int, seed: int, steps: int, rewards: int
) -> None:
    """Over a whole episode of 9x9 and into the next one, with a player that finds the balls."""
    env = MemoryMazeEnv(size, extra_observables=True)
    ours = play(env, seed, steps, by_oracle=True)
    assert sum(reward for _, reward, _ in ours) >= rewards
    assert [time for time, (*_, truncated) in enumerate(ours) if truncated] == [1000][: size == 9]
    original = getattr(load_tasks(), f"memory_maze_{size}x{size}")(seed=seed, **EXTRA)
    require_equal(ours, original, True, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "options"),
    [
        (9, {"top_camera": True, "camera_resolution": 256}),
        (11, {"good_visibility": True, "control_freq": 10}),
        (13, {"randomize_colors": True}),
    ],
)
def test_variants_equal_the_original(size: int, options: dict[str, Any]) -> None:
    """For a few steps of three episodes, so that new colours of balls occur too."""
    env = MemoryMazeEnv(size, **options)
    original = getattr(load_tasks(), f"memory_maze_{size}x{size}")(seed=size, **options)
    env.reset(seed=size)
    original.reset()
    for _ in range(2):
        shown, theirs = env.reset()[0], original.reset()
        for action in (1, 1, 4, 1, 5, 1, 2, 1, 1, 3, 1, 1):
            np.testing.assert_array_equal(shown, theirs.observation["image"])
            shown, *_ = env.step(action)
            theirs = original.step(action)


@pytest.mark.slow
def test_unpatched_is_the_original() -> None:
    env = MemoryMazeEnv(patched=False)
    require_equal(play(env, 4, 20), load_tasks().memory_maze_9x9(seed=4), False, 4)
    targets = sys.modules["dm_control.locomotion.props.target_sphere"]
    assert type(env._task.task._targets[0]) is targets.TargetSphere
    quick = MemoryMazeEnv()
    quick.reset(seed=4)
    assert env._task.physics.model.ntex > 80 > 20 > quick._task.physics.model.ntex


@pytest.mark.slow
@pytest.mark.parametrize("extra", [False, True])
def test_gymnasium_finds_nothing_to_complain_about(extra: bool) -> None:
    name = "clew.envs.gymnasium_api:clew/MemoryMaze-9x9-v0"
    env = gymnasium.make(name, extra_observables=extra, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_seeds_choose_the_maze() -> None:
    env = MemoryMazeEnv(11, extra_observables=True)
    layouts = [env.reset(seed=seed)[0]["maze_layout"] for seed in (1, 2, 1)]
    following = env.reset()[0]["maze_layout"]
    assert (layouts[0] == layouts[2]).all()
    assert (layouts[0] != layouts[1]).any() and (layouts[2] != following).any()
    assert not [name for name in gymnasium.registry if name.startswith("MemoryMaze")]


DIGEST = """
import hashlib, numpy as np
from clew.bridges.memory_maze import MemoryMazeEnv
env = MemoryMazeEnv()
frames = [env.reset(seed=6)[0]] + [env.step(a)[0] for a in (1, 1, 4, 1, 5, 1, 2, 1, 3, 1)]
print(hashlib.sha256(np.stack([*frames, env.reset()[0]]).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_two_processes_show_the_same() -> None:
    """Independent of the order of sets, which changes the order of textures."""
    seen = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", DIGEST]
        seen.add(subprocess.check_output(command, text=True, env=environment))
    assert len(seen) == 1 and len(seen.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_observations_stay_and_drawing_changes_none() -> None:
    """A returned observation is never overwritten, and `render` has no side effect."""
    plain, drawn = MemoryMazeEnv(), MemoryMazeEnv(render_mode="rgb_array", render_camera="top")
    kept, copies, others = [plain.reset(seed=2)[0]], [], [drawn.reset(seed=2)[0]]
    copies.append(kept[0].copy())
    for action in (1, 4, 1, 2, 1):
        assert drawn.render().shape == (256, 256, 3)
        kept.append(plain.step(action)[0])
        copies.append(kept[-1].copy())
        others.append(drawn.step(action)[0])
    np.testing.assert_array_equal(kept, copies)
    np.testing.assert_array_equal(kept, others)
    assert plain.render() is None


def test_the_agents_view_is_drawn_with_its_border() -> None:
    env = MemoryMazeEnv(render_mode="rgb_array", render_resolution=64)
    shown, _ = env.reset(seed=3)
    np.testing.assert_array_equal(env.render(), shown)
    np.testing.assert_array_equal(env.step(1)[0], env.render())


def test_what_the_extra_observables_mean() -> None:
    """Positions are in cells from the lower left, vectors to the agent's right and front."""
    env = MemoryMazeEnv(13, extra_observables=True)
    shown, _ = env.reset(seed=9)
    for action in (1, 4, 4, 1):
        (x, y), (east, north) = shown["agent_pos"], shown["agent_dir"]
        assert shown["maze_layout"][int(y), int(x)] == 1
        for key in ("targets", "target"):
            away = shown[f"{key}_pos"] - shown["agent_pos"]
            seen = np.stack([away @ (north, -east), away @ (east, north)], -1)
            np.testing.assert_allclose(seen, shown[f"{key}_vec"], atol=1e-4)
        assert (shown["targets_pos"] == shown["target_pos"]).all(1).sum() == 1
        border = (shown["target_color"].astype(float) * 255 * 0.7).astype(np.uint8)
        assert (np.abs(shown["image"][0].astype(int) - border) <= 1).all()
        shown, *_ = env.step(action)


def test_the_documentation_s_code_runs() -> None:
    """test_readme.py, which has no Memory Maze, leaves its blocks out."""
    page = (Path(__file__).parents[2] / "docs" / "memory-maze.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


@pytest.mark.slow
def test_vector_environments_in_processes() -> None:
    name = "clew.envs.gymnasium_api:clew/MemoryMaze-9x9-v0"
    kinds: dict[str, Any] = {"vectorization_mode": "async", "vector_kwargs": {"context": "spawn"}}
    envs = gymnasium.make_vec(name, num_envs=2, **kinds)
    shown, _ = envs.reset(seed=[4, 5])
    for _ in range(3):
        shown, *_ = envs.step(np.array([1, 4]))
    envs.close()
    for index, (seed, action) in enumerate([(4, 1), (5, 4)]):
        env = MemoryMazeEnv()
        env.reset(seed=seed)
        alone = [env.step(action)[0] for _ in range(3)]
        np.testing.assert_array_equal(shown[index], alone[-1])
