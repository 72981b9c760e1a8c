"""Proximal policy optimisation equals its transcription; tests of the rollouts it receives."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.learners.base import take_batch
from clew.agents.learners.ppo import (
    PPO,
    PPOConfig,
    make_sequences,
    ppo_loss,
)
from clew.agents.network import NetworkConfig
from clew.agents.returns import lambda_returns
from clew.agents.trajectory import (
    Rollout,
    as_environments,
    read,
    refresh_all,
    reread,
    states_after,
)
from clew.interact.rollout import init_actor, rollout
from clew.run.config import TrainConfig, config_from_json
from clew.run.train import train
from oracles import ppo as oracle
from slow_cases import fast_only
from streams import agent_on, short_maze

ENVS, LENGTH, SEQUENCE = 6, 12, 4
CONFIG = PPOConfig(
    num_envs=ENVS, rollout_length=LENGTH, sequence_length=SEQUENCE, minibatches=3, gamma=0.9
)


@pytest.fixture(scope="module")
def acted():
    """An agent, a rollout of it in sequences, the value after it, and the rollout in one piece."""
    stream = short_maze()
    options = {"num_layers": 1, "num_heads": 2, "head_size": 4, "hidden_size": 8, "window": 5}
    agent = agent_on(stream, "gtrxl", options)

    @eqx.filter_jit
    def act(agent, key):
        reset_key, key = jax.random.split(key)

        def one(actor, key):
            actor, trajectory, _ = rollout(agent, stream, actor, SEQUENCE, key)
            return actor, trajectory

        actor = init_actor(agent, stream, ENVS, reset_key)
        keys = jax.random.split(key, LENGTH // SEQUENCE)
        actor, chunks = jax.lax.scan(one, actor, keys)
        seen = actor.timestep
        return chunks, jax.vmap(agent.step)(actor.memory, seen.observation, seen.start)[1].value

    return agent, *act(agent, jax.random.key(1))


@eqx.filter_jit
def whole(chunks):
    """The rollout as one trajectory."""
    first = jax.tree.map(lambda x: x[0], chunks.state0)

    def joined(x, more):
        inner = x[:, : x.shape[1] - more].reshape(-1, *x.shape[2:])
        return jnp.concatenate([inner, x[-1, -1:]]) if more else inner

    seen = [joined(x, 1) for x in (chunks.observation, chunks.start, chunks.last)]
    acted = [joined(x, 0) for x in chunks[3:8]]
    return type(chunks)(*seen, *acted, state0=first)


sequences = eqx.filter_jit(make_sequences)
loss_of = eqx.filter_jit(ppo_loss)


@eqx.filter_jit
def answers(agent, batch):
    state0 = refresh_all(agent, batch.state0, batch.valid.shape[1])
    return read(agent, state0, batch.observation, batch.start).outputs


def present(agent, batch):
    logits, values = answers(agent, batch)
    return np.asarray(logits), np.asarray(values)


@pytest.mark.parametrize("normalise", fast_only([False, True], True))
@pytest.mark.parametrize("value_clip", fast_only([None, 0.05], 0.05))
@pytest.mark.parametrize("lower_clip", ["symmetric", "reciprocal"])
def test_loss_equals_the_transcription(acted, normalise, value_clip, lower_clip):
    agent, chunks, final = acted
    config = replace(
        CONFIG,
        advantage_normalisation=normalise,
        value_clip=value_clip,
        lower_clip=lower_clip,
        clip_ratio=0.2,
    )
    batch = sequences(agent, chunks, final, config)
    moved = jax.tree.map(lambda x: x * 1.1 if eqx.is_inexact_array(x) else x, agent)
    loss, parts = loss_of(moved, batch, config)
    expected, told = oracle.ppo_loss(
        *present(moved, batch), jax.tree.map(np.asarray, batch), config
    )
    assert 0.05 < told["clip_fraction"] < 0.95
    np.testing.assert_allclose(loss, expected, rtol=2e-4, atol=1e-5)
    for name, value in told.items():
        np.testing.assert_allclose(parts[name], value, rtol=2e-4, atol=1e-5, err_msg=name)


def test_an_action_that_has_become_certain_teaches_no_nan(acted):
    """exp of a ratio this large is infinite, and its clipped gradient used to be 0 times that."""
    agent, chunks, final = acted
    batch = sequences(agent, chunks, final, CONFIG)
    batch = batch._replace(log_prob=jnp.full_like(batch.log_prob, -200.0))
    gradient = eqx.filter_grad(lambda agent: loss_of(agent, batch, CONFIG)[0])(agent)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_before_the_first_step_every_ratio_is_one(acted):
    """The ratio law for sequences: each is read from the state that acting had before it."""
    agent, chunks, final = acted
    batch = sequences(agent, chunks, final, CONFIG)
    _, parts = loss_of(agent, batch, CONFIG)
    assert float(parts["clip_fraction"]) == 0
    np.testing.assert_allclose(parts["kl"], 0, atol=1e-6)
    np.testing.assert_allclose(present(agent, batch)[1], batch.value, atol=2e-5)


def test_sequences_hold_the_rollout_and_its_returns(acted):
    agent, chunks, final = acted
    trajectory = jax.tree.map(np.asarray, whole(chunks))
    values = np.append(trajectory.value, np.asarray(final)[None], axis=0)
    read_again = eqx.filter_jit(reread)(agent, trajectory)
    np.testing.assert_allclose(values, read_again.outputs.value, atol=2e-5)
    discounts = np.float32(0.9) * trajectory.discount
    returns = jax.jit(lambda_returns)(
        trajectory.reward, discounts, values, trajectory.valid, CONFIG.lam
    )
    batch = sequences(agent, chunks, final, CONFIG)
    batch, returns = jax.tree.map(np.asarray, (batch, returns))
    count = LENGTH // SEQUENCE
    for k in range(count):
        times, columns = slice(k * SEQUENCE, (k + 1) * SEQUENCE), slice(k * ENVS, (k + 1) * ENVS)
        for name in ("observation", "start"):
            found = getattr(batch, name)[:, columns]
            np.testing.assert_array_equal(found, getattr(trajectory, name)[:-1][times])
        for name in ("action", "log_prob", "value", "valid"):
            found = getattr(batch, name)[:, columns]
            np.testing.assert_array_equal(found, getattr(trajectory, name)[times])
        np.testing.assert_allclose(batch.target[:, columns], returns[times], rtol=1e-5)
        expected = returns[times] - trajectory.value[times]
        np.testing.assert_allclose(batch.advantage[:, columns], expected, atol=1e-5)


def test_minibatches_are_whole_sequences(acted):
    agent, chunks, final = acted
    batch = sequences(agent, chunks, final, CONFIG)
    part = take_batch(batch, jnp.array([3, 11]))
    np.testing.assert_array_equal(part.action, batch.action[:, [3, 11]])
    for mine, all_ in zip(jax.tree.leaves(part.state0), jax.tree.leaves(batch.state0), strict=True):
        np.testing.assert_array_equal(mine, all_[jnp.array([3, 11])])


def test_a_part_of_the_state_may_be_empty(acted):
    """Such as that of a short convolution over one step, or of a frame stack of one."""
    _, chunks, _ = acted
    count = LENGTH // SEQUENCE
    empty = chunks._replace(state0={"before": jnp.zeros((count, ENVS, 0, 4))})
    assert as_environments(empty).state0["before"].shape == (count * ENVS, 0, 4)


@pytest.mark.slow
def test_on_the_policys_own_experience_vtrace_changes_nothing(acted):
    agent, chunks, final = acted
    plain = sequences(agent, chunks, final, CONFIG)
    corrected = sequences(agent, chunks, final, replace(CONFIG, advantages="vtrace"))
    for name in ("advantage", "target"):
        found, expected = getattr(corrected, name), getattr(plain, name)
        np.testing.assert_allclose(found[plain.valid], expected[plain.valid], atol=1e-4)


def gathered(agent, chunks):
    last = jax.tree.map(lambda x: x[-1], chunks)
    read = last.observation[:-1], last.start[:-1]
    memory = eqx.filter_jit(states_after)(agent, last.state0, *read)
    return Rollout(chunks, memory, last.observation[-1], last.start[-1])


def learned(agent, rollout, config):
    learner = PPO(config, updates=2)
    state = learner.init(agent, lambda: rollout)
    return eqx.filter_jit(learner.learn)(agent, state, rollout, jax.random.key(5))


def test_a_rollout_that_lags_is_valued_by_the_present_network(acted):
    """Even at its end: the last memory's cache is that of the network that acted."""
    agent, chunks, _ = acted
    old = gathered(agent, chunks)
    now = jax.tree.map(lambda x: x * 1.5 if eqx.is_inexact_array(x) else x, agent)
    new = old._replace(memory=refresh_all(now, old.memory, ENVS))
    assert not eqx.tree_equal(old.memory, new.memory, rtol=0.1)
    learner = PPO(CONFIG, updates=2)
    state, learn = learner.init(now, lambda: old), eqx.filter_jit(learner.learn)
    found, expected = (learn(now, state, made, jax.random.key(5))[0] for made in (old, new))
    assert eqx.tree_equal(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_policy_that_moved_too_far_is_left_alone(acted):
    fast = replace(CONFIG, learning_rate=0.1, epochs=3)
    agent, chunks, _ = acted
    rollout = gathered(agent, chunks)
    _, _, metrics = learned(agent, rollout, fast)
    assert float(metrics["gradient_steps"]) == 9
    bounded, state, metrics = learned(agent, rollout, replace(fast, target_kl=1e-3))
    made = float(metrics["gradient_steps"])
    assert 1 <= made < 9
    counts = [x for x in jax.tree.leaves(state) if x.dtype == jnp.int32]
    assert [int(x) for x in counts] == [int(made)]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(bounded, eqx.is_array)))


def test_a_linear_schedule_ends_at_nothing(acted):
    config = replace(CONFIG, schedule="linear", epochs=2, learning_rate=1.0)
    schedule = [PPO(config, updates=2).optimiser, PPO(replace(config, epochs=1)).optimiser]
    steps = 2 * 2 * CONFIG.minibatches
    for optimiser, number in zip(schedule, (steps, CONFIG.minibatches), strict=True):
        parameter = jnp.zeros(1)
        state, moved = optimiser.init(parameter), []
        for _ in range(number + 1):
            with jax.numpy_dtype_promotion("standard"):
                step, state = optimiser.update(jnp.ones(1), state, parameter)
            moved.append(abs(float(step[0])))
        expected = [1 - i / number for i in range(number)] + [0.0]
        np.testing.assert_allclose(moved, expected, atol=1e-4)


@pytest.mark.slow
def test_a_run_learns_and_its_settings_come_back(tmp_path):
    config = TrainConfig(
        algorithm="ppo",
        env_options={"corridor_length": 3},
        memory="gru",
        memory_options={"hidden_size": 16},
        network=NetworkConfig(head_size=16),
        ppo=PPOConfig(
            num_envs=16, rollout_length=32, sequence_length=16, learning_rate=2e-3, gamma=0.95
        ),
        steps=60_000,
        log_every=20,
        run_dir=str(tmp_path),
    )
    assert config_from_json(config.to_json()) == config
    result = train(config)
    assert result.summary["final"]["success"]["mean"] > 0.9
    assert config.digest() != replace(config, ppo=replace(config.ppo, lam=0.9)).digest()
    # Settings of another algorithm do not enter the computation, but the end of the schedule does.
    other = replace(config, a2c=replace(config.a2c, lam=0.9), steps=70_000)
    assert config.digest() == other.digest()
    linear = replace(config, ppo=replace(config.ppo, schedule="linear"))
    assert linear.digest() != replace(linear, steps=70_000).digest()
