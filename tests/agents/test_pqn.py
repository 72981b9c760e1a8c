"""PQN equals its transcription; its policy, heads and exploration, and whole runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces
from scipy import stats

import clew
from clew import interact
from clew.agents.distributions import Categorical, make_distribution
from clew.agents.distributions.discrete import FORBIDDEN
from clew.agents.heads import ActionValues, Clock, ValuesOfActions, epsilon_greedy
from clew.agents.learners.base import find_gradient
from clew.agents.learners.pqn import PQN, PQNConfig, loss_of_values, pqn_loss
from clew.agents.network import NetworkConfig
from clew.agents.trajectory import Reading, Trajectory, as_environments
from clew.envs import AutoReset, Permutation
from clew.envs.spaces import BARE, MASK
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.inspect import gradient_influence
from clew.interact.episodes import in_one_axis, reads_one_axis
from clew.interact.rollout import gather, init_actor
from clew.interact.task import PlayConfig
from clew.run.config import TrainConfig
from clew.run.load import load_agent
from clew.watch import Caption, Film
from clew.watch.panels import PolicyPanel
from clew.watch.scores import scores_of
from clew.watch.terminal import text_frame
from oracles import pqn as oracle
from slow_cases import fast_only
from small_run import Watch, assert_same_run, small_config
from streams import agent_on

STEPS, BATCH, ACTIONS = 23, 4, 5
SMALL = PQNConfig(num_envs=4, rollout_length=8, sequence_length=4, minibatches=2, epochs=2)


def random_sequences(seed: int, masked: bool) -> tuple[ValuesOfActions, np.ndarray, Trajectory]:
    """Values, masks, and sequences with starts, ends and truncations anywhere.

    Everything after a final observation is NaN or infinite, since none of it may count.
    """
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(STEPS + 1, BATCH, ACTIONS))
    allowed = rng.random(q.shape) < (0.5 if masked else 2)
    allowed[..., 2] = True
    last = rng.random((STEPS + 1, BATCH)) < 0.2
    last[0, 0] = last[STEPS, 1] = True
    discount = (rng.random((STEPS, BATCH)) > 0.2).astype(float)
    reward = np.where(
        last[:-1], rng.choice([np.nan, np.inf], last[:-1].shape), rng.normal(size=last[:-1].shape)
    )
    action = np.array([[rng.choice(np.flatnonzero(row)) for row in rows] for rows in allowed[:-1]])
    nothing: Any = np.zeros((STEPS, BATCH))
    start = np.zeros(last.shape, bool)
    values = np.where(allowed, q, FORBIDDEN)
    made = Trajectory(
        (), start, last, action.astype(np.int32), reward, discount, *(nothing,) * 2, ()
    )
    return ValuesOfActions(nothing, values.max(axis=-1), values), allowed, made


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_and_gradient_equal_the_transcription(masked: bool, lam: float) -> None:
    config = PQNConfig(gamma=0.9, lam=lam)
    for seed in range(3):
        outputs, allowed, made = random_sequences(seed, masked)

        def loss(q: Any, made=made) -> Any:
            reading = Reading(ValuesOfActions(q, jnp.max(q, axis=-1), q), {})
            return loss_of_values(reading, made, config)

        with jax.enable_x64(True):
            trajectory = jax.tree.map(jnp.asarray, made)
            given = jnp.asarray(outputs.action_values)
            (found, parts), gradient = jax.value_and_grad(loss, has_aux=True)(given, trajectory)
        expected, of_parts, slope = oracle.pqn_loss(
            outputs.action_values, allowed, made, config.gamma, lam
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-9)
        assert parts.keys() == of_parts.keys()
        for name, value in of_parts.items():
            np.testing.assert_allclose(parts[name], value, rtol=1e-6, err_msg=name)


def test_epsilon_greedy_is_what_it_says() -> None:
    """Probabilities are exactly 0 where forbidden and match the frequencies of sampled actions."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(40, ACTIONS)).astype(np.float32)
    q[:5] = q[:5, :1]  # among equal values the first is greedy
    allowed = rng.random(q.shape) < 0.6
    allowed[np.arange(40), rng.integers(ACTIONS, size=40)] = True
    values = jnp.where(jnp.asarray(allowed), q, FORBIDDEN)
    categorical = Categorical(ACTIONS)
    for epsilon in (0.0, 0.01, 0.3, 1.0):
        logits = epsilon_greedy(values, jnp.asarray(epsilon))
        p = np.asarray(jax.nn.softmax(logits))
        expected = [oracle.epsilon_greedy(*row, epsilon) for row in zip(q, allowed, strict=True)]
        np.testing.assert_allclose(p, expected, atol=1e-6)
        assert not p[~allowed].any()
        if epsilon < 1:
            best = np.where(allowed, q, -np.inf).argmax(axis=-1)
            np.testing.assert_array_equal(categorical.mode(logits), best)
    row = np.flatnonzero(allowed.sum(axis=1) == 4)[0]
    many = jnp.broadcast_to(epsilon_greedy(values[row], jnp.asarray(0.3)), (50_000, ACTIONS))
    drawn = np.asarray(categorical.sample(many, categorical.noise(jax.random.key(0), (50_000,))))
    counts = np.bincount(drawn, minlength=ACTIONS)
    assert not counts[~allowed[row]].any()
    expected = np.array(oracle.epsilon_greedy(q[row], allowed[row], 0.3))[allowed[row]]
    assert stats.chisquare(counts[allowed[row]], 50_000 * expected).pvalue > 1e-3


def test_epsilon_falls_by_the_update_as_the_authors_has_it() -> None:
    """It is the same for all steps of a rollout, in any form of it, and follows optax's formula."""
    config = replace(SMALL, epsilon_start=0.9, epsilon_end=0.2, exploration_fraction=0.25)
    learner = PQN(config, updates=40)
    steps = jnp.arange(20 * config.rollout_length, dtype=jnp.int32)
    found = np.asarray(learner.epsilon(steps)).reshape(20, config.rollout_length)
    assert (found == found[:, :1]).all()
    schedule = optax.linear_schedule(0.9, 0.2, 0.25 * 40)
    np.testing.assert_allclose(found[:, 0], [schedule(n) for n in range(20)], rtol=1e-5)
    outputs = ValuesOfActions(*(jnp.zeros(2),) * 2, jnp.array([[1.0, 0.0]] * 2))
    clock = Clock(jnp.arange(2, dtype=jnp.int32), jnp.asarray(5 * config.rollout_length))
    p = jax.nn.softmax(learner.gathering.behaviour(outputs, clock))
    np.testing.assert_allclose(p[:, 1], 0.5 * found[5, 0], rtol=1e-5)


def test_heads_have_a_value_for_every_action() -> None:
    """Q follows its equation; V and the greedy action are over allowed actions."""
    heads = ActionValues(6, Categorical(3), hidden_size=8, epsilon=0.1, key=jax.random.key(0))
    h = jax.random.normal(jax.random.key(1), (7, 6))
    mask = jnp.array([[True, False, True]] * 7)
    logits, value, action_values = heads(h, mask)
    assert heads.hidden is not None
    product = heads.hidden[0]
    x = np.asarray(h) @ np.asarray(product.weight)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    q = np.maximum(x, 0) @ np.asarray(heads.output.weight)
    np.testing.assert_allclose(heads(h).action_values, q, atol=1e-5)
    np.testing.assert_allclose(value, q[:, [0, 2]].max(axis=1), atol=1e-5)
    assert (np.asarray(action_values)[:, 1] == np.float32(FORBIDDEN)).all()
    best = q[:, [0, 2]].argmax(axis=1) * 2
    np.testing.assert_array_equal(heads.distribution.mode(logits), best)
    np.testing.assert_allclose(jax.nn.softmax(logits)[np.arange(7), best], 0.95, rtol=1e-5)
    plain = ActionValues(6, Categorical(3), hidden_size=0, epsilon=0.1, key=jax.random.key(0))
    expected = h @ plain.output.weight
    np.testing.assert_allclose(plain(h).action_values, expected, atol=1e-6)


@pytest.mark.parametrize(
    "space",
    [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)],
    ids=lambda space: type(space).__name__,
)
def test_what_is_not_one_choice_is_refused(space: spaces.Space) -> None:
    match = rf"needs one choice of actions \(Discrete\), got actions of a {type(space).__name__} "
    with pytest.raises(UserError, match=match + "space; choose ppo or a2c"):
        ActionValues(4, make_distribution(space), epsilon=0.1, key=jax.random.key(0))


def gathered(**changes: Any) -> tuple[Any, Any, Trajectory]:
    """Learner, agent and sequences of a rollout in a task with masks."""
    stream = AutoReset(Permutation(3))
    learner = PQN(replace(SMALL, num_envs=16, **changes), updates=10)
    agent = agent_on(stream, make_heads=learner.make_heads)

    @eqx.filter_jit
    def act(agent: Any, key: Any) -> Any:
        actor = init_actor(agent, stream, 16, key)
        return gather(agent, actor, key, stream=stream, learner=learner).rollout

    return learner, agent, as_environments(act(agent, jax.random.key(1)).chunks)


@pytest.mark.parametrize("epsilon", fast_only([0.0, 1.0], 1.0))
def test_a_rollout_explores_as_much_as_it_should(epsilon: float) -> None:
    """It takes no forbidden action, and rereading gives the values of acting."""
    learner, agent, sequences = gathered(epsilon_start=epsilon)
    allowed = np.asarray(sequences.observation[MASK])[:-1]
    action = np.asarray(sequences.action)
    assert np.take_along_axis(allowed, action[..., None], axis=-1).all()
    assert not allowed.all() and np.asarray(sequences.start).any()
    _, parts = eqx.filter_jit(pqn_loss)(agent, sequences, learner.config)
    # With one card left there is only one choice.
    assert parts["greedy_fraction"] == 1 if epsilon == 0 else 0.5 < parts["greedy_fraction"] < 0.95
    np.testing.assert_allclose(parts["value"], sequences.value.mean(), atol=1e-5)


def test_no_gradient_passes_through_the_target() -> None:
    """The network's gradient is that of the taken actions' values alone."""
    learner, agent, sequences = gathered()
    chosen = jnp.arange(sequences.start.shape[1], dtype=jnp.int32)

    def loss(agent: Any, batch: Trajectory) -> Any:
        return pqn_loss(agent, batch, learner.config)

    (_, parts), gradient = eqx.filter_jit(
        lambda agent, batch: find_gradient(loss, agent, batch, chosen, 1)
    )(agent, sequences)
    assert np.isfinite(parts["value_loss"]) and parts["value_loss"] > 0
    norms = [float(np.abs(x).max()) for x in jax.tree.leaves(gradient)]
    assert all(np.isfinite(norms)) and max(norms) > 1e-3


def run_config(folder: Any, name: str = "run", **changes: Any) -> TrainConfig:
    learning = {"num_envs": 4, "rollout_length": 8, "sequence_length": 8, "minibatches": 2}
    settings: dict[str, Any] = {
        "algorithm": "pqn",
        "pqn": PQNConfig(**learning, epochs=2, exploration_fraction=1.0),
        "steps": 32 * 32,
        "seeds": 1,
    }
    return small_config(folder, name, **{"a2c": clew.A2CConfig(), **settings, **changes})


@pytest.mark.parametrize("seeds", fast_only([1, 2], 1))
def test_a_run_that_was_stopped_explores_on_where_it_was(tmp_path: Any, seeds: int) -> None:
    """It resumes bit for bit, while epsilon still falls."""
    whole = clew.train(run_config(tmp_path, "whole", seeds=seeds), progress=Watch()).path
    early = [lambda report: report.steps >= 10 * 32]
    ended = clew.train(run_config(tmp_path, seeds=seeds), progress=Watch(), callbacks=early)
    assert ended.summary["updates"] < 32
    assert clew.resume_run(ended.path, progress=Watch()).summary["updates"] == 32
    assert_same_run(ended.path, whole)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned a task with masks."""
    config = run_config(
        tmp_path_factory.mktemp("pqn"),
        env="permutation",
        env_options={"num_cards": 2},
        pqn=PQNConfig(16, 16, 16, 4, 2, learning_rate=3e-3, gamma=0.9),
        network=NetworkConfig(head_size=16),
        steps=40_000,
        log_every=50,
    )
    return clew.train(config, progress=Watch()).path


@pytest.fixture(scope="module")
def recorded(trained: Path) -> tuple[Any, Any, np.ndarray]:
    """The run's agent, a greedy episode, and its forbidden actions."""
    task = interact.make_task("permutation", {"num_cards": 2}, WrapperConfig())
    agent = load_agent(trained).agent
    recording = next(task.recordings(agent, PlayConfig(max_steps=40)))
    return agent, recording, ~recording.observations[MASK]


@pytest.mark.slow
def test_a_run_learns(trained: Path) -> None:
    """It solves the task greedily, and with the actions of its last exploring policy."""
    assert clew.evaluate(trained, episodes=100).per_seed["success"] == [1.0]
    sampled = clew.evaluate(trained, episodes=200, greedy=False).per_seed
    assert sampled["success"][0] > 0.95 and sampled["forbidden"] == [0.0]


@pytest.mark.slow
def test_action_values_are_shown_in_place_of_a_distribution(recorded: Any) -> None:
    """In films and in the terminal; a forbidden action shows no value."""
    _, recording, forbidden = recorded
    q = np.asarray(recording.action_values)
    np.testing.assert_array_equal(recording.actions, q.argmax(axis=1))
    np.testing.assert_allclose(recording.values, q.max(axis=1), rtol=1e-6)
    scores = scores_of(recording)
    assert scores is not None and scores.values is not None and forbidden.any()
    np.testing.assert_array_equal(scores.values, np.where(forbidden, np.nan, q))
    assert scores.shares.min() == 0 and scores.shares.max() == 1
    panels = Film(recording, Caption("a")).panels
    (panel,) = (panel for panel in panels if isinstance(panel, PolicyPanel))
    assert panel.title.startswith("value of each action")
    text = text_frame(recording, 3)
    assert f"{recording.values[3]:.3g} <" in text and "%" not in text


@pytest.mark.slow
def test_an_export_has_the_greedy_policy(trained: Path, recorded: Any, tmp_path: Path) -> None:
    _, recording, forbidden = recorded
    clew.export(trained, tmp_path / "policy")
    exported: Any = clew.load_policy(tmp_path / "policy")
    expected = np.where(forbidden, -np.inf, recording.action_values)
    for t in range(recording.length):
        seen = {name: x[t] for name, x in recording.observations.items()}
        action = exported(seen[BARE], start=t == 0, action_mask=seen[MASK])
        assert action == recording.actions[t]
        np.testing.assert_allclose(exported.outputs["action_values"][0], expected[t], atol=1e-5)


@pytest.mark.slow
def test_influence_is_that_on_action_values(recorded: Any) -> None:
    """The policy's logits are flat almost everywhere; values show that the first card matters."""
    agent, recording, _ = recorded
    one = jax.tree.map(lambda x: x[0], recording.observations)
    found = gradient_influence(
        reads_one_axis(agent, one),
        jnp.asarray(in_one_axis(recording.observations, 1)),
        jnp.arange(recording.length) == 0,
        jnp.asarray(recording.actions),
        jnp.array([2], jnp.int32),
    )
    assert found.policy[0, 0] > 1e-3 and found.log_prob[0, 0] > 1e-4
