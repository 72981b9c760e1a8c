"""popjaxrl's trainer, in `benchmarks.popjaxrl`, gets clew's tasks unchanged."""

import importlib
import sys
import types
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import clew
from fake_gymnax import Space


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The adapter's class, with a base class and spaces as gymnax 0.0.6 has them."""
    environment: Any = types.ModuleType("gymnax.environments.environment")
    environment.Environment, environment.EnvParams = object, Space
    spaces: Any = types.ModuleType("gymnax.environments.spaces")
    spaces.Box = lambda low, high, shape, dtype: gymnasium.spaces.Box(low, high, shape, np.float32)
    spaces.Discrete = gymnasium.spaces.Discrete
    for module in (environment, spaces):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "benchmarks.popjaxrl.adapter", raising=False)
    return importlib.import_module("benchmarks.popjaxrl.adapter").AsGymnax


def test_a_number_of_a_square_is_its_row_and_column(adapted: Any) -> None:
    """Observations, rewards and ends are the task's too, with one-hot integers."""
    task = clew.make_env("mine_sweeper")
    env, key = adapted(task), jax.random.key(0)
    seen, state = env.reset_env(key, None)
    assert env.action_space(None).n == 16
    assert env.observation_space(None).shape == seen.shape == (3,)
    for square in range(16):
        after, step = task.step(state, np.array([square // 4, square % 4]), key)
        seen, found, reward, ended, _ = env.step_env(key, state, square, None)
        assert reward == step.reward and ended == (step.terminated | step.truncated)
        np.testing.assert_array_equal(seen, np.eye(3)[int(step.observation)])
        np.testing.assert_array_equal(found.viewed, after.viewed)


def test_a_time_limit_is_an_end_and_a_torque_a_torque(adapted: Any) -> None:
    task: Any = clew.make_env("position_only_pendulum")
    env, key = adapted(task), jax.random.key(0)
    _, state = env.reset_env(key, None)
    state = state._replace(time=np.int32(task.max_steps - 1))
    torque = np.array([0.5], np.float32)
    assert env.action_space(None) == task.action_space
    expected = task.step(state, torque, key)[1]
    seen, _, reward, ended, _ = env.step_env(key, state, torque, None)
    assert ended and expected.truncated and reward == expected.reward
    np.testing.assert_array_equal(seen, expected.observation)
