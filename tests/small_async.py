"""Asynchronous runs of a few updates; all tests on one task share its compiled programs."""

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.interact.task import HostConfig
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_parts
from clew.run.config import TrainConfig
from clew.run.progress import Quiet
from clew.run.train import make_program
from clew.run.updates import RunState, init_run

LENGTH = 8


def async_config(**changes: Any) -> TrainConfig:
    """PPO with a small GRU in four labelled environments, two for each actor."""
    settings: dict[str, Any] = {
        "env": "labelled:Labelled",
        "env_options": {},
        "memory": "gru",
        "memory_options": {"hidden_size": 4},
        "network": NetworkConfig(head_size=4),
        "algorithm": "ppo",
        "ppo": PPOConfig(
            num_envs=4, rollout_length=LENGTH, sequence_length=4, minibatches=1, epochs=1
        ),
        "host": HostConfig(timeout=20.0, restarts=3),
        "steps": 4 * LENGTH * 6,
        "log_every": 2,
        "runner": "async",
    }
    return TrainConfig(**{**settings, **changes})


def run_dir(folder: Path, **changes: Any) -> TrainConfig:
    """The same with a folder on disk."""
    return async_config(run_dir=str(folder), name="run", **changes)


def after(config: TrainConfig, updates: int) -> RunState:
    """The state of a run after this many updates, in two calls of its program."""
    parts = make_parts(config)
    program = make_program(parts, Quiet(), threading.Event())
    try:
        state = program(init_run(parts), jnp.int32(1))
        return program(state, jnp.int32(updates - 1))
    finally:
        program.close()


def arrays(state: RunState) -> list[np.ndarray]:
    """All arrays of a state; random keys as their data."""
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(state)
    ]


def by_turns(**changes: Any) -> AsyncConfig:
    """Settings without any lag."""
    return AsyncConfig(queue=0, max_lag=0, **changes)


def order(script: Path, trouble: str) -> None:
    """Writes the trouble of `labelled.Scripted`, complete before anything can read it."""
    part = script.with_name("part")
    part.write_text(trouble)
    part.rename(script)
