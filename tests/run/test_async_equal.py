"""Asynchronous training without lag equals synchronous training, bit for bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clew.agents.learners.ppo import PPOConfig
from clew.envs.wrappers import WrapperConfig
from clew.run.asynchronous.settings import AsyncConfig
from small_async import after, arrays, async_config, by_turns

CARTPOLE = {
    "env": "gymnasium:CartPole-v1",
    "env_options": {"max_episode_steps": 9},
    "ppo": PPOConfig(
        num_envs=4,
        rollout_length=16,
        sequence_length=8,
        minibatches=2,
        gradient_accumulation=2,
        epochs=2,
        target_kl=1.0,
        schedule="cosine",
        warmup_fraction=0.2,
    ),
}
SAME_STEP = {"env": "labelled:together", "env_options": {"mode": "SameStep"}}
WINDOW = {"memory": "gtrxl", "memory_options": {"hidden_size": 4, "window": 3, "num_layers": 1}}
LEARNING = WrapperConfig(normalise_observations=True, normalise_rewards=True)


def assert_equal(config: Any, updates: int = 3) -> None:
    """Checks that both runners end with the same bits after the same number of updates."""
    made = arrays(after(config, updates))
    sync = replace(config, runner="sync", asynchronous=AsyncConfig())
    expected = arrays(after(sync, updates))
    assert len(made) == len(expected)
    for array, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.slow
def test_serial_equals_sync() -> None:
    """Parameters, optimiser, memories, sums of metrics and keys; with next-step resets."""
    assert_equal(async_config(**CARTPOLE, asynchronous=AsyncConfig(serial=True)))


@pytest.mark.slow
def test_serial_equals_sync_with_what_is_cached_and_learned_on_the_way() -> None:
    """A window, rebuilt for new parameters, and running statistics; with same-step resets."""
    assert_equal(
        async_config(
            **(SAME_STEP | WINDOW), wrappers=LEARNING, asynchronous=AsyncConfig(serial=True)
        )
    )


@pytest.mark.slow
def test_one_actor_in_a_process_by_turns_equals_sync() -> None:
    """It also holds through shared memory, on one thread."""
    assert_equal(async_config(**CARTPOLE, wrappers=LEARNING, asynchronous=by_turns(actors=1)))


@pytest.mark.slow
def test_several_actors_by_turns_give_the_same_each_time() -> None:
    """Whichever of them is first."""
    config = async_config(**CARTPOLE, asynchronous=by_turns(actors=2))
    first, second = arrays(after(config, 4)), arrays(after(config, 4))
    for array, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(array, other)
