"""A tiny environment of pictures that stands in for Memory Maze, and a study of it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.config import TrainConfig

LENGTH = 6
TASK = "pixel_maze:PixelMaze"


class PixelMaze(gymnasium.Env[Any, Any]):
    """Shows a bright half, left or right; action 0 or 1 that names it earns 1. Always truncates."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = spaces.Discrete(6)

    def __init__(self, length: int = LENGTH):
        self.length, self.time, self.side = length, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode."""
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Rewards the answer to the last picture and shows another."""
        reward = float(action == self.side)
        self.time += 1
        return self._look(), reward, False, self.time == self.length, {}

    def _look(self) -> np.ndarray:
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[:, 4 * self.side : 4 * self.side + 4] = 255
        return picture


def pixel_study(**changes: Any) -> Study:
    """One agent without memory on the tiny maze, two seeds: 2 cells of 12 updates."""
    agent = TrainConfig(
        env=TASK,
        env_options={},
        memory="none",
        memory_options={"hidden_size": 4, "num_layers": 1},
        network=NetworkConfig(encoder="mlp", encoder_size=8, head_size=0),
        algorithm="ppo",
        ppo=PPOConfig(num_envs=2, rollout_length=8, sequence_length=4, minibatches=1, epochs=1),
        runner="async",
        asynchronous=AsyncConfig(actors=1),
        checkpoint_seconds=0.01,
        log_every=2,
    )
    study = Study(
        name="pixels",
        models={"none": agent},
        settings={"tiny": Setting(TASK)},
        seeds=(0, 1),
        steps=192,
        evaluation=Evaluation(episodes=0),
        curve_bins=4,
        resumable=True,
        whole_machine=True,
        last_steps=64,
    )
    return replace(study, **changes)


if __name__ == "__main__":
    run_study(pixel_study(steps=int(sys.argv[2])), Path(sys.argv[1]))
