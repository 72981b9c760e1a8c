"""Actions of any kind, from the distribution to training, evaluating and watching."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_distributions import ALL

import clew
from clew.agents.distributions import Categorical
from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.envs import ENVS
from clew.envs.base import Environment, Transition
from clew.interact.recording import record
from clew.run.build import jax_stream
from clew.run.load import load_agent
from clew.run.progress import Quiet


class Aim(Environment):
    """Two numbers are to be chosen, near 3 and 5; three shots an episode."""

    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=0)
    metric_names = ("worst",)

    @property
    def action_space(self):
        """What may be chosen."""
        return gymnasium.spaces.Box(np.float32([2, 4]), np.float32([4, 6]))

    def reset(self, key):
        """Loads."""
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key):
        """Shoots."""
        shots = state + 1
        miss = jnp.max(jnp.abs(action - jnp.array([3.0, 5.0])))
        shown = shots.astype(jnp.float32)[None]
        return shots, Transition(shown, -miss, shots >= 3, jnp.zeros((), bool), {"worst": miss})


@pytest.mark.parametrize("name", ALL)
def test_a_policy_takes_the_mode_or_draws(name):
    distribution = ALL[name]
    parameters = jax.random.normal(jax.random.key(0), (5, distribution.num_parameters))
    key = jax.random.key(1)
    greedy = distribution.choose(parameters, key, greedy=True)
    np.testing.assert_array_equal(greedy, distribution.mode(parameters))
    drawn = distribution.choose(parameters, key, greedy=False)
    expected = distribution.sample(parameters, distribution.noise(key, (5,)))
    np.testing.assert_array_equal(drawn, expected)


def test_choices_are_drawn_as_jax_draws_them():
    logits = jax.random.normal(jax.random.key(0), (50, 4))
    drawn = Categorical(4).choose(logits, jax.random.key(1), greedy=False)
    np.testing.assert_array_equal(drawn, jax.random.categorical(jax.random.key(1), logits))


def test_a_task_with_other_actions_than_choices_is_evaluated_and_watched(tmp_path, monkeypatch):
    """What the task gets lies within its space, and is what the policy's distribution says."""
    monkeypatch.setitem(ENVS, "aim", Aim)
    config = clew.TrainConfig(
        env="aim",
        memory="none",
        memory_options={},
        network=NetworkConfig(head_size=8, continuous="tanh"),
        algorithm="ppo",
        ppo=PPOConfig(num_envs=2, rollout_length=8, sequence_length=8, minibatches=1, epochs=1),
        steps=32,
        run_dir=str(tmp_path),
    )
    run = clew.train(config, progress=Quiet())
    agent = clew.load(run.path)
    shown, starts = jnp.arange(3.0)[:, None], jnp.array([True, False, False])
    logits = agent.unroll(agent.init_state(), shown, starts)[1]
    aimed = np.asarray(agent.distribution.decode(agent.distribution.mode(logits)))
    misses = np.abs(aimed - np.array([3.0, 5.0])).max(axis=1)
    score = clew.evaluate(run.path, episodes=3)
    np.testing.assert_allclose(score.pooled["return"].mean, -misses.sum(), rtol=1e-5)
    drawn = clew.evaluate(run.path, episodes=3, greedy=False)
    assert -3 <= drawn.pooled["return"].mean < 0
    assert drawn.pooled["return"].mean != score.pooled["return"].mean
    (recording,) = record(load_agent(run.path).agent, jax_stream(config))
    np.testing.assert_allclose(recording.rewards, -misses, rtol=1e-5)
    assert recording.probabilities is None
