"""The default algorithm, by task and other settings."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.cli.parse import parse, value_before_parsing
from clew.cli.train import TrainCommand, default_command, on_algorithm
from clew.envs.wrappers import WrapperConfig
from clew.lab.studies import presets
from clew.lab.sweep.space import Range
from clew.lab.sweep.sweep import Sweep
from clew.run.config import TrainConfig, config_from_json

POLE = "gymnasium:CartPole-v1"
SCALED = WrapperConfig(normalise_rewards=True)


@pytest.mark.parametrize(
    ("settings", "algorithm", "wrappers", "encoder"),
    [
        ({}, "a2c", WrapperConfig(), "none"),
        ({"env": POLE}, "ppo", SCALED, "auto"),
        ({"env": "gymnax:MemoryChain-bsuite"}, "a2c", WrapperConfig(), "none"),
        ({"env": "some.module:factory"}, "ppo", SCALED, "auto"),
        ({"env": POLE, "wrappers": WrapperConfig()}, "ppo", WrapperConfig(), "auto"),
        (
            {"env": POLE, "wrappers": WrapperConfig(keep=(0, 2))},
            "ppo",
            WrapperConfig(keep=(0, 2)),
            "auto",
        ),
        ({"env": POLE, "network": NetworkConfig(head_size=4)}, "ppo", SCALED, "none"),
        ({"env": POLE, "a2c": A2CConfig(num_envs=2)}, "a2c", WrapperConfig(), "none"),
        ({"env": POLE, "algorithm": "a2c"}, "a2c", WrapperConfig(), "none"),
        ({"env": POLE, "algorithm": "ppo"}, "ppo", WrapperConfig(), "none"),
    ],
)
def test_what_is_chosen(
    settings: dict[str, Any], algorithm: str, wrappers: WrapperConfig, encoder: str
) -> None:
    config = TrainConfig(**settings)
    assert (config.algorithm, config.wrappers) == (algorithm, wrappers)
    assert config.network.encoder == encoder
    assert TrainConfig(**settings | {"algorithm": settings.get("algorithm", "auto")}) == config
    assert config_from_json(config.to_json()) == config
    assert dataclasses.replace(config, seed=1).algorithm == algorithm


@pytest.mark.parametrize(
    ("args", "algorithm", "scaled"),
    [
        ("", "a2c", False),
        (f"--env {POLE}", "ppo", True),
        (f"--env={POLE}", "ppo", True),
        (f"--env {POLE} --wrappers.keep 0 2", "ppo", True),
        (f"--env {POLE} --wrappers.no-normalise-rewards", "ppo", False),
        (f"--env {POLE} --algorithm ppo", "ppo", False),
        (f"--env {POLE} --algorithm a2c", "a2c", False),
        (f"--env {POLE} --algorithm auto", "ppo", True),
        (f"--env {POLE} --a2c.num-envs 4", "a2c", False),
        (f"--env {POLE} --algorithm auto --a2c.num-envs 4", "a2c", False),
        (f"--env {POLE} --ppo.num-envs 4", "ppo", True),
        ("--env gymnax:CartPole-v1", "a2c", False),
    ],
)
def test_the_command_line_chooses_alike(args: str, algorithm: str, scaled: bool) -> None:
    words = args.split()
    default = default_command(words)
    named = value_before_parsing(words, "--algorithm")
    config = parse(TrainCommand, words, command="train", about="", default=default).config
    assert (config.algorithm, config.wrappers.normalise_rewards) == (algorithm, scaled)
    assert config.network.encoder == ("auto" if algorithm == "ppo" and named != "ppo" else "none")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("", ""),
        ("--algorithm auto", ""),
        (
            "--algorithm ppo",
            f"an algorithm is named, which turns off other defaults of {POLE}: for an encoder and "
            "scaled rewards add --network.encoder auto --wrappers.normalise-rewards",
        ),
        ("--algorithm ppo --wrappers.no-normalise-rewards", ": for an encoder add --network.enco"),
        ("--algorithm sac", "scaled rewards add --network.encoder auto --wrappers.reward-scale F"),
        ("--algorithm sac --wrappers.reward-scale 0.1 --network.encoder none", ""),
        ("--a2c.num-envs 4", f"a2c, because its settings are given (without them {POLE} is learn"),
        ("--a2c.num-envs 4", "is learned by ppo), which turns off other defaults of"),
    ],
)
def test_defaults_that_a_chosen_algorithm_turns_off_are_said(args: str, says: str) -> None:
    """With the options that bring them back; a replay keeps rewards as they were divided then."""
    words = f"--env {POLE} {args}".split()
    default = default_command(words)
    config = parse(TrainCommand, words, command="train", about="", default=default).config
    said = on_algorithm(words, config)
    assert says in said[0] if says else not said


def test_presets_are_what_their_papers_say() -> None:
    """Defaults that depend on the task change none of them."""
    for name, config in presets().items():
        assert config.algorithm == ("ppo" if name.startswith("memory-maze/") else "a2c")
        assert config.wrappers == WrapperConfig()


def test_numbers_of_numpy_are_taken_as_pythons() -> None:
    """Wherever settings contain them; config.json and the digest are those of Python numbers."""
    given = TrainConfig(
        steps=np.int64(20_000),
        checkpoint_seconds=np.float32(3),
        memory_options={"hidden_size": np.int16(8)},
        a2c=A2CConfig(num_envs=np.int64(4), learning_rate=np.float64(1e-3), schedule="linear"),
        wrappers=WrapperConfig(keep=(np.int32(0), 2), previous_action=np.bool_(True)),
    )
    same = TrainConfig(
        steps=20_000,
        checkpoint_seconds=3.0,
        memory_options={"hidden_size": 8},
        a2c=A2CConfig(num_envs=4, learning_rate=1e-3, schedule="linear"),
        wrappers=WrapperConfig(keep=(0, 2), previous_action=True),
    )
    assert repr(given) == repr(same) and given.digest() == same.digest()
    given.validate()
    values = {"a2c.num_envs": (*np.array([4, 8]),), "a2c.gamma": Range(np.float32(0), np.int8(1))}
    sweep = Sweep(TrainConfig(), values, trials=np.int64(3))
    assert repr(sweep.vary) == "{'a2c.num_envs': (4, 8), 'a2c.gamma': " + repr(Range(0.0, 1)) + "}"
    assert type(sweep.trials) is int
