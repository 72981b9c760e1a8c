"""Updates on whole episodes, as in Makkink (2021), and the network around the memory."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.learners.a2c import A2CConfig, a2c_loss
from clew.agents.network import Agent, NetworkConfig, make_agent
from clew.agents.trajectory import reread
from clew.envs import AutoReset, TMaze
from clew.errors import UserError
from clew.interact.rollout import init_actor, rollout
from clew.memory import make_memory
from clew.run import updates
from clew.run.build import make_parts
from clew.run.compiled import advance
from clew.run.config import TrainConfig
from clew.run.updates import init_run
from memory_samples import quick_compilation
from oracles import a2c as oracle

__all__ = ["quick_compilation"]

STEPS, ENVS = 9, 4
AS_MAKKINK = NetworkConfig(
    encoder="mlp", encoder_size=8, projection="affine", skip=True, head_size=0, init="uniform"
)


def small_agent(stream: AutoReset, memory: str = "gru", **options) -> Agent:
    return make_agent(
        memory,
        {"hidden_size": 8, **options},
        observation_space=stream.observation_space,
        action_space=stream.action_space,
        network=AS_MAKKINK,
        key=jax.random.key(0),
    )


@pytest.fixture(scope="module", params=["terminate", "truncate"])
def played(request):
    """Three rollouts of whole episodes, of two to four steps, with room for nine."""
    stream = AutoReset(TMaze(corridor_length=2, time_limit=4, on_time_limit=request.param))
    agent = small_agent(stream)

    @eqx.filter_jit
    def play(agent, key):
        actor = eqx.filter_jit(init_actor)(agent, stream, ENVS, key)

        def one(actor, key):
            actor, *rest = rollout(agent, stream, actor, STEPS, key, whole_episodes=True)
            return actor, rest

        return jax.lax.scan(one, actor, jax.random.split(key, 3))[1]

    trajectories, sums = play(agent, jax.random.key(1))
    rollouts = [jax.tree.map(lambda leaf, i=i: leaf[i], trajectories) for i in range(3)]
    return agent, rollouts, jax.tree.map(np.asarray, sums)


def test_a_rollout_is_one_episode_of_each_environment(played):
    _, rollouts, sums = played
    np.testing.assert_array_equal(sums["episodes"], ENVS)
    for trajectory, length in zip(rollouts, sums["length"], strict=True):
        valid = np.asarray(trajectory.valid)
        assert trajectory.start[0].all()
        assert valid.sum() == length and valid[0].all()
        # Valid steps come first, and every step after them is excluded from learning.
        assert (np.diff(valid.astype(int), axis=0) <= 0).all() and not valid[-1].any()
        np.testing.assert_array_equal(np.asarray(trajectory.reward)[~valid], 0.0)
        assert (np.asarray(trajectory.start[:-1])[valid].sum()) == ENVS


def test_an_episode_may_be_as_long_as_the_rollout():
    """Even if it is truncated there: the next rollout begins with the next episode."""
    length = 4
    with pytest.warns(UserWarning, match="no episode can succeed"):
        stream = AutoReset(TMaze(corridor_length=9, time_limit=length, on_time_limit="truncate"))
    agent = small_agent(stream)
    actor = init_actor(agent, stream, ENVS, jax.random.key(0))
    play = eqx.filter_jit(partial(rollout, agent, stream, length=length, whole_episodes=True))
    for number in range(3):
        actor, trajectory, sums = play(actor, key=jax.random.key(number))
        assert np.asarray(trajectory.valid).all() and trajectory.start[0].all()
        assert trajectory.last[-1].all() and not trajectory.last[:-1].any()
        assert float(sums["episodes"]) == ENVS and float(sums["length"]) == ENVS * length
        assert actor.timestep.start.all() and not actor.timestep.last.any()


@pytest.mark.parametrize("over_time", ["mean", "sum"])
def test_loss_equals_the_transcription(played, over_time):
    agent, rollouts, _ = played
    config = A2CConfig(
        gamma=0.9,
        lam=1.0,
        entropy_cost=0.1,
        whole_episodes=True,
        return_normalisation=True,
        loss_over_time=over_time,
    )
    loss, parts = eqx.filter_jit(a2c_loss)(agent, rollouts[1], config)
    outputs = eqx.filter_jit(reread)(agent, rollouts[1]).outputs
    logits, values = jax.tree.map(np.asarray, outputs)
    trajectory = jax.tree.map(np.asarray, rollouts[1])
    expected, expected_parts = oracle.a2c_loss(logits, values, trajectory, config)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    for name, part in expected_parts.items():
        np.testing.assert_allclose(parts[name], part, rtol=1e-4, atol=1e-5, err_msg=name)


def test_returns_that_are_all_equal_stay_finite(played):
    agent, rollouts, _ = played
    config = A2CConfig(whole_episodes=True, return_normalisation=True, gamma=0.0, lam=1.0)
    trajectory = rollouts[0]._replace(reward=jnp.ones_like(rollouts[0].reward))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda a, t: a2c_loss(a, t, config)[0]))
    for leaf in jax.tree.leaves(gradient(agent, trajectory)):
        assert np.isfinite(leaf).all()


def test_pondering_is_reported_and_paid_for():
    stream = AutoReset(TMaze(corridor_length=2))
    agent = small_agent(stream, "universal", num_heads=1, head_size=4, window=3, max_steps=3)
    actor = eqx.filter_jit(init_actor)(agent, stream, ENVS, jax.random.key(0))
    play = eqx.filter_jit(partial(rollout, length=3))
    _, trajectory, _ = play(agent, stream, actor, key=jax.random.key(1))

    config = A2CConfig(value_cost=0.0, entropy_cost=0.0, ponder_cost=0.1)
    loss, parts = eqx.filter_jit(a2c_loss)(agent, trajectory, config)
    assert 1 <= parts["memory.ponder_steps"] <= 3
    paid = 0.1 * parts["memory.ponder_cost"]
    np.testing.assert_allclose(loss, parts["policy_loss"] + paid, rtol=1e-5)


def test_the_network_is_algorithm_2():
    """Makkink (2021): encoder, memory, projection, relu, skip connection, one product per head."""
    stream = AutoReset(TMaze(corridor_length=2))
    agent = small_agent(stream)
    x = np.linspace(0, 1, stream.observation_size, dtype=np.float32)
    _, outputs = agent.step(agent.init_state(), jnp.asarray(x), jnp.array(True))
    heads: Any = agent.heads
    z = x
    for layer in agent.encoder.layers:  # pyright: ignore[reportFunctionMemberAccess]
        z = np.maximum(z @ layer.weight + layer.bias, 0)
    _, y = agent.memory.step(agent.init_state(), jnp.asarray(z), jnp.array(True))
    assert agent.projection is not None
    h = np.maximum(agent.projection(y), 0) + z
    np.testing.assert_allclose(outputs.logits, heads.actor.output(h), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs.value, heads.critic.output(h)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"encoder": "mpl"}, "encoder 'mpl'.*mlp"),
        ({"encoder_layers": 0}, "encoder_layers .* got 0"),
        ({"projection": "line"}, "projection 'line'.*linear"),
        ({"head_size": -1}, "head_size .* got -1"),
        ({"init": "zeros"}, "init 'zeros'"),
        ({"skip": True}, "16 in and 8 out"),
    ],
)
def test_impossible_networks_are_refused(settings, told):
    memory = make_memory("gru", input_size=16, key=jax.random.key(0), hidden_size=8)
    with pytest.raises(UserError, match=told):
        Agent(memory, 4, key=jax.random.key(1), network=NetworkConfig(**settings))


def test_normalised_returns_need_whole_episodes():
    with pytest.raises(UserError, match="needs whole_episodes"):
        A2CConfig(return_normalisation=True).validate()


def test_reading_once_learns_what_reading_twice_does(monkeypatch):
    config = TrainConfig(
        env="memory_chain",
        env_options={"memory_length": 3, "num_bits": 2},
        memory="gru",
        memory_options={"hidden_size": 8},
        network=AS_MAKKINK,
        a2c=A2CConfig(num_envs=2, rollout_length=5, whole_episodes=True),
        steps=1000,
    )
    parts, found = make_parts(config), []
    for way in ("once", "twice"):
        if way == "twice":
            monkeypatch.setattr(updates, "updates_open_loop", lambda config, env: False)
        program = partial(advance, partial(updates.update, parts, parts.task.require_stream()))
        run = jax.jit(program)(init_run(parts), jnp.int32(4))
        found.append((run.seed.agent, run.seed.sums, run.seed.actor.timestep.observation))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *found)
    assert found[0][1]["episodes"] == 8
