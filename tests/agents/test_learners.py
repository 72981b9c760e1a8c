"""What holds for every registered learner."""

import copy
import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from clew.agents.learners import LEARNERS, LearnerSettings, describes_updates, make_learner
from clew.agents.learners.base import init_optimiser
from clew.agents.network import NetworkConfig, make_agent
from clew.agents.trajectory import reread
from clew.cli.parse import field_docs, option_names
from clew.envs import AutoReset, TMaze
from clew.interact.rollout import init_actor
from clew.run.config import TrainConfig
from clew.run.updates import gather

SMALL = {"num_envs": 4, "rollout_length": 8}


@pytest.fixture(scope="module")
def stream() -> AutoReset:
    return AutoReset(TMaze(corridor_length=2, time_limit=4, on_time_limit="truncate"))


def small_agent(stream: AutoReset):
    return make_agent(
        "gru",
        {"hidden_size": 8},
        observation_space=stream.observation_space,
        action_space=stream.action_space,
        network=NetworkConfig(head_size=8),
        key=jax.random.key(0),
    )


def small_settings(name: str):
    settings = LEARNERS[name].settings
    names = {field.name for field in dataclasses.fields(settings)}
    return settings(**SMALL | ({"sequence_length": 4} if "sequence_length" in names else {}))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_updates_from_the_rollout_that_it_asks_for(name: str, stream: AutoReset) -> None:
    """Its metrics are those that it names, and before the update its ratio is 1 (the ratio law)."""
    config = small_settings(name)
    config.validate()
    agent, learner = small_agent(stream), make_learner(name, config, 1)

    @eqx.filter_jit
    def update(agent, key):
        actor = init_actor(agent, stream, config.num_envs, key)
        actor, rollout, _ = gather(agent, actor, key, stream=stream, learner=learner)
        state = init_optimiser(learner.optimiser, agent)
        return rollout, *learner.learn(agent, state, rollout, key)

    rollout, new, _, metrics = update(agent, jax.random.key(1))
    assert set(metrics) == set(learner.metrics)
    assert all(describes_updates(metric) for metric in metrics)
    assert not eqx.tree_equal(agent, new)
    length = learner.sequence_length or config.rollout_length
    assert rollout.chunks.reward.shape == (config.rollout_length // length, length, config.num_envs)
    for index in range(config.rollout_length // length):
        chunk = jax.tree.map(lambda x, i=index: x[i], rollout.chunks)
        logits = eqx.filter_jit(reread)(agent, chunk)[0]
        log_prob = agent.distribution.log_prob(logits[:-1], chunk.action)
        np.testing.assert_allclose(np.exp(log_prob - chunk.log_prob), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_settings_and_command_line_have_every_learner(name: str) -> None:
    settings = LEARNERS[name].settings()
    config = TrainConfig(algorithm=name)
    assert config.learning == getattr(LearnerSettings(), name) == settings
    assert isinstance(config.learner, LEARNERS[name])
    assert f"--{name}.num-envs" in set(option_names(TrainConfig))
    assert name in field_docs(TrainConfig)[name]


def test_what_is_left_out_is_not_told_by_the_object() -> None:
    """None is what leaves a setting out; an equal object is as good as the same one."""
    pole = "gymnasium:CartPole-v1"
    given = TrainConfig(env=pole, network=NetworkConfig())
    assert given == TrainConfig(env=pole, network=copy.deepcopy(NetworkConfig()))
    assert given.network.encoder == "none"
    left_out = TrainConfig(env=pole, network=None, wrappers=None, env_options=None)
    assert left_out == TrainConfig(env=pole) == copy.deepcopy(left_out)
    assert left_out.network.encoder == "auto"
