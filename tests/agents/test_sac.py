"""SAC equals its equations; tests of its gradients and of the loss behind each memory."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from clew.agents.distributions import TanhGaussian, make_distribution
from clew.agents.learners.sac import (
    SAC,
    Batch,
    Others,
    SACConfig,
    SoftActorCritic,
)
from clew.agents.network import NetworkConfig, make_agent
from clew.agents.replay import Steps
from clew.agents.trajectory import empty_memories
from clew.envs import AutoReset, Permutation, TMaze
from clew.envs.spaces import MASK
from clew.errors import UserError
from clew.interact.rollout import gather, init_actor
from clew.memory.laws import runs
from memory_samples import quick_compilation
from oracles import sac as oracle
from replays import SMALL_REPLAY, gathered
from slow_cases import fast_only

__all__ = ["quick_compilation"]

CONFIG = SACConfig(**SMALL_REPLAY, gradient_steps=2, gamma=0.9)
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
TIME, BATCH = 8, 5


def agent_for(
    action_space: spaces.Space, learner: SAC, seed: int = 0, memory_of_critic: str = "shared"
) -> Any:
    """A small agent that observes three numbers."""
    return make_agent(
        "gru",
        {"hidden_size": 6},
        observation_space=spaces.Box(-9.0, 9.0, (3,)),
        action_space=action_space,
        network=NetworkConfig(head_size=8, memory_of_critic=memory_of_critic),
        key=jax.random.key(seed),
        make_heads=learner.make_heads,
    )


def random_batch(learner: SAC, agent: Any, seed: int) -> Batch:
    """Sequences with terminations and truncations anywhere, and what a target's critics read."""
    random = np.random.default_rng(seed)
    start, last = random.random((2, TIME + 1, BATCH)) < 0.2
    distribution = agent.distribution
    action: Any = random.integers(0, 4, (TIME, BATCH)).astype(np.int32)
    if isinstance(distribution, TanhGaussian):
        action = random.normal(size=(TIME, BATCH, 2)).astype(np.float32)
    steps = Steps(
        observation=random.normal(size=(TIME + 1, BATCH, 3)).astype(np.float32),
        start=start,
        last=last,
        action=action,
        reward=random.normal(size=(TIME, BATCH)).astype(np.float32) * 3,
        discount=(random.random((TIME, BATCH)) > 0.2).astype(np.float32),
    )
    states = jax.tree.map(lambda x: x + 0.3, empty_memories(agent, BATCH))
    features = random.normal(size=(TIME + 1, BATCH, 6)).astype(np.float32)
    keys = jax.random.split(jax.random.key(seed))
    noise = tuple(distribution.noise(key, (TIME + 1, BATCH)) for key in keys)
    steps = jax.tree.map(jnp.asarray, steps)
    return Batch(steps, states, jnp.asarray(features), cast(Any, noise))


def agent_and_target(
    learner: SAC, action_space: spaces.Space, memory: str
) -> tuple[Any, SoftActorCritic]:
    """An agent, and a target's heads with other parameters."""
    agent, other = (agent_for(action_space, learner, seed, memory) for seed in range(2))
    return agent, other.heads


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Enables 64-bit numbers in JAX."""
    with jax.enable_x64(True):
        yield


SPACES = {"discrete": spaces.Discrete(4), "continuous": BOX}
KINDS = [(kind, memory) for kind in SPACES for memory in ("shared", "separate")]


def soft_value(
    distribution: Any, alpha: float, critics: Any, logits: Any, features: Any, action: Any
) -> tuple[float, float]:
    """V = E[min Q] + alpha H at one step, by the oracle, and its entropy H."""
    if isinstance(distribution, TanhGaussian):
        mean, log_std = distribution.mean_and_log_std(logits)
        entropy = -oracle.log_density(*(np.asarray(x, float) for x in (mean, log_std)), action)
        return min(values_of(critics, features, action)) + alpha * entropy, entropy
    logits = np.asarray(logits, float)
    first, second = (np.asarray(critic(features), float) for critic in critics)
    value = oracle.soft_value_of_choice(logits, first, second, alpha)
    return value, oracle.entropy_of_choice(logits)


def values_of(critics: Any, features: Any, action: np.ndarray) -> list[float]:
    """Q of each critic for a choice, or for a vector of actions."""
    if action.ndim == 0:
        return [float(critic(features)[action]) for critic in critics]
    x = jnp.concatenate([features, jnp.tanh(action)])
    return [float(critic(x)[0]) for critic in critics]


@pytest.mark.parametrize(("kind", "memory"), fast_only(KINDS, ("continuous", "separate")))
def test_losses_and_targets_are_those_of_the_equations(
    kind: str, memory: str, double_precision: None
) -> None:
    """The total, its parts and the temperature's gradient agree to 1e-6."""
    learner = SAC(replace(CONFIG, initial_temperature=0.7))
    agent, target = runs.cast(agent_and_target(learner, SPACES[kind], memory), "float64")
    batch = runs.cast(random_batch(learner, agent, seed=3), "float64")
    (total, parts), gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(lambda agent: learner.loss(agent, target, batch), has_aux=True)
    )(agent)
    outputs = eqx.filter_jit(learner.replayed.values)(agent, batch.states, batch.steps).outputs
    features = np.asarray(outputs.features)[..., -6:]
    steps = jax.tree.map(np.asarray, batch.steps)
    distribution: Any = agent.distribution
    actions = [np.asarray(distribution.sample(outputs.logits, n)) for n in batch.noise]
    soft = partial(soft_value, distribution, alpha := 0.7)

    places = [(t, b) for t in range(TIME) for b in range(BATCH)]
    nexts = [(t + 1, b) for t, b in places]
    after = [
        soft(target.critics, outputs.logits[p], batch.target_features[p], actions[0][p])[0]
        for p in nexts
    ]
    y = [
        oracle.target(float(steps.reward[p]), float(steps.discount[p]), 0.9, value)
        for p, value in zip(places, after, strict=True)
    ]
    now = [soft(agent.heads.critics, outputs.logits[p], features[p], actions[1][p]) for p in places]
    goal = [0.3 * math.log(4) if kind == "discrete" else -2.0] * len(places)
    valid = [not steps.last[p] for p in places]
    arguments = (y, [v for v, _ in now], [h for _, h in now], goal, alpha, valid)
    taken = [values_of(agent.heads.critics, features[p], steps.action[p]) for p in places]
    critic, policy, temperature = oracle.losses(taken, *arguments)
    np.testing.assert_allclose(parts["value_loss"], critic, rtol=1e-6)
    np.testing.assert_allclose(parts["policy_loss"], policy, rtol=1e-6)
    np.testing.assert_allclose(total, critic + policy + temperature, rtol=1e-6)
    # d alpha (H - H*) / d log alpha is the same number.
    found = gradient.heads.log_temperature
    np.testing.assert_allclose(found, temperature, rtol=1e-6)


def norm(tree: Any) -> float:
    return float(sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(tree)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "memory"), KINDS)
def test_whose_loss_each_memory_learns_from(kind: str, memory: str) -> None:
    """The policy's loss gives a shared memory no gradient at all; the critics' always does."""
    learner = SAC(CONFIG)
    agent, target = agent_and_target(learner, SPACES[kind], memory)
    batch = random_batch(learner, agent, seed=4)

    @eqx.filter_jit
    def gradient(agent: Any, name: str) -> Any:
        return eqx.filter_grad(lambda a: learner.loss(a, target, batch)[1][name])(agent)

    of_policy, of_critic = (gradient(agent, name) for name in ("policy_loss", "value_loss"))
    assert norm(of_policy.heads.critics) == 0 and norm(of_policy.heads.actor) > 0
    assert norm(of_critic.heads.critics) > 0 and norm(of_critic.heads.actor) == 0
    if memory == "shared":
        assert norm(of_policy.memory) == 0 and norm(of_critic.memory) > 0
    else:
        for found, own in ((of_policy, 0), (of_critic, 1)):
            assert [norm(m) > 0 for m in found.memory.memories] == [own == 0, own == 1]


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["shared", "separate"])
def test_steps_of_memory_and_temperature_are_fractions(memory: str) -> None:
    """Everything else steps as with a rate of 1, and a target moves by its own fraction."""
    found = []
    for rate in (1.0, 0.1):
        learner = SAC(replace(CONFIG, memory_rate=rate, temperature_rate=rate))
        agent, _ = agent_and_target(learner, BOX, memory)
        params = eqx.filter(agent, eqx.is_inexact_array)
        gradient = jax.tree.map(jnp.ones_like, params)
        optimiser = learner.optimiser
        with jax.numpy_dtype_promotion("standard"):
            updates, _ = optimiser.update(gradient, optimiser.init(params), params)
        found.append(updates)
    whole, part = found

    def assert_fraction(tree: Any, other: Any, fraction: float) -> None:
        for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, fraction * b, rtol=1e-5)

    assert_fraction(part.memory, whole.memory, 0.1)
    assert_fraction(part.encoder, whole.encoder, 1.0)
    assert_fraction(part.heads.critics, whole.heads.critics, 1.0)
    assert_fraction(part.heads.log_temperature, whole.heads.log_temperature, 0.1)
    assert_fraction(part.heads.actor, whole.heads.actor, 1.0)


@pytest.mark.slow
def test_the_target_follows_and_the_rest_learns() -> None:
    """After one gradient step the target is a twentieth of the way from the first to the new."""
    stream = AutoReset(TMaze(corridor_length=2))
    learner = SAC(replace(CONFIG, gradient_steps=1, polyak=0.05))
    agent, state, _ = gathered(learner, stream, "gru", 2)

    @eqx.filter_jit
    def learn(agent: Any, state: Any, key: Any) -> Any:
        actor = init_actor(agent, stream, 3, key)
        rollout = gather(agent, actor, key, stream=stream, learner=learner).rollout
        return learner.learn(agent, state, rollout, key)

    made = learn(agent, state, jax.random.key(1))
    before, after = cast(Others, state.others), cast(Others, made.state.others)
    params = eqx.filter(made.agent, eqx.is_inexact_array)
    expected = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b, before.target, params)
    for a, b in zip(*map(jax.tree.leaves, (after.target, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert not eqx.tree_equal(made.agent, agent)
    assert set(made.metrics) == set(SAC.metrics)


@pytest.mark.slow
def test_forbidden_actions_are_neither_taken_nor_part_of_a_target() -> None:
    """However high their values are; the target entropy is that of the allowed actions."""
    stream = AutoReset(Permutation(3))
    learner = SAC(CONFIG)
    agent, state, _ = gathered(learner, stream, "gru", 3)
    replayed = learner.replayed
    drawn = replayed.take(state.replay, replayed.draw(state.replay, jax.random.key(0)))
    allowed = np.asarray(drawn.learned.observation[MASK])
    taken = np.take_along_axis(allowed[:-1], np.asarray(drawn.learned.action)[..., None], axis=-1)
    assert (taken[..., 0] | np.asarray(drawn.learned.last[:-1])).all() and not allowed.all()
    batch = learner.batch(agent, agent, drawn, jax.random.key(1))
    outputs = replayed.values(agent, batch.states, batch.steps).outputs
    chances = np.asarray(jax.nn.softmax(outputs.logits))
    assert (chances[~allowed] == 0).all()
    goal = learner.target_entropy(agent, batch.steps)
    np.testing.assert_allclose(goal, 0.3 * np.log(allowed.sum(-1)), rtol=1e-6)

    def losses(agent: Any) -> Any:
        return learner.loss(agent, agent.heads, batch)

    (total, parts), gradient = eqx.filter_jit(eqx.filter_value_and_grad(losses, has_aux=True))(
        agent
    )
    assert np.isfinite(float(total)) and all(map(np.isfinite, map(float, parts.values())))
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(gradient))
    values = agent.heads.expected_value(outputs.logits, outputs.features, batch.steps.action)
    lower = jnp.min(jnp.stack([c(outputs.features) for c in agent.heads.critics]), axis=0)
    changed = jnp.where(allowed, lower, 1e6)
    np.testing.assert_allclose(values, np.sum(chances * changed, axis=-1), rtol=1e-5, atol=1e-6)


def test_continuous_actions_are_squashed_whatever_the_network_says() -> None:
    """Within the limits, with the network's deviation and noise."""
    agent = make_agent(
        "gru",
        {"hidden_size": 6},
        observation_space=spaces.Box(-9.0, 9.0, (3,)),
        action_space=BOX,
        network=NetworkConfig(initial_log_std=-1.0, noise_steps=4),
        key=jax.random.key(0),
        make_heads=SAC(CONFIG).make_heads,
    )
    found: Any = agent.distribution
    assert isinstance(found, TanhGaussian) and found.log_std == "head"
    assert (found.initial_log_std, found.noise_steps) == (-1.0, 4)
    np.testing.assert_allclose(found.decode(np.full(2, 99.0, np.float32)), [2.0, 1.0])


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            spaces.MultiDiscrete([2, 3]),
            "sac needs one choice .* MultiDiscrete .*; choose ppo or a2c",
        ),
        (spaces.MultiBinary(2), "MultiBinary space; choose ppo or a2c"),
        (
            spaces.Box(-np.inf, np.inf, (2,)),
            "sac needs finite limits, got -inf .*; choose ppo or a2c",
        ),
    ],
)
def test_actions_that_it_cannot_take_are_named(space: spaces.Space, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SAC(CONFIG).make_heads(
            4, make_distribution(space), hidden_size=4, init="orthogonal", key=jax.random.key(0)
        )


def test_an_entropy_that_a_choice_does_not_have_is_named() -> None:
    """A target above log n would be pursued without end. The error comes when the agent is built,
    before a run has a folder."""

    def make(space: spaces.Space, target: float) -> None:
        agent_for(space, SAC(replace(CONFIG, target_entropy=target)))

    for space, target in ((spaces.Discrete(4), -0.1), (spaces.Discrete(4), 1.39)):
        with pytest.raises(UserError, match=f"from 0 to log 4 = 1.386 nats.*got {target}"):
            make(space, target)
    with pytest.raises(UserError, match="below 2 log 2 = 1.386 nats.*got 1.39"):
        make(BOX, 1.39)
    for space, target in ((spaces.Discrete(4), 1.38), (spaces.Discrete(4), 0.0), (BOX, -2.0)):
        make(space, target)
