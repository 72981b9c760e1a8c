"""Properties of every registered learner."""

import copy
import dataclasses
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from clew.agents.learners import LEARNERS, LearnerSettings, describes_updates, make_learner
from clew.agents.learners.a2c import A2C, A2CConfig
from clew.agents.learners.base import make_schedule
from clew.agents.learners.ppo import PPO, PPOConfig
from clew.agents.learners.pqn import PQN, PQNConfig
from clew.agents.learners.r2d2 import R2D2, R2D2Config
from clew.agents.learners.sac import SACConfig
from clew.agents.network import Agent, NetworkConfig
from clew.agents.trajectory import reread
from clew.cli.parse import field_docs, option_names
from clew.envs import AutoReset, TMaze
from clew.errors import UserError
from clew.interact.rollout import gather, init_actor, whole_clock
from clew.run.config import TrainConfig
from replays import SMALL_REPLAY
from slow_cases import fast_only
from streams import agent_on, short_maze

SMALL = {"num_envs": 4, "rollout_length": 8}
IN_SEQUENCES = {"sequence_length": 4, "minibatches": 4}
IN_SEQUENCES |= {"period": 4, "burn_in": 0, "replay_steps": 64, "learning_starts": 0}
"""For learners that read in sequences, if they have the settings."""


def small_settings(name: str):
    settings = LEARNERS[name].settings
    names = {field.name for field in dataclasses.fields(settings)}
    if "sequence_length" not in names:
        return settings(**SMALL)
    changes = SMALL | {n: value for n, value in IN_SEQUENCES.items() if n in names}
    return settings(**changes)


@pytest.mark.parametrize(
    "schedule, after", [("constant", [8, 8, 8]), ("linear", [8, 4, 0]), ("cosine", [8, 4, 0])]
)
def test_a_schedule_warms_up_and_ends_where_the_run_does(schedule: str, after: list[int]) -> None:
    """Of 10 steps 2 are warm-up; after half and all of the other 8 the rate is as documented."""
    config = A2CConfig(learning_rate=8.0, schedule=schedule, warmup_fraction=0.2)
    size = make_schedule(config, 10)
    assert size is not None
    np.testing.assert_allclose([size(i) for i in range(3)], [0, 4, 8])
    np.testing.assert_allclose([size(i) for i in (2, 6, 10)], after, atol=1e-5)
    plain = make_schedule(replace(config, warmup_fraction=0.0), 8)
    assert (plain is None) == (schedule == "constant")
    if plain is not None:
        np.testing.assert_allclose([plain(i) for i in (0, 4, 8)], after, atol=1e-5)
    assert A2C(config).gathering.scheduled
    assert A2C(replace(config, warmup_fraction=0.0)).gathering.scheduled == (schedule != "constant")


@pytest.mark.parametrize("memory", ["gru", "none"])
@pytest.mark.parametrize("kind", [A2C, PPO, PQN, R2D2])
def test_the_memory_learns_at_a_rate_of_its_own(kind: type, memory: str) -> None:
    """Everything else steps as without it; SAC's several memories have a test of their own."""
    agent = agent_on(short_maze(), memory, {"hidden_size": 8} if memory == "gru" else {})
    params = eqx.filter(agent, eqx.is_inexact_array)
    gradient = jax.tree.map(jax.numpy.ones_like, params)
    whole, tenth, nothing = (
        _steps(kind(kind.settings(memory_rate=rate)).optimiser, gradient, params)
        for rate in (1.0, 0.1, 0.0)
    )
    assert np.any(arrays_of(whole)[0])
    for fraction, steps in ((0.1, tenth), (0.0, nothing)):
        expected = jax.tree.map(lambda x, f=fraction: f * x, whole.memory)
        for part, other in ((steps.memory, expected), (steps.heads, whole.heads)):
            for array, of_whole in zip(arrays_of(part), arrays_of(other), strict=True):
                np.testing.assert_allclose(array, of_whole, rtol=1e-6)


def _steps(optimiser: optax.GradientTransformation, gradient: Agent, params: Agent) -> Any:
    with jax.numpy_dtype_promotion("standard"):
        return optimiser.update(gradient, optimiser.init(params), params)[0]


ACCUMULATED = {
    "a2c": ("a2c", {}),
    "a2c, sums": ("a2c", {"loss_over_time": "sum", "minibatches": 2}),
    "ppo": ("ppo", {"minibatches": 2, "epochs": 2}),
    "pqn": ("pqn", {"minibatches": 2, "epochs": 2}),
}


@pytest.mark.parametrize("case", fast_only(ACCUMULATED, "ppo"))
def test_a_gradient_in_parts_is_that_of_the_whole(case: str) -> None:
    """Also if parts have different numbers of valid steps, and PPO normalises advantages."""
    name, changes = ACCUMULATED[case]
    stream = AutoReset(TMaze(corridor_length=2, time_limit=5, on_time_limit="truncate"))
    config: Any = replace(small_settings(name), rollout_length=64, adam_eps=1.0, **changes)
    agent = agent_on(stream, make_heads=make_learner(name, config, 1).make_heads)

    @eqx.filter_jit
    def both(agent, key):
        actor = init_actor(agent, stream, config.num_envs, key)
        learner = make_learner(name, config, 1)
        rollout = gather(agent, actor, key, stream=stream, learner=learner).rollout
        learners = (learner, make_learner(name, replace(config, gradient_accumulation=2), 1))
        state = learner.init(agent, lambda: rollout)
        return rollout, [own.learn(agent, state, rollout, key) for own in learners]

    rollout, learned = both(agent, jax.random.key(3))
    assert len(np.unique(np.asarray(rollout.chunks.last).sum(axis=1))) > 1
    (new, _, metrics), (other, _, in_parts) = learned
    moved = [np.abs(x - y).max() for x, y in zip(arrays_of(new), arrays_of(agent), strict=True)]
    assert max(moved) > 1e-5  # a hundred times the allowed difference
    for array, expected in zip(arrays_of(other), arrays_of(new), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-7)
    assert metrics.keys() == in_parts.keys()
    for key, expected in metrics.items():
        np.testing.assert_allclose(in_parts[key], expected, rtol=1e-4, atol=1e-6)


IN_PPO = PPOConfig(num_envs=6, rollout_length=12, sequence_length=4, minibatches=3)
IN_PQN = PQNConfig(num_envs=4, rollout_length=8, sequence_length=4, minibatches=2)
IN_R2D2, IN_SAC = R2D2Config(**SMALL_REPLAY), SACConfig(**SMALL_REPLAY)
IMPOSSIBLE: list[tuple[Any, dict[str, Any], str]] = [
    (A2CConfig(), {"num_envs": 0}, "num_envs"),
    (A2CConfig(), {"rollout_length": 0}, "rollout_length"),
    (A2CConfig(), {"minibatches": 3}, "minibatches"),
    (A2CConfig(), {"learning_rate": float("nan")}, "learning_rate"),
    (A2CConfig(), {"learning_rate": -1e-3}, "learning_rate"),
    (A2CConfig(), {"memory_rate": -1.0}, "memory_rate"),
    (A2CConfig(), {"entropy_cost": float("inf")}, "entropy_cost"),
    (A2CConfig(), {"gamma": 1.5}, "gamma"),
    (A2CConfig(), {"lam": -0.1}, "lam"),
    (A2CConfig(), {"adam_b1": 1.0}, "at 1 nothing is learned"),
    (A2CConfig(), {"adam_eps": 0.0}, "adam_eps"),
    (A2CConfig(), {"max_grad_norm": 0.0}, "max_grad_norm"),
    (IN_PPO, {"sequence_length": 5}, "must divide rollout_length, got sequences of 5"),
    (IN_PPO, {"minibatches": 4}, "got 4 minibatches of 6 environments x 3 sequences = 18"),
    (IN_PPO, {"clip_ratio": 1.0}, "clip_ratio must be below 1, got 1.0"),
    (IN_PPO, {"clip_ratio": 0}, "clip_ratio must be a finite number above 0, got 0"),
    (IN_PPO, {"schedule": "linea"}, "unknown value of schedule 'linea'; did you mean 'linear'"),
    (IN_PPO, {"advantages": "vtrac"}, "did you mean 'vtrace'"),
    (IN_PPO, {"target_kl": -1}, "target_kl must be a finite number above 0, got -1"),
    (IN_PQN, {"sequence_length": 5}, "must divide rollout_length, got sequences of 5"),
    (IN_PQN, {"minibatches": 3}, "got 3 minibatches of 4 environments x 2 sequences = 8"),
    (IN_PQN, {"epsilon_start": 1.5}, "epsilon_start must be .* got 1.5"),
    (IN_PQN, {"epsilon_end": 1.0}, "epsilon_end must be below 1, got 1: such a policy prefers no"),
    (IN_PQN, {"exploration_fraction": 0}, "exploration_fraction must be a finite number above 0"),
    (IN_PQN, {"adam_b2": 1}, "at 1 nothing is learned"),
    (IN_R2D2, {"burn_in": 5}, "must be a multiple of period, got 5 steps and a period of 4"),
    (IN_R2D2, {"replay_steps": 40}, "must have room for the steps before the first"),
    (IN_R2D2, {"burn_in": 0, "rollout_length": 16, "replay_steps": 95}, "two rollouts, 96 steps"),
    (IN_R2D2, {"first_state": "kept"}, "first_state"),
    (IN_R2D2, {"evaluation_epsilon": 1.0}, "prefers no action"),
    (IN_R2D2, {"batch_size": 0}, "batch_size"),
    (IN_R2D2, {"priority_max_fraction": 1.5}, "priority_max_fraction"),
    (IN_R2D2, {"priority_exponent": 3.5}, "priority_exponent must be at most 3, got 3.5"),
    (IN_SAC, {"burn_in": 5}, "must be a multiple of period, got 5 steps and a period of 4"),
    (IN_SAC, {"replay_steps": 40}, "must have room for the steps before the first"),
    (IN_SAC, {"polyak": 0.0}, "polyak"),
    (IN_SAC, {"polyak": 1.5}, "polyak"),
    (IN_SAC, {"initial_temperature": 0.0}, "initial_temperature"),
    (IN_SAC, {"memory_rate": -1.0}, "memory_rate"),
    (IN_SAC, {"temperature_rate": -1.0}, "temperature_rate"),
    (IN_SAC, {"entropy_fraction": 1.5}, "entropy_fraction"),
    (IN_SAC, {"target_entropy": float("nan")}, "target_entropy"),
]


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    IMPOSSIBLE,
    ids=[f"{type(config).__name__} {changes}" for config, changes, _ in IMPOSSIBLE],
)
def test_impossible_settings_are_named(config: Any, changes: dict[str, Any], message: str) -> None:
    """The error says what is possible; without the change there is none."""
    config.validate()
    with pytest.raises(UserError, match=message):
        replace(config, **changes).validate()


@pytest.mark.parametrize("name", LEARNERS)
def test_impossible_parts_are_named(name: str) -> None:
    """A part is at least a sequence, and A2C knows its advantages only after it has read all."""
    config: Any = small_settings(name)
    with pytest.raises(UserError, match=r"warmup_fraction must be .* got 1.5"):
        replace(config, warmup_fraction=1.5).validate()
    if name in ("r2d2", "sac"):  # whose batch is as small as their batch_size
        return
    with pytest.raises(UserError, match="gradient_accumulation must divide the .* got 3 parts of"):
        replace(config, gradient_accumulation=3).validate()
    in_parts = replace(config, gradient_accumulation=2)
    in_parts.validate()
    if name == "a2c":
        with pytest.raises(UserError, match="needs advantage_normalisation off"):
            replace(in_parts, advantage_normalisation=True).validate()


def arrays_of(agent) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(agent, eqx.is_inexact_array))]


@pytest.mark.parametrize("name", fast_only(LEARNERS, "r2d2"))
def test_a_learner_updates_from_the_rollout_that_it_asks_for(name: str) -> None:
    """It returns the metrics that it names, and its first ratio is 1 (the ratio law)."""
    config, stream = small_settings(name), short_maze()
    config.validate()
    learner = make_learner(name, config, 1)
    agent = agent_on(stream, make_heads=learner.make_heads)

    @eqx.filter_jit
    def update(agent, key):
        actor = init_actor(agent, stream, config.num_envs, key)
        rollout = gather(agent, actor, key, stream=stream, learner=learner).rollout
        state = learner.init(agent, lambda: rollout)
        return rollout, learner.learn(agent, state, rollout, key)

    rollout, (new, _, metrics) = update(agent, jax.random.key(1))
    assert set(metrics) == set(learner.metrics)
    assert all(describes_updates(metric) for metric in metrics)
    assert not eqx.tree_equal(agent, new)
    length = learner.gathering.sequence_length or config.rollout_length
    assert rollout.chunks.reward.shape == (config.rollout_length // length, length, config.num_envs)
    for index in range(config.rollout_length // length):
        chunk = jax.tree.map(lambda x, i=index: x[i], rollout.chunks)
        found = eqx.filter_jit(reread)(agent, chunk).outputs
        outputs = jax.tree.map(lambda x: x[:-1], found)
        clock = whole_clock(index * length, length, config.num_envs)
        logits = learner.gathering.behaviour(outputs, clock)
        log_prob = agent.distribution.log_prob(logits, chunk.action)
        np.testing.assert_allclose(np.exp(log_prob - chunk.log_prob), 1.0, rtol=1e-5)
        np.testing.assert_allclose(outputs.value, chunk.value, atol=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_settings_and_command_line_have_every_learner(name: str) -> None:
    settings = LEARNERS[name].settings()
    config = TrainConfig(algorithm=name)
    assert config.learning == getattr(LearnerSettings(), name) == settings
    assert isinstance(config.learner, LEARNERS[name])
    assert f"--{name}.num-envs" in set(option_names(TrainConfig))
    assert name in field_docs(TrainConfig)[name]


def test_what_is_left_out_is_not_told_by_the_object() -> None:
    """None means that a setting is left out; an equal object acts like the same one."""
    pole = "gymnasium:CartPole-v1"
    given = TrainConfig(env=pole, network=NetworkConfig())
    assert given == TrainConfig(env=pole, network=copy.deepcopy(NetworkConfig()))
    assert given.network.encoder == "none"
    left_out = TrainConfig(env=pole, network=None, wrappers=None, env_options=None)
    assert left_out == TrainConfig(env=pole) == copy.deepcopy(left_out)
    assert left_out.network.encoder == "auto"
