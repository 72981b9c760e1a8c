"""Advice at the end of a run is given only if gradients are clipped by much."""

import dataclasses
from typing import Any

import pytest

from clew.envs.wrappers import WrapperConfig
from clew.run.config import TrainConfig
from clew.run.metrics import advice

CONFIG = TrainConfig(env="gymnasium:CartPole-v1", algorithm="ppo")
ROWS = [{"grad_norm": [40.0, 30.0]}, {"grad_norm": [None, 35.0]}]


def test_long_gradients_are_told() -> None:
    told = advice(ROWS, CONFIG)
    assert told is not None and "norm was 35" in told and "clipped to 0.5" in told
    assert "--wrappers.normalise-rewards" in told


@pytest.mark.parametrize(
    "changes",
    [
        {"wrappers": WrapperConfig(normalise_rewards=True)},
        {"wrappers": WrapperConfig(reward_scale=0.1)},
        {"ppo": dataclasses.replace(CONFIG.ppo, max_grad_norm=None)},
        {"ppo": dataclasses.replace(CONFIG.ppo, max_grad_norm=4.0)},
        {"env": "tmaze"},
        {"env": "gymnax:CartPole-v1"},
    ],
)
def test_nothing_is_told_where_it_would_not_help(changes: dict[str, Any]) -> None:
    assert advice(ROWS, dataclasses.replace(CONFIG, **changes)) is None


@pytest.mark.parametrize("rows", [[], [{"loss": [1.0]}]])
def test_nothing_is_told_of_no_gradients(rows: list[dict[str, Any]]) -> None:
    """A user's own learner need not measure them."""
    assert advice(rows, CONFIG) is None
