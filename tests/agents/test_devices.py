"""Several devices compute what one does."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.run.config import TrainConfig, config_from_json
from clew.run.folder import to_resume, write_config
from clew.run.sharding import check_devices, sharding_of
from device_cases import DEVICES, EXHAUSTIVE, FAMILIES, QUICK
from small_run import small_config

TOLERANCE = 1e-5
PROGRAM = Path(__file__).parents[1] / "device_cases.py"


def deviations(names: list[str]) -> dict[str, float]:
    """How far apart are one and several devices, for each case; in one process for all."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    run = subprocess.run(
        [sys.executable, str(PROGRAM), *names],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(json.loads(line) for line in run.stdout.splitlines())


def test_several_devices_compute_what_one_does() -> None:
    """Kernels, PPO's shuffled sequences, seeds side by side, Gymnasium environments."""
    found = deviations(list(QUICK))
    assert list(found) == list(QUICK)
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.slow
def test_several_devices_compute_what_one_does_whatever_it_is() -> None:
    """Every memory with both algorithms, every way of training; a run that changes devices."""
    shardable = {name for name, kind in MEMORIES.items() if kind.shardable}
    assert {name.split()[0] for name in FAMILIES} == shardable
    found = deviations(list(EXHAUSTIVE))
    assert list(found) == list(EXHAUSTIVE)
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": -1}, "devices must be an integer of at least 0, got -1"),
        ({"devices": 2, "memory": "universal"}, "devices must be 1 with universal"),
        ({"devices": 3}, "devices must divide num_envs, .* 3 devices for 8 environments"),
        ({"devices": 4, "seeds": 2, "a2c": A2CConfig(num_envs=2)}, "2 environments and seeds 2"),
        ({"devices": 4, "a2c": A2CConfig(minibatches=4)}, "4 devices for 8 sequences in 4 minib"),
        (
            {"devices": 8, "algorithm": "ppo", "ppo": PPOConfig(minibatches=8)},
            "8 devices for 32 sequences in 8 minibatches",
        ),
        ({"devices": 3, "seeds": 3, "a2c": A2CConfig(num_envs=1)}, "at most what JAX has"),
        ({"devices": 64, "a2c": A2CConfig(num_envs=64)}, "device_count=64 in the environment"),
    ],
)
def test_impossible_devices_are_refused(changes: dict, message: str) -> None:
    """What does not divide, and what is not there."""
    with pytest.raises(UserError, match=message):
        TrainConfig(**changes).validate()


@pytest.mark.parametrize("devices", [0, 1])
def test_one_device_lays_nothing_out(devices: int) -> None:
    """And its programs are what they were without the setting."""
    config = TrainConfig(devices=devices)
    check_devices(config)
    sharing = sharding_of(config)
    assert sharing.mesh is sharing.whole is sharing.of_seed is sharing.environments(0) is None


def test_devices_name_no_result(tmp_path: Path) -> None:
    """A run with others has the same digest, and may be gone on with by others."""
    config = small_config(tmp_path, devices=2)
    assert config.digest() == replace(config, devices=1).digest()
    old = config.to_json()
    del old["devices"]
    assert config_from_json(old) == replace(config, devices=1)
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run", config)
    assert to_resume(replace(config, devices=1), True)[1].devices == 1
    assert to_resume(None, tmp_path / "run")[1].devices == 2
