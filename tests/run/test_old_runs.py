"""Runs made by earlier versions load, act as before, and can be resumed.

The folders in `old_runs` were written by the version of 2026-11-22, each by a `clew train` whose
settings are in its config.json; `expected.json` has their agents' answers: logits and value for
twelve observations, with episodes that begin at 0 and 7.
"""

import json
import shutil
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest

import clew
from clew.run.config import config_from_json
from clew.run.folder import read_config, write_config
from clew.run.migration import migrate_leaves
from slow_cases import fast_only

FOLDER = Path(__file__).with_name("old_runs")
RUNS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
# One of each program: hosted, asynchronous and compiled. The others' agents are loaded as well.
GOING_ON_QUICKLY = {"lstm-cartpole", "gru-async"}
SIZES = {"tmaze": 16, "memory_chain": 3, "gymnasium:CartPole-v1": 4}


@pytest.mark.parametrize("name", RUNS)
def test_the_agent_acts_as_it_did(name: str) -> None:
    """Logits and value of every step are equal, with the state carried over and a new episode."""
    expected = json.loads((FOLDER / "expected.json").read_text())[name]
    config = json.loads((FOLDER / name / "config.json").read_text())["config"]
    size = len(config["wrappers"]["keep"] or range(SIZES[config["env"]]))
    observations = np.random.default_rng(0).normal(size=(12, size)).astype(np.float32)
    agent = clew.load(FOLDER / name)
    state, step = agent.init_state(), eqx.filter_jit(agent.step)
    for t, observation in enumerate(observations):
        state, outputs = step(state, observation, np.bool_(t in (0, 7)))
        answered = [*np.asarray(outputs.logits), float(outputs.value)]
        np.testing.assert_allclose(answered, expected[t], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    fast_only(RUNS, *GOING_ON_QUICKLY),
)
def test_the_run_goes_on(name: str, tmp_path: Path) -> None:
    """Resuming makes the missing updates, from the state of the old checkpoint."""
    path = tmp_path / name
    shutil.copytree(FOLDER / name, path)
    before = json.loads((path / "config.json").read_text())["config"]
    result = clew.resume_run(path, steps=before["steps"] + 100)
    assert result.path == path
    assert result.summary["steps"] > before["steps"]
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == sorted({row["update"] for row in rows})
    policy = clew.load_policy(path)
    observation = np.zeros(SIZES[before["env"]], np.float32)
    assert isinstance(policy(observation, start=True), int)


@pytest.mark.parametrize(
    ("memory", "saved", "kind", "read", "digest"),
    [
        (
            "relit",
            {"scan": "steps"},
            "clew.lab.studies.tmaze.models:PublishedReLiT",
            {"backend": "xla", "init_per": "product"},
            "ebbed59c15b1",
        ),
        (
            "arelit",
            {"frequencies": "thesis", "scale": "thesis", "r": 2},
            "clew.lab.studies.tmaze.models:PublishedAReLiT",
            {"frequencies": "printed", "scale": "printed", "r": 2, "chrono": 0},
            "70981a9945e1",
        ),
    ],
)
def test_options_of_a_memory_are_read_by_their_old_names(
    memory: str, saved: dict, kind: str, read: dict, digest: str
) -> None:
    """Names and values have changed; the results of the run keep their name."""
    old = clew.TrainConfig().to_json() | {"memory": memory}
    del old["device_threads"]
    old["memory_options"] = {"hidden_size": 8, **saved}
    config = config_from_json(old)
    assert config.memory == kind
    assert config.memory_options == {"hidden_size": 8, **read}
    assert config.digest() == digest


@pytest.mark.parametrize(
    ("memory", "option", "before", "now"),
    [
        ("lstm", "init_per", "product", "gate"),
        ("gru", "init_per", "product", "gate"),
        ("relit", "init_per", "product", "head"),
        ("arelit", "chrono", 0, 256),
    ],
)
def test_settings_of_before_keep_the_draw_that_they_left_out(
    memory: str, option: str, before: Any, now: Any
) -> None:
    """Runs and names of results are those of the former draw; new ones have the new one."""
    if option == "chrono":
        assert signature(clew.MEMORIES[memory]).parameters[option].default == now
    new = clew.TrainConfig(memory=memory, memory_options={"hidden_size": 8})
    assert config_from_json(new.to_json()) == new
    assert new.identity()["memory_options"] == {"hidden_size": 8, option: now}
    values = {name: value for name, value in new.to_json().items() if name != "device_threads"}
    old = config_from_json(values)
    assert old.memory_options == {"hidden_size": 8, option: before}
    assert config_from_json(new.to_json(), former=True).memory_options == old.memory_options
    named = replace(old, memory_options={"hidden_size": 8, option: before})
    assert old.identity()["memory_options"] == named.identity()["memory_options"]
    assert named.identity()["memory_options"] == {"hidden_size": 8}
    assert named.digest() == old.digest() != new.digest()


def test_a_folder_without_the_option_is_told_by_its_digest(tmp_path: Path) -> None:
    """It was written after the setting of threads, and before the memory's new initial weights."""
    named = clew.TrainConfig(memory="arelit", memory_options={"hidden_size": 8, "chrono": 0})
    write_config(tmp_path, named)
    file = tmp_path / "config.json"
    text = json.loads(file.read_text())
    del text["config"]["memory_options"]["chrono"], text["checksum"]
    file.write_text(json.dumps(text))
    assert read_config(tmp_path) == named


@pytest.mark.parametrize(
    "settings, digest",
    [
        ({"env": "gymnasium:CartPole-v1", "memory": "gru"}, "fdcbe2e8b2b5"),
        (
            {"memory": "gru", "wrappers": clew.WrapperConfig(keep=(0, 2), previous=True)},
            "372d74bbecb0",
        ),
    ],
    ids=["gymnasium", "wrapped"],
)
def test_settings_keep_their_digest(settings: dict[str, Any], digest: str) -> None:
    """Also if a group of settings is not the default one and has gained settings since."""
    assert clew.TrainConfig(**settings).digest() == digest


def test_the_agent_of_sac_with_a_network_for_its_critics_is_found() -> None:
    """Its critics had an encoder and a memory of their own in the learner's state."""
    old = clew.TrainConfig(algorithm="sac", memory="gru").to_json()
    del old["network"]["memory_of_critic"]
    old["sac"]["memory_of_critic"] = "separate"
    config = config_from_json(old)
    assert config.network.memory_of_critic == "separate"
    assert config.identity()["sac"]["memory_of_critic"] == "separate"
    assert config.to_json() == config_from_json(config.to_json()).to_json()
    names = ("memory/cells/0/w", "encoder/layers/0/w", "heads/actor/w", "heads/critics/0/w")
    trees = ("/seed/agent", "/seed/learner/others/critic")
    leaves = {f"{tree}/{name}": np.array([i]) for i, tree in enumerate(trees) for name in names}
    found = migrate_leaves(leaves)
    assert {path: int(leaf[0]) for path, leaf in found.items() if path.startswith(trees[0])} == {
        "/seed/agent/memory/memories/0/cells/0/w": 0,
        "/seed/agent/memory/memories/1/cells/0/w": 1,
        "/seed/agent/encoder/encoders/0/layers/0/w": 0,
        "/seed/agent/encoder/encoders/1/layers/0/w": 1,
        "/seed/agent/heads/actor/w": 0,
        "/seed/agent/heads/critics/0/w": 1,
    }
