"""Action masks: the masked distribution, acting, learning, and what is refused."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import special, stats

import clew
from clew.agents.distributions import Categorical, MultiCategorical, TanhGaussian
from clew.agents.encoders import WithoutEntries, make_encoder
from clew.agents.learners import LEARNERS
from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig, make_agent
from clew.agents.trajectory import reread
from clew.envs import AutoReset, Permutation
from clew.envs.spaces import BARE, MASK, ActionMask
from clew.envs.wrappers import WrapperConfig, wrap
from clew.errors import UserError
from clew.interact import make_task
from clew.interact.rollout import init_actor, rollout
from clew.interact.task import PlayConfig
from clew.memory.laws.runs import cast
from clew.run.config import TrainConfig
from clew.run.load import load_agent
from clew.run.runner import TrainingDiverged
from masked import Masked, masks
from memory_samples import quick_compilation
from small_run import Watch, assert_same_run, small_config
from streams import agent_on

__all__ = ["quick_compilation"]

SIZES = {"one": (6,), "several": (3, 1, 4)}
CASES, BATCH, STEPS = 40, 4, 11
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def distribution(sizes: tuple[int, ...]) -> Any:
    return Categorical(sizes[0]) if len(sizes) == 1 else MultiCategorical(sizes)


class Oracle:
    """One choice among allowed actions: a softmax over their logits alone, in float64."""

    def __init__(self, logits: np.ndarray, mask: np.ndarray):
        self.places = np.flatnonzero(mask)
        z = logits[mask].astype(np.float64)
        self.p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        self.n = len(logits)

    def probabilities(self) -> np.ndarray:
        return np.bincount(self.places, self.p, self.n)

    def entropy(self) -> float:
        return float(stats.entropy(self.p))

    def gradient_of_log_prob(self, action: int) -> np.ndarray:
        """d log p_a / d z_j = [a = j] - p_j."""
        return (np.arange(self.n) == action) * 1.0 - self.probabilities()

    def gradient_of_entropy(self) -> np.ndarray:
        """dH / d z_j = -p_j (log p_j + H)."""
        return np.bincount(
            self.places, -special.xlogy(self.p, self.p) - self.p * self.entropy(), self.n
        )


@pytest.mark.parametrize("kind", SIZES)
def test_a_masked_distribution_is_the_softmax_over_what_is_allowed(kind):
    sizes, d = SIZES[kind], distribution(SIZES[kind])
    logits = 5 * np.random.default_rng(1).standard_normal((CASES, sum(sizes))).astype(np.float32)
    logits[0] *= 1e4
    mask = masks(sizes, CASES)

    @jax.jit
    def facts(logits, mask, noise):
        masked = d.masked(logits, mask)
        action = d.sample(masked, noise)
        gradients = [
            jax.grad(lambda x: d.log_prob(d.masked(x, mask), action).sum())(logits),
            jax.grad(lambda x: d.entropy(d.masked(x, mask)).sum())(logits),
        ]
        return (
            action,
            d.log_prob(masked, action),
            d.entropy(masked),
            gradients,
        )

    noise = d.noise(jax.random.key(0), (CASES,))
    actions, log_probs, entropies, (of_log_prob, of_entropy) = facts(logits, mask, noise)
    ends = np.cumsum([0, *sizes])
    for case in range(CASES):
        spans = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        found = [Oracle(logits[case, span], mask[case, span]) for span in spans]
        chosen = np.atleast_1d(actions[case])
        for oracle, action, span in zip(found, chosen, spans, strict=True):
            assert mask[case, span][action]
            expected = oracle.gradient_of_log_prob(action)
            np.testing.assert_allclose(of_log_prob[case, span], expected, atol=2e-6)
            expected = oracle.gradient_of_entropy()
            np.testing.assert_allclose(of_entropy[case, span], expected, atol=2e-5)
        p = np.prod([o.probabilities()[a] for o, a in zip(found, chosen, strict=True)])
        np.testing.assert_allclose(np.exp(log_probs[case]), p, rtol=1e-4)
        np.testing.assert_allclose(entropies[case], sum(o.entropy() for o in found), atol=1e-5)
    assert not of_log_prob[~mask].any() and not of_entropy[~mask].any()


def test_a_forbidden_action_has_the_probability_zero():
    """Exactly zero, however small the allowed logits are, sampled or greedy."""
    d, mask = Categorical(3), jnp.array([True, False, True])
    logits = d.masked(jnp.array([-1e4, 1e4, -1e4]), mask)
    assert jax.nn.softmax(logits, axis=-1).tolist() == [0.5, 0.0, 0.5]
    many = jnp.broadcast_to(logits, (100_000, 3))
    actions = d.sample(many, d.noise(jax.random.key(0), (100_000,)))
    assert set(np.unique(actions)) == {0, 2} and int(d.mode(logits)) == 0


def test_actions_that_are_no_choices_have_no_masks():
    with pytest.raises(UserError, match="no choices that an action mask could forbid"):
        TanhGaussian((1,), -1.0, 1.0).masked(jnp.zeros(2), jnp.ones(2, bool))
    with pytest.raises(UserError, match="are for Discrete and MultiDiscrete actions, got Box"):
        ActionMask(spaces.Box(-1, 1, (2,)))


def test_an_encoder_reads_the_mask_only_if_it_is_shown():
    hidden, shown = (AutoReset(Masked(), show) for show in (False, True))
    encoder, both = (
        make_encoder(stream.observation_space, NetworkConfig(), key=jax.random.key(0))
        for stream in (hidden, shown)
    )
    assert isinstance(encoder, WithoutEntries) and encoder.output_size == 3
    seen = {BARE: jnp.arange(3.0), MASK: jnp.arange(6) > 2}
    np.testing.assert_array_equal(encoder(seen), [0, 1, 2])
    np.testing.assert_array_equal(np.sort(both(seen)), np.sort([0, 1, 2, 0, 0, 0, 1, 1, 1]))


def test_what_acting_was_learning_reads_again():
    """Log-probabilities and values agree; no forbidden action, which would earn NaN, is taken.

    It runs in float64, because a norm of nearly 0 magnifies the rounding of float32 without limit.
    """
    stream = AutoReset(Masked())
    agent = agent_on(stream)

    @partial(eqx.filter_jit, compiler_options=QUICK)
    def act(agent, key):
        actor = init_actor(agent, stream, BATCH, key)
        actor, _, _ = rollout(agent, stream, actor, STEPS, key)
        _, trajectory, _ = rollout(agent, stream, actor, STEPS, jax.random.fold_in(key, 1))
        (logits, values), _ = reread(agent, trajectory)
        log_prob = agent.distribution.log_prob(logits[:-1], trajectory.action)
        return trajectory, log_prob, values, agent.distribution.entropy(logits)

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        found = act(cast(agent, "float64"), jax.random.key(1))
    trajectory, log_prob, values, entropy = jax.tree.map(np.asarray, found)
    assert trajectory.start[1:].any() and trajectory.last[:-1].any()
    assert np.isfinite(trajectory.reward).all()
    np.testing.assert_allclose(log_prob, trajectory.log_prob, atol=1e-10)
    np.testing.assert_allclose(values[:-1], trajectory.value, atol=1e-10)
    allowed = trajectory.observation[MASK]
    most = np.log(allowed[..., :4].sum(-1)) + np.log(allowed[..., 4:].sum(-1))
    assert (entropy < most + 1e-5).all()
    # At a truncated episode's end too: forbidden actions have no part in its value.
    assert not allowed[trajectory.last].all() and not allowed[~trajectory.last].all()


def test_the_mask_within_a_trial_is_that_of_its_running_episode():
    """An action that the task forbids in its present state would earn NaN."""
    stream = AutoReset(wrap(Masked(), WrapperConfig(trial_episodes=3)))
    agent, steps = agent_on(stream), 120
    actor = init_actor(agent, stream, BATCH, jax.random.key(0))
    _, trajectory, sums = eqx.filter_jit(rollout)(agent, stream, actor, steps, jax.random.key(1))
    assert np.isfinite(trajectory.reward).all() and np.isfinite(sums["return"])
    inside, allowed = trajectory.observation["previous_ended"][..., 0], trajectory.observation[MASK]
    assert inside.sum() > sums["episodes"] > 10
    opened = inside.astype(bool)
    assert allowed[opened].all(axis=-1).mean() < 0.2  # an end would allow everything
    for choice in np.split(allowed[opened], [4], axis=-1):
        assert choice.any(axis=-1).all() and len(np.unique(choice, axis=0)) > 1


def config_of(folder: Any, algorithm: str = "a2c", **changes: Any) -> TrainConfig:
    learning: Any = LEARNERS[algorithm].settings(num_envs=4, rollout_length=8, minibatches=1)
    if algorithm == "ppo":
        learning = replace(learning, sequence_length=4, epochs=1)
    settings: dict[str, Any] = {"env": "masked:Masked", "env_options": {}, "seeds": 1, "steps": 960}
    settings |= {"algorithm": algorithm, "a2c": A2CConfig(), algorithm: learning}
    settings |= {"memory_options": {"hidden_size": 4}, "log_every": 3}
    return small_config(folder, **settings | changes)


@pytest.mark.slow
def test_a_run_with_masks_goes_on_where_it_was(tmp_path):
    """Its loss is finite, too: no forbidden action was taken."""
    whole = clew.train(config_of(tmp_path, "ppo", name="whole"), progress=Watch()).path
    short = config_of(tmp_path, "ppo", steps=320, name="run")
    path = clew.train(short, progress=Watch()).path
    clew.resume_run(path, steps=960, progress=Watch())
    assert_same_run(path, whole)


@pytest.mark.slow
def test_a_mask_that_allows_nothing_ends_a_run_and_an_evaluation(tmp_path):
    options = {"wrong": "nothing"}
    with pytest.raises(TrainingDiverged, match="an action mask that allows no action"):
        clew.train(config_of(tmp_path, env_options=options), progress=Watch())
    task = make_task("masked:Masked", options, WrapperConfig())
    agent = agent_on(task.require_stream())
    params, static = eqx.partition(agent, eqx.is_array)
    play = task.evaluator(static, greedy=True, max_steps=10)
    with pytest.raises(UserError, match="not finite, for example after an action mask"):
        play(params, None, 4, (0, 0))


@pytest.mark.parametrize("wrong", ["shape", "dtype"])
def test_what_is_no_mask_is_refused(wrong):
    stream = AutoReset(Masked(wrong))
    with pytest.raises(
        UserError, match=r"Masked.action_mask must be 6 booleans .*, got (bool|flo)"
    ):
        stream.reset(jax.random.key(0))


def test_a_mask_of_other_actions_is_refused():
    with pytest.raises(UserError, match="does not fit the actions"):
        make_agent(
            "gru",
            {},
            observation_space=AutoReset(Masked()).observation_space,
            action_space=spaces.Discrete(3),
            network=NetworkConfig(),
            key=jax.random.key(0),
        )


def test_a_task_without_masks_is_what_it_was():
    masked, plain = (AutoReset(Permutation(3, masks=on)) for on in (True, False))
    assert masked.masks_actions and not plain.masks_actions
    assert plain.observation_space == Permutation(3).observation_space
    seen = jax.jit(plain.reset)(jax.random.key(0))[1].observation
    both: Any = jax.jit(masked.reset)(jax.random.key(0))[1].observation
    np.testing.assert_array_equal(seen, both[BARE])
    assert agent_on(plain).mask is None


@pytest.mark.slow
def test_an_agent_that_plays_in_every_form_takes_what_is_allowed(tmp_path):
    """In evaluation and in episodes for inspection; the task counts forbidden actions."""
    config = config_of(tmp_path, env="permutation", env_options={"num_cards": 3}, steps=32)
    path = clew.train(config, progress=Watch()).path
    loaded = load_agent(path)
    task = make_task(config.env, config.env_options, config.wrappers)
    for greedy in (True, False):
        found = clew.evaluate(path, episodes=200, greedy=greedy)
        assert found.per_seed["forbidden"] == [0.0]
        how = PlayConfig(3, greedy)
        assert not task.episodes(loaded.agent, how).metrics["forbidden"].any()
        for film in task.recordings(loaded.agent, how):
            assert film.metrics["forbidden"] == 0
        policy: Any = clew.load_policy(path, greedy=greedy)
        for moment in itertools.islice(task.moments(policy, longest=9), 12):
            assert moment.action_mask.any()
        with pytest.raises(UserError, match="was trained with action masks: call"):
            policy(np.zeros(7))


@pytest.mark.slow
def test_an_entry_of_a_jax_tasks_observation_is_a_mask(tmp_path):
    """`MaskEntry` makes it one; observations and actions stay the same."""
    task = make_task("masked:Entry", {}, WrapperConfig(action_mask="legal", keep=(0, 2)))
    stream, plain = task.require_stream(), AutoReset(Masked())
    assert stream.observation_space[BARE].shape == (2,) and stream.masks_actions
    for reset in (stream.reset, plain.reset):
        seen = jax.jit(reset)(jax.random.key(3))[1].observation
        assert set(seen) == {BARE, MASK}
    for env, name in (("masked:Entry", "illegal"), ("masked:Masked", "legal"), ("tmaze", "info")):
        with pytest.raises(UserError, match="action_mask=|masks its actions itself"):
            make_task(env, {}, WrapperConfig(action_mask=name))
    with pytest.raises(UserError, match="show_action_mask needs a mask, but tmaze has none"):
        make_task("tmaze", {}, WrapperConfig(show_action_mask=True))
    wrappers = WrapperConfig(action_mask="legal")
    config = config_of(tmp_path, env="masked:Entry", wrappers=wrappers, steps=32)
    path = clew.train(config, progress=Watch()).path
    observation = {"observation": np.zeros(3), "legal": np.array([0, 1, 0, 0, 0, 1])}
    assert clew.load_policy(path)(observation, start=True).tolist() == [1, 1]
