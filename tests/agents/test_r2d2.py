"""R2D2 equals its equations, and rereading gives the values of acting."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.heads import Clock
from clew.agents.learners import r2d2, sac
from clew.agents.learners.r2d2 import (
    R2D2,
    Others,
    R2D2Config,
    priorities_of,
    rescaled,
    temporal_differences,
    unscaled,
)
from clew.agents.learners.replayed import gradient_steps_of, steps_before_learning
from clew.agents.learners.sac import SAC
from clew.agents.replay import Steps
from clew.agents.returns import n_step_returns
from clew.envs import AutoReset, Permutation, TMaze
from clew.envs.spaces import MASK
from clew.interact.rollout import gather, init_actor
from memory_samples import quick_compilation
from oracles import r2d2 as oracle
from replays import SMALL_REPLAY, gathered
from streams import agent_on

__all__ = ["quick_compilation"]

CONFIG = R2D2Config(**SMALL_REPLAY, gradient_steps=2)


def random_steps(seed: int, time: int, batch: int, actions: int) -> tuple[Steps, Any, Any]:
    """Steps with terminations and truncations anywhere, and values of two networks."""
    random = np.random.default_rng(seed)
    start, last = random.random((2, time + 1, batch)) < 0.2
    steps = Steps(
        observation=np.zeros((time + 1, batch, 1), np.float32),
        start=start,
        last=last,
        action=random.integers(0, actions, (time, batch)),
        reward=random.normal(size=(time, batch)).astype(np.float32) * 3,
        discount=(random.random((time, batch)) > 0.2).astype(np.float32),
    )
    values = random.normal(size=(2, time + 1, batch, actions)).astype(np.float32) * 4
    return jax.tree.map(jnp.asarray, steps), *values


def test_the_scale_goes_there_and_back() -> None:
    x = np.concatenate([-np.logspace(4, -4, 9), [0.0], np.logspace(-4, 4, 9)]).astype(np.float32)
    np.testing.assert_allclose(rescaled(x), oracle.rescaled(x.astype(float)), rtol=1e-5, atol=1e-7)
    y = np.linspace(-40, 40, 81)
    np.testing.assert_allclose(unscaled(y.astype(np.float32)), oracle.unscaled(y), rtol=1e-5)
    np.testing.assert_allclose(unscaled(rescaled(x)), x, rtol=1e-4, atol=1e-6)
    small = np.logspace(-12, -4, 9, dtype=np.float32)
    np.testing.assert_allclose(unscaled(rescaled(small)), small, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 5, 20])
@pytest.mark.parametrize("rescale", [True, False])
def test_errors_and_priorities_are_those_of_the_equations(n: int, rescale: bool) -> None:
    config = replace(CONFIG, n_step=n, rescaling=rescale, gamma=0.9)
    steps, online, target = random_steps(n, time=11, batch=4, actions=3)
    found = np.asarray(
        temporal_differences(jnp.asarray(online), jnp.asarray(target), steps, config)
    )
    priorities = priorities_of(jnp.asarray(found), steps, 0.9)
    valid = ~np.asarray(steps.last[:-1])
    for b in range(4):
        of_one = [np.asarray(x)[:, b] for x in (steps.action, steps.reward, steps.discount)]
        action, reward, discount = of_one
        expected = oracle.temporal_differences(
            online[:, b].astype(float),
            target[:, b].astype(float),
            action,
            reward.astype(float),
            0.9 * discount.astype(float),
            valid[:, b],
            n,
            rescale,
        )
        scale = 1 + np.abs(expected).max()
        assert np.abs(found[:, b] - expected).max() / scale < 1e-6
        wanted = oracle.priority(expected, valid[:, b], 0.9)
        np.testing.assert_allclose(priorities[b], wanted, rtol=1e-5)


def test_returns_of_n_steps_are_the_sums_that_they_are() -> None:
    steps, values, _ = random_steps(3, time=9, batch=2, actions=1)
    valid, value = ~np.asarray(steps.last[:-1]), values[..., 0]
    found = n_step_returns(steps.reward, steps.discount, jnp.asarray(value), valid, 4)
    for b in range(2):
        case = (np.asarray(steps.reward)[:, b], np.asarray(steps.discount)[:, b], value[:, b])
        expected = [oracle.n_step_return(*case, valid[:, b], t, 4) for t in range(9)]
        np.testing.assert_allclose(found[:, b], expected, rtol=1e-5, atol=1e-6)
    to_the_end = n_step_returns(steps.reward, steps.discount, jnp.asarray(value), valid, 9)
    beyond = n_step_returns(steps.reward, steps.discount, jnp.asarray(value), valid, 10**9)
    np.testing.assert_array_equal(beyond, to_the_end)


def test_it_begins_when_enough_is_there_and_copies_its_target() -> None:
    """Nothing changes before; then the target copies the network at every third gradient step."""
    stream = AutoReset(TMaze(corridor_length=2))
    config = replace(CONFIG, target_period=3, adam_eps=1e-8)
    assert steps_before_learning(config) == 3 * 16  # two rollouts: 4 + 8 steps, and one after them
    learner = R2D2(config)
    agent = agent_on(stream, make_heads=learner.make_heads)

    @eqx.filter_jit
    def update(agent: Any, state: Any, actor: Any, key: Any) -> Any:
        made = gather(agent, actor, key, stream=stream, learner=learner)
        return learner.learn(agent, state, made.rollout, key), made.actor

    actor = init_actor(agent, stream, 3, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 5)
    first = gather(agent, actor, keys[0], stream=stream, learner=learner).rollout
    state, before = learner.init(agent, lambda: first), agent
    targets, metrics = [], []
    for key in keys:
        (agent, state, losses), actor = update(agent, state, actor, key)
        others: Others = state.others
        targets.append(others)
        metrics.append(losses)
        if len(metrics) == 1:
            assert eqx.tree_equal(agent, before) and not any(map(float, losses.values()))
    assert [int(o.gradient_steps) for o in targets] == [0, 2, 4, 6, 8]
    initial = eqx.filter(before, eqx.is_inexact_array)
    same = [bool(eqx.tree_equal(o.target, initial)) for o in targets]
    assert same == [True, True, False, False, False]
    assert not eqx.tree_equal(targets[2].target, targets[3].target)
    assert eqx.tree_equal(targets[3].target, targets[4].target)
    assert gradient_steps_of(config, len(keys)) == int(targets[-1].gradient_steps)
    assert set(metrics[-1]) == set(R2D2.metrics) and float(metrics[-1]["loss"]) > 0
    assert len(np.unique(np.asarray(state.replay.priorities))) > 4


@pytest.mark.slow
def test_forbidden_actions_are_neither_taken_nor_part_of_a_target() -> None:
    stream = AutoReset(Permutation(3))
    learner = R2D2(replace(CONFIG, rescaling=False))
    agent, state, _ = gathered(learner, stream, "gru", 3)
    replayed = learner.replayed

    @eqx.filter_jit
    def read() -> tuple[Any, Any]:
        batch = replayed.take(state.replay, replayed.draw(state.replay, jax.random.key(0)))
        return batch, learner.values(agent, batch).outputs.action_values

    batch, target = read()
    allowed = batch.learned.observation[MASK]
    taken = jnp.take_along_axis(allowed[:-1], batch.learned.action[..., None], axis=-1)
    assert np.asarray(taken[..., 0] | batch.learned.last[:-1]).all()
    errors = temporal_differences(target, target, batch.learned, learner.config)
    assert np.abs(errors).max() < 100


def test_environments_explore_at_rates_of_their_own() -> None:
    learner = R2D2(replace(CONFIG, num_envs=5))
    expected = [0.4 ** (1 + 7 * i / 4) for i in range(5)]
    np.testing.assert_allclose(learner.epsilon(jnp.arange(5)), expected, rtol=1e-5)
    assert R2D2(replace(CONFIG, num_envs=1)).epsilon(jnp.arange(1)) == np.float32(0.4)
    stream = AutoReset(TMaze(corridor_length=2))
    agent = agent_on(stream, make_heads=learner.make_heads)
    outputs = agent.step(agent.init_state(), jnp.zeros(stream.observation_size), jnp.array(True))[1]
    wide = jax.tree.map(lambda x: jnp.stack([x] * 5), outputs)
    logits = learner.explore(wide, Clock(jnp.arange(5), jnp.int32(0)))
    chances = np.exp(logits)
    best = int(np.argmax(outputs.action_values))
    np.testing.assert_allclose(1 - chances[:, best], np.array(expected) * 3 / 4, rtol=1e-4)


@pytest.mark.parametrize(("module", "learner"), [(r2d2, R2D2), (sac, SAC)])
def test_a_schedule_counts_what_is_learned(
    module: Any, learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates that only collect steps do not count."""
    counted: list[int] = []

    def make_schedule(config: Any, steps: int) -> float:
        counted.append(steps)
        return 1e-3

    monkeypatch.setattr(module, "make_schedule", make_schedule)
    own = learner(learner.__annotations__["config"](), updates=100)
    assert own.optimiser is not None
    whole = 100 * own.config.gradient_steps
    assert counted == [gradient_steps_of(own.config, 100)] and 0 < counted[0] < whole
