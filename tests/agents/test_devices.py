"""Several devices compute the same as one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

import clew
from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.run import sharding
from clew.run.build import make_parts, make_task
from clew.run.config import TrainConfig, config_from_json
from clew.run.folder import read_config, read_run, to_resume, write_config
from clew.run.progress import Quiet
from clew.run.sharding import (
    check_devices,
    choose_devices,
    count_is_given,
    open_devices,
    sharding_of,
)
from device_cases import ALONE, DEVICES, EXHAUSTIVE, FAMILIES, QUICK, TOLERANCE
from small_run import STEPS_PER_UPDATE, Watch, small_config

GYMNASIUM = TrainConfig(env="gymnasium:CartPole-v1")
PROGRAM = Path(__file__).parents[1] / "device_cases.py"


def deviations(names: Sequence[str]) -> dict[str, float]:
    """The deviation of several devices from one, for each case; in one process for all cases."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    environment = {n: v for n, v in os.environ.items() if n != "JAX_NUM_CPU_DEVICES"}
    run = subprocess.run(
        [sys.executable, str(PROGRAM), *names],
        capture_output=True,
        text=True,
        env=environment | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(json.loads(line) for line in run.stdout.splitlines())


def parts(cases: Iterable[str], tolerance: float) -> list[Any]:
    """One test for every six cases, about a minute of work."""
    names = list(cases)
    several = [names[first : first + 6] for first in range(0, len(names), 6)]
    return [pytest.param(some, tolerance, id=some[0]) for some in several]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "tolerance"),
    # Kernels give way to XLA, which rounds differently, where array types say what is sharded.
    parts(QUICK | EXHAUSTIVE, TOLERANCE) + parts(ALONE, 10 * TOLERANCE),
)
def test_several_devices_compute_what_one_does(names: Sequence[str], tolerance: float) -> None:
    """This holds for every memory with both algorithms, every way to train, and memories alone."""
    found = deviations(names)
    assert list(found) == list(names)
    assert max(found.values()) < tolerance, found


def test_every_memory_that_can_be_divided_is_among_the_cases() -> None:
    shardable = {name for name, kind in MEMORIES.items() if kind.shardable}
    assert {name.split()[0] for name in FAMILIES} == shardable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": -1}, "devices must be an integer of at least 0, got -1"),
        ({"devices": 2, "memory": "universal"}, "on several devices: devices must be 1, got 2"),
        ({"devices": 3}, r"devices must divide num_envs \(8\) or seeds \(1\), got 3"),
        (
            {"devices": 4, "seeds": 2, "a2c": A2CConfig(num_envs=2)},
            r"num_envs \(2\) or seeds \(2\), got 4",
        ),
        (
            {"devices": 4, "a2c": A2CConfig(minibatches=4)},
            r"the 2 sequences of a gradient step \(of 8 in a rollout; .*, got 4",
        ),
        (
            {"devices": 4, "a2c": A2CConfig(gradient_accumulation=4)},
            r"the 2 sequences of .*; see minibatches, gradient_accumulation\), got 4",
        ),
        (
            {"devices": 8, "algorithm": "ppo", "ppo": PPOConfig(minibatches=8)},
            r"devices must divide the 4 sequences of a gradient step \(of 32",
        ),
        ({"devices": 3, "seeds": 3, "a2c": A2CConfig(num_envs=1)}, "at most what JAX has"),
        ({"devices": 64, "a2c": A2CConfig(num_envs=64)}, "device_count=64 in the environment"),
    ],
)
def test_impossible_devices_are_refused(changes: dict, message: str) -> None:
    """Device counts that do not divide, or that are not available, are refused."""
    with pytest.raises(UserError, match=message):
        make_parts(TrainConfig(**changes))


@pytest.mark.parametrize("devices", [0, 1])
def test_one_device_lays_nothing_out(devices: int) -> None:
    """With one device, programs are the same as without the setting."""
    config = TrainConfig(devices=devices)
    check_devices(config, config.learner)
    sharing = sharding_of(config)
    assert sharing.mesh is sharing.whole is sharing.of_seed is sharing.environments(0) is None


def test_a_run_of_before_goes_on_as_it_was() -> None:
    """An old run's config.json has no threads, and perhaps no devices, or 0, which meant one."""
    config = TrainConfig()
    for old in ({}, {"devices": 0}, {"devices": 1}):
        values = {n: v for n, v in config.to_json().items() if not n.startswith("device")} | old
        read = config_from_json(values)
        assert (read.devices, read.device_threads) == (1, "all")
        assert "xla_cpu_multi_thread_eigen" not in (sharding_of(read).compiler_options or {})
    one = sharding_of(replace(config, device_threads="one")).compiler_options
    assert one is not None and one["xla_cpu_multi_thread_eigen"] is False


@pytest.mark.parametrize("threads", ["one", "all"])
def test_sums_are_in_loops_with_what_is_summed(threads: str) -> None:
    """Sums call no library, unlike the default of JAX 0.10."""
    options = sharding_of(TrainConfig(device_threads=threads)).compiler_options
    lowered = jax.jit(lambda x: (x * x).sum(-1)).lower(jax.ShapeDtypeStruct((8, 4, 64), "float32"))
    assert "ynn" not in lowered.compile(options).as_text()


def test_versions_of_xla_without_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of XLA without the option compile as they do by default."""
    monkeypatch.setattr(sharding, "_OWN_SUMS", {"xla_cpu_no_such_option": 1})
    sharding._knows_own_sums.cache_clear()
    try:
        assert sharding_of(TrainConfig(device_threads="all")).compiler_options is None
    finally:
        sharding._knows_own_sums.cache_clear()


def test_what_is_chosen_without_several_devices() -> None:
    """The default is JAX's one device, with one thread if the whole step is a compiled program."""
    for config, threads in (
        (TrainConfig(), "one"),
        (TrainConfig(memory="universal"), "one"),
        (GYMNASIUM, "all"),
    ):
        found = choose_devices(config, make_task(config))
        assert (found.devices, found.device_threads) == (1, threads)
    given = TrainConfig(devices=1, device_threads="all")
    assert choose_devices(given, make_task(given)) == given


def test_cores_become_devices_unless_the_user_has_said_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are as many devices as cores, or as many as a resumed run needs."""
    updates: list[tuple[str, int]] = []
    monkeypatch.setattr(jax.config, "update", lambda *setting: updates.append(setting))
    monkeypatch.setattr(sharding, "available_cores", lambda: 16)
    open_devices()
    assert count_is_given() and not updates  # the tests have one device, see conftest.py
    monkeypatch.setattr(sharding, "count_is_given", lambda: False)
    open_devices()
    open_devices(32)
    assert updates == [("jax_num_cpu_devices", 16), ("jax_num_cpu_devices", 32)]


def test_a_run_goes_on_with_the_devices_that_there_are(tmp_path: Path) -> None:
    """A run resumes with the available devices, and reports if they are fewer than before."""
    config = small_config(tmp_path, steps=2 * STEPS_PER_UPDATE)
    path = clew.train(config, progress=Quiet()).path
    saved = read_run(path)
    write_config(path, replace(saved.config, devices=2), saved.identity)
    watch = Watch()
    clew.train(replace(config, steps=4 * STEPS_PER_UPDATE), resume=True, progress=watch)
    assert any(text.startswith("devices: 2 until now, 1 from here on") for text in watch.messages)
    assert read_config(path).devices == 1


def test_devices_name_no_result(tmp_path: Path) -> None:
    """A run with another number of devices has the same digest, and either can resume the other."""
    config = small_config(tmp_path, devices=2)
    assert config.digest() == replace(config, devices=1).digest()
    old = config.to_json()
    del old["devices"]
    assert config_from_json(old) == replace(config, devices=1)
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run", config)
    assert to_resume(replace(config, devices=1), True)[1].devices == 1
    assert to_resume(None, tmp_path / "run")[1].devices == 2
