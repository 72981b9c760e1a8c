"""A training run of a second, for the tests of training and of resuming.

All its tests share one compiled program: they only change settings that it does not contain.
"""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.network import NetworkConfig
from clew.cli import run
from clew.run import checkpoint
from clew.run.config import TrainConfig
from clew.run.metrics import Row, read_metrics
from clew.run.progress import Quiet, Report

_BRIEFLY = "--a2c.num-envs 2 --a2c.rollout-length 4 --network.head-size 4 --log-every 2 --steps 80"
_MAZE = "--env-options corridor_length=3"
TINY = f"--memory none --memory-options hidden_size=4 num_layers=1 {_MAZE} {_BRIEFLY}"
TINY_GRU = f"--memory gru --memory-options hidden_size=4 {_MAZE} time_limit=7 {_BRIEFLY}"
"""Words of `clew train` for ten updates."""

STEPS_PER_UPDATE = 8 * 16
UPDATES = 320


def small_config(folder: Path, name: str = "run", **changes: Any) -> TrainConfig:
    """A GRU on a corridor of three: solved after about 200 updates."""
    settings: dict[str, Any] = {
        "env_options": {"corridor_length": 3},
        "memory": "gru",
        "memory_options": {"hidden_size": 16},
        "network": NetworkConfig(head_size=16),
        "a2c": A2CConfig(num_envs=8, rollout_length=16, learning_rate=3e-3),
        "steps": UPDATES * STEPS_PER_UPDATE,
        "seeds": 2,
        "log_every": 8,
    }
    return TrainConfig(**{**settings, "run_dir": str(folder), "name": name, **changes})


BRIEF_REPLAY: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "sequence_length": 4,
    "burn_in": 4,
    "period": 4,
    "replay_steps": 96,
    "learning_starts": 0,
    "batch_size": 2,
}
"""Settings of a learner with a replay, with a rollout of 32 steps."""


def replaying_config(folder: Path, name: str = "run", **changes: Any) -> TrainConfig:
    """The same with R2D2 and a replay of 20 rollouts."""
    learning = R2D2Config(
        num_envs=8,
        rollout_length=16,
        sequence_length=16,
        burn_in=16,
        period=16,
        replay_steps=20 * STEPS_PER_UPDATE,
        learning_starts=0,
        batch_size=4,
    )
    config = small_config(folder, name, **changes)
    return replace(config, algorithm="r2d2", a2c=A2CConfig(), r2d2=learning)


def train_tiny(folder: Path, words: str = TINY, name: str = "tiny") -> Path:
    """The folder of a run made by the command; it has hardly learned anything."""
    assert run(["train", *words.split(), "--name", name, "--run-dir", str(folder)]) == 0
    return folder / name


class Watch(Quiet):
    """Keeps what is reported, and calls `at(report)` at every report."""

    def __init__(self, at: Any = lambda report: None):
        self.at = at
        self.rows: list[Row] = []
        self.messages: list[str] = []
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        """Keeps the name."""
        self.phases.append(name)

    def message(self, text: str) -> None:
        """Keeps the text."""
        self.messages.append(text)

    def report(self, report: Report) -> None:
        """Keeps the row."""
        if report.row is not None:
            self.rows.append(report.row)
        self.at(report)


def full_disk(*args: Any, **named: Any) -> Any:
    """Replaces a function that writes, as on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def newest(path: Path) -> Path:
    """The file of a run's newest checkpoint."""
    return checkpoint.list_checkpoints(path / "checkpoints")[-1]


def last_state(path: Path) -> dict[str, np.ndarray]:
    """Every array of a run's newest checkpoint."""
    return checkpoint.read(newest(path)).leaves


def best_agents(path: Path) -> dict[str, np.ndarray]:
    """Every array of a run's best agents, none if it was too short for one."""
    best = path / "checkpoints" / checkpoint.BEST
    return checkpoint.read(best).leaves if best.exists() else {}


def untimed(path: Path) -> list[Row]:
    """The rows of a run without values that depend on the clock."""
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "rate")} for row in read_metrics(path)
    ]


def assert_same_run(path: Path, other: Path) -> None:
    """Checks that two runs ended with the same bits, kept agents and rows."""
    for read in (last_state, best_agents):
        leaves, expected = read(path), read(other)
        assert leaves.keys() == expected.keys()
        assert not [n for n in leaves if leaves[n].tobytes() != expected[n].tobytes()]
    assert untimed(path) == untimed(other)
