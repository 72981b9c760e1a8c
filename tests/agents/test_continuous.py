"""Actions of any space, from the distribution to training, evaluating and watching."""

import itertools
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_distributions import ALL

import clew
from clew.agents.distributions import Categorical
from clew.agents.learners.ppo import PPO, PPOConfig
from clew.agents.network import NetworkConfig, make_agent
from clew.envs import ENVS
from clew.envs.base import Environment, Transition
from clew.envs.stream import AutoReset
from clew.interact.acting import compile_act
from clew.interact.compiled_task import CompiledTask, play_batch
from clew.interact.rollout import gather, init_actor, rollout
from clew.interact.task import PlayConfig
from clew.run.build import make_task
from clew.run.load import load_agent
from clew.run.progress import Quiet


class Aim(Environment):
    """The agent chooses two numbers, near 3 and 5; an episode has three shots."""

    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=0)
    metric_names = ("worst",)

    @property
    def action_space(self):
        """The allowed actions."""
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


@pytest.mark.slow
def test_a_task_with_other_actions_than_choices_is_evaluated_and_watched(tmp_path, monkeypatch):
    """The task's actions lie within its space and are drawn from the policy's distribution."""
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
    logits = agent.unroll(agent.init_state(), shown, starts)[1].logits
    aimed = np.asarray(agent.distribution.decode(agent.distribution.mode(logits)))
    misses = np.abs(aimed - np.array([3.0, 5.0])).max(axis=1)
    score = clew.evaluate(run.path, episodes=3)
    np.testing.assert_allclose(score.pooled["return"].mean, -misses.sum(), rtol=1e-5)
    drawn = clew.evaluate(run.path, episodes=3, greedy=False)
    assert -3 <= drawn.pooled["return"].mean < 0
    assert drawn.pooled["return"].mean != score.pooled["return"].mean
    (recording,) = make_task(config).recordings(load_agent(run.path).agent, PlayConfig())
    np.testing.assert_allclose(recording.rewards, -misses, rtol=1e-5)
    assert recording.probabilities is None


def held(drawn: np.ndarray) -> list[bool]:
    """Whether each step has the same noise as the step before."""
    return [np.allclose(now, before, atol=1e-5) for before, now in itertools.pairwise(drawn)]


def aiming(noise_steps: int) -> tuple[clew.Agent, AutoReset]:
    """An agent that samples, and whose noise at every shot can be recovered from its actions."""
    agent = make_agent(
        "none",
        {},
        observation_space=Aim().observation_space,
        action_space=Aim().action_space,
        network=NetworkConfig(head_size=0, noise_steps=noise_steps, initial_log_std=-2.0),
        key=jax.random.key(0),
    )
    # It observes nothing: its mean is always the same, and far from the limits.
    heads: Any = agent.heads
    blind = jax.tree.map(jnp.zeros_like, heads.actor.output)
    blind = eqx.tree_at(lambda linear: linear.bias, blind, jnp.array([3.0, 5.0]))
    return eqx.tree_at(lambda a: a.heads.actor.output, agent, blind), AutoReset(Aim())


NOISE_STEPS = 4
KEPT = [time % NOISE_STEPS != 0 for time in range(1, 12)]
"""The steps, from the second on, that have the noise of the step before."""


@pytest.mark.parametrize("noise_steps", [1, NOISE_STEPS])
def test_noise_is_kept_in_rollouts_of_compiled_and_hosted_tasks(noise_steps: int) -> None:
    agent, stream = aiming(noise_steps)
    expected = KEPT if noise_steps > 1 else [False] * 11
    actor = init_actor(agent, stream, 3, jax.random.key(1))
    _, trajectory, _ = rollout(agent, stream, actor, 12, jax.random.key(2))
    assert held(np.asarray(trajectory.action)) == expected
    assert not np.allclose(trajectory.action[0, 0], trajectory.action[0, 1])
    # Each action's density is what the learner computes, whatever came before the action.
    heads: Any = agent.heads
    logits = agent.distribution.join(jnp.full((12, 3, 2), jnp.array([3.0, 5.0])), heads.free)
    again = agent.distribution.log_prob(logits, trajectory.action)
    np.testing.assert_allclose(again, trajectory.log_prob, atol=1e-6)

    params, static = eqx.partition(agent, eqx.is_array)
    choose = compile_act(static, greedy=False)
    seen = (jnp.zeros((3, 1)), jnp.zeros(3, bool), jax.random.key(3))
    hosted = [choose(params, (), *seen, np.int32(time))[1]["action"] for time in range(12)]
    assert held(np.stack(hosted)) == expected


def test_noise_is_kept_across_the_sequences_that_a_learner_reads() -> None:
    agent, stream = aiming(6)
    actor = init_actor(agent, stream, 3, jax.random.key(1))
    learner = PPO(PPOConfig(num_envs=3, rollout_length=12, sequence_length=4))
    made = gather(agent, actor, jax.random.key(2), stream=stream, learner=learner)
    actions = np.asarray(made.rollout.chunks.action)
    assert held(actions.reshape(12, 3, 2)) == [time % 6 != 0 for time in range(1, 12)]


def test_noise_is_kept_where_episodes_are_evaluated_and_policies_act() -> None:
    agent, stream = aiming(NOISE_STEPS)
    policy = clew.Policy(agent, greedy=False)
    actions = np.stack([policy(np.zeros(1, np.float32), start=time == 0) for time in range(12)])
    assert held(actions) == KEPT
    first = policy(np.zeros(1, np.float32), start=True)
    assert not np.allclose(first, actions[-1])  # each episode starts with noise of its own

    # An episode has three shots, all with the same noise, so the worst equals the others.
    (recording,) = CompiledTask("aim", Aim()).recordings(agent, PlayConfig(greedy=False))
    assert all(held(recording.actions))
    scores = play_batch(agent, stream, False, 3, agent, jax.random.key(0))
    assert scores[1].all()
    np.testing.assert_allclose(scores[0]["return"], -3 * scores[0]["worst"], rtol=1e-5)


def test_kept_noise_of_no_steps_is_refused() -> None:
    with pytest.raises(clew.UserError, match="noise_steps must be an integer of at least 1, got 0"):
        NetworkConfig(noise_steps=0).validate()
