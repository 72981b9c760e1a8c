"""The agent, the learner's view of a rollout, and the loss."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.learners.a2c import A2C, A2CConfig, _normalised_in_episodes, a2c_loss
from clew.agents.learners.base import gradient_step, init_optimiser
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout, reread
from clew.envs import AutoReset
from clew.errors import UserError
from clew.interact.policy import Policy
from clew.interact.rollout import init_actor, rollout
from clew.memory import MEMORIES, options_among
from clew.memory.laws.runs import cast
from memory_samples import DIFFERENT, quick_compilation
from oracles import a2c as oracle
from slow_cases import fast_only
from streams import Scripted, agent_on, short_maze

__all__ = ["quick_compilation"]

STEPS, ENVS = 13, 3
SMALL = {
    "hidden_size": 8,
    "num_layers": 1,
    "num_heads": 2,
    "head_size": 4,
    "ffn_size": 8,
    "window": 5,
    "eta": 2,
}


def small_agent(name: str, stream: Any, seed: int = 0) -> Agent:
    return agent_on(stream, name, options_among(name, SMALL), seed)


@pytest.fixture(scope="module")
def stream() -> AutoReset:
    return short_maze()


@pytest.fixture(scope="module")
def scripted() -> Scripted:
    return Scripted.random()


# Compiled for every memory and run once: only compile time matters.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@partial(eqx.filter_jit, compiler_options=QUICK)
def act_and_reread(agent, stream, key):
    """Two rollouts in a row, and the learner's outputs when it rereads each of them."""
    key, reset_key = jax.random.split(key)
    actor = init_actor(agent, stream, ENVS, reset_key)

    def one(actor, key):
        actor, trajectory, _ = rollout(agent, stream, actor, STEPS, key)
        (logits, values), _ = reread(agent, trajectory)
        log_probs = jax.nn.log_softmax(logits[:-1])
        log_prob = jnp.take_along_axis(log_probs, trajectory.action[..., None], axis=-1)[..., 0]
        return actor, (trajectory, log_prob, values)

    return jax.lax.scan(one, actor, jax.random.split(key, 2))[1]


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_ratio_law(name, scripted):
    """Before the first update the learner's log-probabilities are the actor's: PPO's ratio is 1.

    The second rollout starts from a state that is not the initial one. It runs in float64, because
    a norm of nearly 0 magnifies the rounding of float32 without limit.
    """
    agent = small_agent(name, scripted)
    key = jax.random.key(1, impl="unsafe_rbg")
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        found = act_and_reread(cast(agent, "float64"), scripted, key)
    trajectory, log_prob, values = jax.tree.map(np.asarray, found)
    assert trajectory.start[:, 1:].any() and not trajectory.start[1].all()
    np.testing.assert_allclose(log_prob, trajectory.log_prob, atol=1e-10)
    np.testing.assert_allclose(values[:, :-1], trajectory.value, atol=1e-10)


@pytest.fixture(scope="module")
def trajectory(stream):
    agent = small_agent("gru", stream)
    trajectory, _, _ = act_and_reread(agent, stream, jax.random.key(2))
    return jax.tree.map(lambda leaf: leaf[1], trajectory)


def test_starts_follow_terminations_and_truncations(trajectory):
    starts = np.asarray(trajectory.start[1:])
    terminated = np.asarray(trajectory.discount == 0)
    left_last = np.asarray(trajectory.last[:-1])
    assert terminated.any() and left_last.any()
    np.testing.assert_array_equal(starts, terminated | left_last)
    np.testing.assert_array_equal(trajectory.reward[left_last], 0.0)
    np.testing.assert_array_equal(trajectory.valid, ~left_last)


@pytest.mark.parametrize("normalise", [False, True])
def test_loss_equals_the_transcription(stream, trajectory, normalise):
    agent = small_agent("gru", stream, seed=3)
    config = A2CConfig(gamma=0.9, lam=0.7, entropy_cost=0.1, advantage_normalisation=normalise)
    loss, parts = eqx.filter_jit(a2c_loss)(agent, trajectory, config)
    logits, values = jax.tree.map(np.asarray, reread(agent, trajectory).outputs)
    expected, expected_parts = oracle.a2c_loss(
        logits, values, jax.tree.map(np.asarray, trajectory), config
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    for name, part in expected_parts.items():
        np.testing.assert_allclose(parts[name], part, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("count", [7, 10, 50, 101])
def test_equal_returns_stay_what_they_are(count):
    """Rounding of their mean is not a deviation, or a failure would be taught as a success."""
    normalised = jax.jit(_normalised_in_episodes)
    returns = np.full((count + 2, 2), np.array([0.1, -0.1], np.float32))
    valid = np.ones_like(returns, bool)
    valid[-2:] = False
    np.testing.assert_array_equal(normalised(returns, valid), returns)
    returns[0] = 0.2
    found = np.asarray(normalised(returns, valid))[:count]
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-5)


def test_an_invalid_transition_teaches_nothing(stream, trajectory):
    agent = small_agent("gru", stream, seed=3)
    config = A2CConfig()
    action = jnp.where(trajectory.valid, trajectory.action, 3 - trajectory.action)
    reward = jnp.where(trajectory.valid, trajectory.reward, jnp.nan)
    changed = trajectory._replace(action=action, reward=reward)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda a, t: a2c_loss(a, t, config)[0]))
    a, b = gradient(agent, trajectory), gradient(agent, changed)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_no_gradient_crosses_the_edge_of_a_rollout(stream, trajectory):
    agent = small_agent("gru", stream, seed=3)
    trajectory = trajectory._replace(start=jnp.zeros_like(trajectory.start))

    def loss(state0, stopped):
        given = trajectory._replace(state0=state0)
        if stopped:
            return a2c_loss(agent, given, A2CConfig())[0]
        unroll = jax.vmap(agent.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))
        return unroll(state0, given.observation, given.start)[1].value.sum()

    def size(stopped):
        gradient = jax.grad(partial(loss, stopped=stopped))(trajectory.state0)
        return sum(float(jnp.abs(leaf).sum()) for leaf in jax.tree.leaves(gradient))

    assert size(stopped=True) == 0.0
    assert size(stopped=False) > 0.0


def test_minibatches_take_whole_environments(stream, trajectory):
    agent = small_agent("gru", stream, seed=3)
    config = A2CConfig(num_envs=ENVS, minibatches=ENVS, learning_rate=0.0)
    gathered = Rollout.cut(trajectory, (trajectory.state0,), trajectory.state0)
    learner = A2C(config)
    state = learner.init(agent, lambda: gathered)
    new, _, metrics = eqx.filter_jit(learner.learn)(agent, state, gathered, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, agent, new)
    # Without any step, the mean over minibatches is the mean over environments.
    loss = eqx.filter_jit(a2c_loss)
    losses = [loss(agent, _only(trajectory, b), config)[1]["value_loss"] for b in range(ENVS)]
    np.testing.assert_allclose(metrics["value_loss"], np.mean(losses), rtol=1e-5)


def _only(trajectory, b):
    state0 = jax.tree.map(lambda leaf: leaf[b : b + 1], trajectory.state0)
    rest = jax.tree.map(lambda leaf: leaf[:, b : b + 1], trajectory._replace(state0=()))
    return rest._replace(state0=state0)


def test_clipping_bounds_what_adam_sees(stream, trajectory):
    agent = small_agent("none", stream, seed=3)
    state = ()
    trajectory = trajectory._replace(state0=state, reward=100.0 * trajectory.reward)

    def first_moment(max_norm):
        config = A2CConfig(max_grad_norm=max_norm, adam_b1=0.0)
        optimiser = A2C(config).optimiser
        state = init_optimiser(optimiser, agent)
        loss = partial(a2c_loss, config=config)
        step = eqx.filter_jit(gradient_step)
        _, state, metrics = step(agent, state, trajectory, loss, optimiser)
        leaves = [x for x in jax.tree.leaves(state.optimiser[-1]) if x.ndim]
        half = leaves[: len(leaves) // 2]
        return float(metrics["grad_norm"]), float(jnp.sqrt(sum(jnp.sum(x * x) for x in half)))

    norm, seen = first_moment(0.5)
    assert norm > 5
    np.testing.assert_allclose(seen, 0.5, rtol=1e-3)
    free_norm, _ = first_moment(None)
    np.testing.assert_allclose(free_norm, norm, rtol=1e-5)


def test_a_policy_remembers_until_it_is_told_of_a_start(stream):
    agent = small_agent("gru", stream)
    n = stream.observation_size
    xs = np.random.default_rng(0).random((4, n)).astype(np.float32)
    starts = [True, False, False, True]
    policy = Policy(agent)
    actions = [policy(x, start=s) for x, s in zip(xs, starts, strict=True)]
    _, outputs = agent.unroll(agent.init_state(), jnp.asarray(xs), jnp.asarray(starts))
    assert actions == jnp.argmax(outputs.logits, axis=-1).tolist()
    policy.reset()
    assert [policy(x) for x in xs[:3]] == actions[:3]
    sampled = Policy(agent, greedy=False, seed=1)
    assert {sampled(xs[0], start=True) for _ in range(60)} == set(range(4))
    with pytest.raises(UserError, match=r"\[16\], got \[3\]"):
        policy(np.zeros(3))
