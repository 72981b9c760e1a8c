"""Tasks of gymnax itself (pip install 'clew[jaxenvs]') equal the original step by step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.learners.ppo import PPOConfig
from clew.bridges.make import env_options, make_env
from clew.envs import AutoReset, MemoryChain
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from small_run import Watch

gymnax = pytest.importorskip("gymnax", reason="needs pip install 'clew[jaxenvs]'")
pytestmark = pytest.mark.usefixtures("ordinary_promotion")

CASES = {
    "CartPole-v1": {"max_steps_in_episode": 9},
    "Pendulum-v1": {"max_steps_in_episode": 8},
    "MemoryChain-bsuite": {"memory_length": 4},
    "UmbrellaChain-bsuite": {"chain_length": 6},
    "Breakout-MinAtar": {"max_steps_in_episode": 30},
}
FORMS = {
    "CartPole-v1": ((4,), spaces.Discrete(2)),
    "Pendulum-v1": ((3,), spaces.Box(-2, 2, (1,))),
    "MemoryChain-bsuite": ((3,), spaces.Discrete(2)),
    "UmbrellaChain-bsuite": ((3,), spaces.Discrete(2)),
    "Breakout-MinAtar": ((10, 10, 4), spaces.Discrete(3)),
}
STEPS = 60


def drawn(space, count):
    """Random actions of a space."""
    if isinstance(space, spaces.Discrete):
        return jax.random.randint(jax.random.key(3), (count,), 0, int(space.n))
    return jax.random.uniform(jax.random.key(3), (count, *space.shape), minval=-2, maxval=2)


@pytest.mark.parametrize("name", CASES)
def test_the_stream_is_gymnax_s_own_reset_and_step_env(name):
    env = make_env(f"gymnax:{name}", **CASES[name])
    stream = AutoReset(env)
    assert (env.observation_space.shape, env.action_space) == FORMS[name]
    theirs, params = gymnax.make(name)
    params = params.replace(**CASES[name])
    step_env, is_truncated = jax.jit(theirs.step_env), jax.jit(theirs.is_truncated)
    actions = drawn(env.action_space, STEPS)
    key = jax.random.key(0)
    state, seen = jax.jit(lambda k: stream.reset(k))(key)
    ours = jax.jit(lambda *x: stream.step(*x))
    observation, their_state = theirs.reset(key, params)
    over, ends = False, {"terminated": 0, "truncated": 0}
    for key, action in zip(jax.random.split(jax.random.key(1), STEPS), actions, strict=True):
        np.testing.assert_allclose(seen.observation, observation, atol=1e-5)  # compiled separately
        assert seen.observation.dtype == jnp.float32
        state, seen = ours(state, action, key)
        step_key, reset_key = jax.random.split(key)
        if over:  # the step after a final observation
            observation, their_state = theirs.reset(reset_key, params)
            assert seen.start and not seen.ended and seen.reward == 0
            over = False
            continue
        observation, their_state, reward, terminated, _ = step_env(
            step_key, their_state, action, params
        )
        over = bool(is_truncated(their_state, params)) and not terminated
        np.testing.assert_allclose(seen.reward, np.float32(reward), atol=1e-5)
        timesteps = (bool(seen.start), bool(seen.last), float(seen.discount))
        assert timesteps == (bool(terminated), over, 1.0 - bool(terminated))
        ends["terminated"] += bool(terminated)
        ends["truncated"] += over
        if terminated:
            observation, their_state = theirs.reset(reset_key, params)
    assert sum(ends.values()) >= 2 and (ends["truncated"] > 0) == ("v1" in name)


def test_both_ends_in_one_cart_pole():
    stream = AutoReset(make_env("gymnax:CartPole-v1", max_steps_in_episode=15))
    state, _ = jax.vmap(stream.reset)(jax.random.split(jax.random.key(0), 32))

    def one(state, key):
        actions = jax.random.randint(key, (32,), 0, 2)
        return jax.vmap(stream.step)(state, actions, jax.random.split(key, 32))

    _, steps = jax.lax.scan(one, state, jax.random.split(jax.random.key(1), 60))
    terminated, cut = steps.discount == 0, steps.last
    assert terminated.any() and cut.any() and not (terminated & cut).any()
    length = steps.metrics["length"]
    assert (length[cut] == 15).all() and (length[terminated] <= 15).all()
    np.testing.assert_array_equal(length[steps.ended], steps.metrics["return"][steps.ended])
    angle = jnp.abs(steps.observation[..., 2])
    assert (angle[cut] < 0.21).all()  # the final observation, of a pole that is still upright


@pytest.mark.parametrize(("length", "bits"), [(1, 1), (3, 1), (5, 3)])
def test_the_memory_chain_is_ours(length, bits):
    """Observations, rewards and ends are equal; each library draws bits in its own way."""
    theirs = make_env("gymnax:MemoryChain-bsuite", memory_length=length, num_bits=bits)
    ours = MemoryChain(length, bits)
    for seed in range(4):
        key = jax.random.key(seed)
        state, observation = theirs.reset(key)
        (mine, expected), timesteps = ours.reset_to(state.context, state.query), None
        for action in [seed % 2] * (length + 1):
            np.testing.assert_allclose(observation, expected, atol=1e-6)
            state, timesteps = theirs.step(state, jnp.int32(action), key)
            mine, want = ours.step(mine, jnp.int32(action), key)
            assert (timesteps.reward, timesteps.terminated) == (want.reward, want.terminated)
            assert not timesteps.truncated
            observation, expected = timesteps.observation, want.observation
        assert timesteps is not None and timesteps.terminated


def test_options_are_told_apart():
    assert env_options("gymnax:MemoryChain-bsuite") == {
        "max_steps_in_episode": 1000, "memory_length": 5, "num_bits": 1,
    }  # fmt: skip
    with pytest.raises(UserError, match="gymnax:CartPole-v1 'gravty'; did you mean 'gravity'"):
        make_env("gymnax:CartPole-v1", gravty=1.0)
    with pytest.raises(UserError, match="unknown gymnax environment 'CartPole'.*'CartPole-v1'"):
        make_env("gymnax:CartPole")


@pytest.mark.parametrize("name", sorted(set(gymnax.registered_envs) - {"MNISTBandit-bsuite"}))
def test_every_environment_can_be_stepped_side_by_side(name):
    stream = AutoReset(make_env(f"gymnax:{name}"))
    keys = jax.random.split(jax.random.key(0), 2)

    def two_steps(keys, actions):
        state, first = jax.vmap(stream.reset)(keys)
        return jax.lax.scan(
            lambda state, action: jax.vmap(stream.step)(state, action, keys), state, actions
        )[1], first

    actions = drawn(stream.action_space, 4).reshape(2, 2, *stream.action_space.shape)
    steps, first = jax.eval_shape(two_steps, keys, actions)
    assert first.observation.shape == (2, *stream.observation_space.shape)
    assert steps.observation.shape == (2, *first.observation.shape)
    assert steps.observation.dtype in (jnp.float32, jnp.int32)


SETTINGS: dict[str, Any] = {
    "a2c": clew.A2CConfig(num_envs=4, rollout_length=16),
    "ppo": PPOConfig(num_envs=4, rollout_length=16, sequence_length=16, minibatches=2, epochs=1),
}


@pytest.mark.parametrize(
    ("name", "algorithm", "wrappers"),
    [
        ("MemoryChain-bsuite", "a2c", WrapperConfig(reward_scale=2.0)),
        ("Pendulum-v1", "ppo", WrapperConfig()),
        ("CartPole-v1", "ppo", WrapperConfig(keep=(0, 2))),
    ],
)
def test_it_trains(tmp_path, name, algorithm, wrappers):
    config = clew.TrainConfig(
        env=f"gymnax:{name}",
        env_options={},
        memory="gru",
        memory_options={"hidden_size": 8},
        algorithm=algorithm,
        **{algorithm: SETTINGS[algorithm]},
        wrappers=wrappers,
        steps=256,
        log_every=1,
        run_dir=str(tmp_path),
    )
    watch = Watch()
    assert clew.train(config, progress=watch).path.exists()
    assert watch.rows
