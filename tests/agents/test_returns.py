"""Lambda-returns equal a plain loop, also at the ends of episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.returns import lambda_returns, vtrace
from oracles import a2c as oracle
from oracles import ppo as ppo_oracle

returns_of = jax.jit(lambda_returns)


def random_case(seed: int, steps: int, batch: int):
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(steps, batch)).astype(np.float32)
    discount = (0.9 * (rng.random((steps, batch)) > 0.2)).astype(np.float32)
    value = rng.normal(size=(steps + 1, batch)).astype(np.float32)
    valid = rng.random((steps, batch)) > 0.2
    return reward, discount, value, valid


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_equals_the_loop(steps, lam):
    case = random_case(steps, steps, 3)
    found = returns_of(*case, lam)
    for b in range(3):
        reward, discount, value, valid = (x[:, b] for x in case)
        expected = oracle.lambda_returns(reward, discount, value, valid, lam)
        np.testing.assert_allclose(found[:, b], expected, rtol=1e-5, atol=1e-6)


def one_episode(discount, valid, value):
    reward = jnp.asarray([1.0, 2.0, 0.0, 4.0])
    return returns_of(reward, jnp.asarray(discount), jnp.asarray(value), jnp.asarray(valid), 1.0)


def test_nothing_passes_a_termination():
    value = [0.0, 0.0, 50.0, 60.0, 70.0]
    found = one_episode([0.5, 0.0, 0.5, 0.5], [True] * 4, value)
    assert found.tolist() == [1.0 + 0.5 * 2.0, 2.0, 0.5 * (4.0 + 35.0), 4.0 + 35.0]


def test_a_truncation_is_completed_with_the_value_of_its_final_observation():
    # Observation 2 is a final one; the transition that leaves it is not valid.
    value = [0.0, 0.0, 50.0, 60.0, 70.0]
    found = one_episode([0.5] * 4, [True, True, False, True], value)
    assert found.tolist() == [1.0 + 0.5 * 27.0, 2.0 + 0.5 * 50.0, 50.0, 4.0 + 35.0]


def test_the_next_episode_does_not_reach_over_a_truncation():
    valid = [True, True, False, True]
    first = one_episode([0.5] * 4, valid, [0.0, 0.0, 50.0, 60.0, 70.0])
    second = one_episode([0.5] * 4, valid, [0.0, 0.0, 50.0, jnp.nan, jnp.nan])
    np.testing.assert_array_equal(first[:3], second[:3])


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("clip", [0.5, 1.0, 3.0])
def test_vtrace_equals_its_sum(lam, clip):
    case = random_case(5, 9, 3)
    log_ratio = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    targets, advantages = jax.jit(vtrace)(*case, log_ratio, lam, clip)
    for b in range(3):
        one = (x[:, b] for x in (*case, log_ratio))
        expected = ppo_oracle.vtrace(*one, lam, clip)
        np.testing.assert_allclose(targets[:, b], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(advantages[:, b], expected[1], rtol=1e-4, atol=1e-5)


def test_vtrace_of_the_policys_own_experience_is_the_lambda_return():
    case = random_case(5, 9, 3)
    targets, advantages = vtrace(*case, np.zeros((9, 3), np.float32), 0.8, 1.0)
    returns = lambda_returns(*case, 0.8)
    np.testing.assert_allclose(targets, returns, rtol=1e-5, atol=1e-6)
    valid = case[3]
    np.testing.assert_allclose(advantages[valid], (returns - case[2][:-1])[valid], atol=1e-5)
