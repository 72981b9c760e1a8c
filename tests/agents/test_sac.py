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
    Networks,
    Others,
    SACConfig,
    SoftActorCritic,
    states_before,
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
from streams import short_maze

__all__ = ["quick_compilation"]

CONFIG = SACConfig(**SMALL_REPLAY, gradient_steps=2, gamma=0.9)
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
TIME, BATCH = 8, 5


def agent_for(action_space: spaces.Space, learner: SAC, seed: int = 0) -> Any:
    """A small agent that observes three numbers."""
    return make_agent(
        "gru",
        {"hidden_size": 6},
        observation_space=spaces.Box(-9.0, 9.0, (3,)),
        action_space=action_space,
        network=NetworkConfig(head_size=8),
        key=jax.random.key(seed),
        make_heads=learner.make_heads,
    )


def random_batch(learner: SAC, agent: Any, seed: int) -> Batch:
    """Sequences with terminations and truncations anywhere, and features of a target network."""
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
    return Batch(steps, states, states, jnp.asarray(features), cast(Any, noise))


def networks_of(learner: SAC, action_space: spaces.Space) -> tuple[Networks, SoftActorCritic]:
    """Networks with different parameters, and a target's heads."""
    agent, other, third = (agent_for(action_space, learner, seed) for seed in range(3))
    return Networks(agent, other if learner.separate else None), third.heads


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
    learner = SAC(replace(CONFIG, memory_of_critic=memory, initial_temperature=0.7))
    networks, target = runs.cast(networks_of(learner, SPACES[kind]), "float64")
    batch = runs.cast(random_batch(learner, networks.agent, seed=3), "float64")
    (total, parts), gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(lambda n: learner.loss(n, target, batch), has_aux=True)
    )(networks)
    read = eqx.filter_jit(learner._read)(networks, batch)
    steps = jax.tree.map(np.asarray, batch.steps)
    distribution: Any = networks.agent.distribution
    actions = [np.asarray(distribution.sample(read.logits, n)) for n in batch.noise]
    judge: Any = networks.of_critic.heads
    soft = partial(soft_value, distribution, alpha := 0.7)

    places = [(t, b) for t in range(TIME) for b in range(BATCH)]
    nexts = [(t + 1, b) for t, b in places]
    after = [
        soft(target.critics, read.logits[p], batch.target_features[p], actions[0][p])[0]
        for p in nexts
    ]
    y = [
        oracle.target(float(steps.reward[p]), float(steps.discount[p]), 0.9, value)
        for p, value in zip(places, after, strict=True)
    ]
    now = [soft(judge.critics, read.logits[p], read.of_critic[p], actions[1][p]) for p in places]
    goal = [0.3 * math.log(4) if kind == "discrete" else -2.0] * len(places)
    valid = [not steps.last[p] for p in places]
    arguments = (y, [v for v, _ in now], [h for _, h in now], goal, alpha, valid)
    taken = [values_of(judge.critics, read.of_critic[p], steps.action[p]) for p in places]
    critic, policy, temperature = oracle.losses(taken, *arguments)
    expected = critic + policy + temperature
    if memory == "separate":
        own: Any = networks.agent.heads
        taken = [values_of(own.critics, read.own[p], steps.action[p]) for p in places]
        expected += oracle.losses(taken, *arguments)[0]
    np.testing.assert_allclose(parts["value_loss"], critic, rtol=1e-6)
    np.testing.assert_allclose(parts["policy_loss"], policy, rtol=1e-6)
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    # d alpha (H - H*) / d log alpha is the same number.
    found = gradient.agent.heads.log_temperature
    np.testing.assert_allclose(found, temperature, rtol=1e-6)


def norm(tree: Any) -> float:
    return float(sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(tree)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "memory"), KINDS)
def test_whose_loss_each_memory_learns_from(kind: str, memory: str) -> None:
    """The policy's loss gives a shared memory no gradient at all; the critics' always does."""
    learner = SAC(replace(CONFIG, memory_of_critic=memory))
    networks, target = networks_of(learner, SPACES[kind])
    batch = random_batch(learner, networks.agent, seed=4)

    @eqx.filter_jit
    def gradient(networks: Any, name: str) -> Any:
        return eqx.filter_grad(lambda n: learner.loss(n, target, batch)[1][name])(networks)

    of_policy, of_critic = (gradient(networks, name) for name in ("policy_loss", "value_loss"))
    body = [of_policy.agent.memory, of_policy.agent.encoder]
    assert (norm(body) == 0) == (memory == "shared")
    assert norm(of_policy.agent.heads.critics) == 0 and norm(of_policy.agent.heads.actor) > 0
    assert norm(of_critic.agent.heads.actor) == 0
    if memory == "shared":
        assert norm(of_critic.agent.memory) > 0 and norm(of_critic.agent.heads.critics) > 0
    else:
        assert norm(of_critic.agent) == 0 and norm(of_policy.critic_network) == 0
        assert (
            norm(of_critic.critic_network.memory) > 0
            and norm(of_critic.critic_network.heads.critics) > 0
        )


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["shared", "separate"])
def test_steps_of_memory_and_temperature_are_fractions(memory: str) -> None:
    """Everything else steps as with a rate of 1, and a target moves by its own fraction."""
    found = []
    for rate in (1.0, 0.1):
        config = replace(CONFIG, memory_of_critic=memory, memory_rate=rate, temperature_rate=rate)
        learner = SAC(config)
        networks, _ = networks_of(learner, BOX)
        params = eqx.filter(networks, eqx.is_inexact_array)
        gradient = jax.tree.map(jnp.ones_like, params)
        optimiser = learner.optimiser
        with jax.numpy_dtype_promotion("standard"):
            updates, _ = optimiser.update(gradient, optimiser.init(params), params)
        found.append(updates)
    whole, part = found

    def assert_fraction(tree: Any, other: Any, fraction: float) -> None:
        for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, fraction * b, rtol=1e-5)

    agents = [(whole.agent, part.agent), (whole.critic_network, part.critic_network)][
        : 1 + (memory == "separate")
    ]
    for a, b in agents:
        assert_fraction(b.memory, a.memory, 0.1)
        assert_fraction(b.encoder, a.encoder, 1.0)
        assert_fraction(b.heads.critics, a.heads.critics, 1.0)
    heads, of_whole = part.agent.heads, whole.agent.heads
    assert_fraction(heads.log_temperature, of_whole.log_temperature, 0.1)
    assert_fraction(heads.actor, of_whole.actor, 1.0)


@pytest.mark.slow
def test_the_target_follows_and_the_rest_learns() -> None:
    """After one gradient step the target is a twentieth of the way from the first to the new."""
    stream = AutoReset(TMaze(corridor_length=2))
    learner = SAC(replace(CONFIG, gradient_steps=1, polyak=0.05, memory_of_critic="separate"))
    agent, state, _ = gathered(learner, stream, "gru", 2)

    @eqx.filter_jit
    def learn(agent: Any, state: Any, key: Any) -> Any:
        actor = init_actor(agent, stream, 3, key)
        rollout = gather(agent, actor, key, stream=stream, learner=learner).rollout
        return learner.learn(agent, state, rollout, key)

    made = learn(agent, state, jax.random.key(1))
    before, after = cast(Others, state.others), cast(Others, made.state.others)
    expected = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b, before.target, after.critic)
    for a, b in zip(*map(jax.tree.leaves, (after.target, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert not eqx.tree_equal(after.critic, before.critic)
    assert not eqx.tree_equal(made.agent, agent)
    assert set(made.metrics) == set(SAC.metrics)


def test_the_critics_memory_is_stored_as_it_was() -> None:
    """Before each block it equals the state after one pass over all observations so far."""
    stream = short_maze()
    learner = SAC(replace(CONFIG, memory_of_critic="separate", first_state="stored"))
    agent, state, rollouts = gathered(learner, stream, "gru", 3)
    of_agent, of_critic = state.replay.states
    for a, b in zip(jax.tree.leaves(of_agent), jax.tree.leaves(of_critic), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)  # it begins as a copy of the agent's
    _, memory = states_before(agent, empty_memories(agent, 3), rollouts[0].chunks)
    for a, b in zip(*map(jax.tree.leaves, (memory, rollouts[0].memory)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


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
    networks = learner.networks(agent, state.others)
    batch = learner.batch(networks, agent, drawn, jax.random.key(1))
    outputs = replayed.values(agent, batch.agent_states, batch.steps).outputs
    chances = np.asarray(jax.nn.softmax(outputs.logits))
    assert (chances[~allowed] == 0).all()
    goal = learner.target_entropy(agent, batch.steps)
    np.testing.assert_allclose(goal, 0.3 * np.log(allowed.sum(-1)), rtol=1e-6)

    def losses(agent: Any) -> Any:
        return learner.loss(Networks(agent, None), agent.heads, batch)

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
