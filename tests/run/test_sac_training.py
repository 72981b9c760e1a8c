"""SAC in whole runs: with actors, several seeds, evaluated, exported; and tasks that it learns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.agents.learners.sac import SACConfig
from clew.envs.wrappers import WrapperConfig
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.config import TrainConfig
from clew.run.progress import Quiet

PENDULUM = {"env": "gymnasium:Pendulum-v1", "wrappers": WrapperConfig(keep=(0, 1))}


def config_of(folder: Path, **changes: Any) -> TrainConfig:
    """A quick run of SAC with a small GRU."""
    settings: dict[str, Any] = {
        "memory": "gru",
        "memory_options": {"hidden_size": 8},
        "algorithm": "sac",
        "sac": SACConfig(
            4, 8, 8, 0, 8, replay_steps=4096, learning_starts=0, gradient_steps=2, batch_size=4
        ),
        "steps": 256,
        "run_dir": str(folder),
        "log_every": 2,
    }
    return TrainConfig(**settings | changes)


@pytest.mark.slow
def test_a_continuous_run_is_evaluated_and_exported(tmp_path: Path) -> None:
    """Greedy and sampled; the export acts like the agent, within the limits."""
    path = clew.train(config_of(tmp_path, **PENDULUM, seeds=2), progress=Quiet()).path
    for greedy in (True, False):
        found = clew.evaluate(path, episodes=2, greedy=greedy)
        assert np.isfinite(found.pooled["return"].mean)
    agent = clew.load(path)
    action = agent.distribution.decode(np.full((1,), 50.0, np.float32))
    np.testing.assert_allclose(action, [2.0])
    exported = clew.export(path, tmp_path / "policy")
    assert exported is not None


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [AsyncConfig(serial=True), AsyncConfig(actors=2)])
def test_it_learns_from_asynchronous_actors(tmp_path: Path, asynchronous: AsyncConfig) -> None:
    """Rollouts of continuous actions come from actors, one of each at a time."""
    config = config_of(tmp_path, **PENDULUM, runner="async", asynchronous=asynchronous)
    result = clew.train(config, progress=Quiet())
    assert clew.read_metrics(result.path)[-1]["value_loss"][0] > 0


@pytest.mark.slow
def test_it_learns_a_memory_chain(tmp_path: Path) -> None:
    """Takes three minutes; a policy without memory has a success of a half."""
    config = TrainConfig(
        env="memory_chain",
        env_options={"memory_length": 10},
        memory="gru",
        memory_options={"hidden_size": 32},
        algorithm="sac",
        sac=SACConfig(gradient_steps=32),
        steps=30_000,
        run_dir=str(tmp_path),
    )
    path = clew.train(config, progress=Quiet()).path
    assert clew.evaluate(path, episodes=200).pooled["success"].mean > 0.9


@pytest.mark.slow
def test_it_swings_a_pendulum_up_without_velocities(tmp_path: Path) -> None:
    """Takes three minutes; random actions earn about -1,200."""
    config = TrainConfig(
        **PENDULUM,
        memory="gru",
        memory_options={"hidden_size": 64},
        algorithm="sac",
        sac=SACConfig(gamma=0.9),
        steps=20_480,
        run_dir=str(tmp_path),
    )
    path = clew.train(config, progress=Quiet()).path
    assert clew.evaluate(path, episodes=50).pooled["return"].mean > -400
