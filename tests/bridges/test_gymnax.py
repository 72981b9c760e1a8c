"""Environments with gymnax's interface, tested with a package that stands in for gymnax."""

import sys
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.learners.ppo import PPOConfig
from clew.bridges import jax_packages
from clew.bridges.gymnax import GymnaxEnvironment
from clew.bridges.make import env_options, make_env
from clew.envs import AutoReset
from clew.envs.gymnasium_api import JaxTaskEnv
from clew.errors import UserError
from clew.run.build import make_parts
from fake_gymnax import Base, State, box, discrete
from slow_cases import fast_only
from small_run import Watch
from streams import roll

TIME, MANY = 60, 4


def labels(**options):
    """A stream of labelled observations under changing actions, and these actions."""
    actions = np.arange(TIME * MANY).reshape(TIME, MANY) % 3
    return roll(make_env("gymnax:Labelled-v0", **options), actions, seed=1), actions


@pytest.mark.parametrize("limit", [None, 3, 2, 1])
def test_every_observation_is_shown_once_with_its_start(pretended_gymnax, limit):
    cut = limit is not None and limit < 3
    steps, actions = labels(**({} if limit is None else {"max_steps_in_episode": limit}))
    label, time = np.moveaxis(steps.observation, -1, 0)
    shown = [set(zip(label[:, b], time[:, b], strict=True)) for b in range(MANY)]
    assert all(len(pairs) == TIME + 1 for pairs in shown)
    np.testing.assert_array_equal(steps.start, time == 0)
    np.testing.assert_array_equal(steps.last, time == (limit if cut else -1))
    goes_on = ~steps.start[1:]
    np.testing.assert_array_equal(label[1:][goes_on], label[:-1][goes_on])
    np.testing.assert_array_equal(time[1:][goes_on], time[:-1][goes_on] + 1)
    # After a termination nothing follows, unlike after a time limit; both at once terminate.
    np.testing.assert_array_equal(steps.discount, np.where(steps.ended & ~steps.last, 0, 1))
    assert steps.ended.any() and (steps.discount.min() == 1) == cut
    np.testing.assert_array_equal(steps.ended[1:], steps.last[1:] if cut else steps.start[1:])
    left = steps.last[:-1]
    earned = np.where(left, 0, (time[:-1] + 1 + actions))
    np.testing.assert_array_equal(steps.reward[1:], earned)
    np.testing.assert_array_equal(steps.metrics["bonus"], 7 * steps.ended)
    assert set(steps.metrics) == {"bonus", "return", "length"}


def test_types_never_change_though_the_package_opens_with_plain_numbers(pretended_gymnax):
    stream = AutoReset(make_env("gymnax:Labelled-v0"))
    key = jax.random.key(0)
    state, first = stream.reset(key)
    after = stream.step(state, jnp.int32(1), key)
    described = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), (state, first))
    assert described == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), after)


def test_options_go_to_the_constructor_or_into_the_params(pretended_gymnax):
    env: Any = make_env("gymnax:Labelled-v0", scale=100.0, ends=5, reward=2, mirrored=True)
    params = env.spec.params
    assert env.spec.env.scale == 100.0
    assert (int(params.ends), float(params.reward), bool(params.mirrored)) == (5, 2.0, True)
    assert env_options("gymnax:Labelled-v0") == {
        "scale": 1.0, "ends": 3, "max_steps_in_episode": 1000, "reward": 1.0, "mirrored": False,
    }  # fmt: skip
    assert (env.observation_size, env.num_actions, env.metric_names) == (2, 3, ("bonus",))
    assert env.observation_space == spaces.Box(-np.inf, np.inf, (2,))
    assert env.action_space == spaces.Discrete(3)
    assert env.about == "Shows its episode's label and the time; ends at params.ends."


def test_a_factory_of_a_module_and_an_environment_of_no_base_class():
    env = make_env("gymnax:fake_gymnax:bare", ends=9, size=4, colour="red")
    assert isinstance(env, GymnaxEnvironment)
    assert env.spec.env.given == {"size": 4, "colour": "red"}
    assert int(env.spec.params.ends) == 9
    image, place = env.observation_space["image"], env.observation_space["place"]
    assert (image, place) == (spaces.Box(0, 1, (2, 2, 1), np.float32), spaces.Discrete(4))
    assert env.action_space == spaces.Box(np.float32([-1, -1]), np.float32([1, 2]))
    assert (env.observation_size, env.num_actions) == (5, 0)
    stream = AutoReset(env)
    state, first = stream.reset(jax.random.key(0))
    assert first.observation["image"].dtype == jnp.float32
    assert first.observation["place"].dtype == jnp.int32
    seen = []
    for _ in range(6):
        action = jnp.asarray([0.5, 1.5])
        state, step = jax.jit(lambda *x: stream.step(*x))(state, action, jax.random.key(1))
        seen.append((int(step.observation["place"]), float(step.reward), bool(step.last)))
    assert seen == [(1, 2, False), (1, 2, True), (0, 0, False)] * 2


def test_an_older_environment_is_refused_unless_its_ends_are_said_to_be_terminations(
    pretended_gymnax,
):
    with pytest.raises(UserError, match=r"Older-v0 has only `done`.*every_end="):
        make_env("gymnax:Older-v0")
    env = make_env("gymnax:Older-v0", every_end="terminated", max_steps_in_episode=2)
    steps = roll(env, np.zeros((4, 1), np.int64))
    assert steps.discount.ravel().tolist() == [1, 1, 0, 1, 0] and not steps.last.any()
    with pytest.raises(UserError, match="Labelled-v0 separates terminations from time limits"):
        make_env("gymnax:Labelled-v0", every_end="terminated")


class Only(Base):
    """A base class for environments that break one rule each."""

    def __init__(self, **methods):
        for name, method in methods.items():
            setattr(self, name, method)

    def reset(self, key, params):
        return jnp.zeros(2), State(0.0, 0)

    def step_env(self, key, state, action, params):
        return jnp.zeros(2), State(state.label, state.time + 1), 0.0, False, {}


def answers(*values):
    return lambda key, state, action, params: values


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"step_env": answers(1, 2, 3)}, "must return observation, .* but returned 3 values"),
        ({"step_env": answers(jnp.zeros(3), State(0.0, 0), 0.0, False, {})}, r"\(3,\).* \(2,\)"),
        ({"step_env": answers(jnp.zeros(2), State(0.0, jnp.ones(1)), 0.0, False, {})}, r"\(1,\)"),
        ({"step_env": answers(jnp.zeros(2), (0.0, 0), 0.0, False, {})}, "changes its structure"),
        ({"step_env": answers(jnp.zeros(2), State(0.0, 0), jnp.ones(2), False, {})}, "reward must"),
        ({"step_env": lambda *x: 1 / 0}, "step_env failed: ZeroDivisionError: division by zero"),
        ({"reset": lambda key, params: jnp.zeros(key)}, "reset failed: TypeError"),
        ({"is_truncated": lambda state, params: state.clock > 3}, "is_truncated failed.*clock"),
        ({"is_truncated": None}, "has only `done`"),
        ({"observation_space": lambda params: 3}, "has the space 3; supported are Box"),
        ({"observation_space": lambda params: discrete(2)}, "in shape"),
        ({"observation_space": lambda params: box((2,), 0, 255, jnp.uint8)}, "has uint8"),
        ({"action_space": lambda params: box((2,), 0, 5, jnp.int32)}, "has actions Box"),
    ],
)
def test_what_does_not_follow_the_interface_is_refused(methods, message):
    with pytest.raises(UserError, match=message):
        GymnaxEnvironment(Only(**methods))


def test_a_step_that_opens_episodes_by_itself_will_not_do():
    class StepOnly:
        def reset(self, key, params): ...
        def step(self, key, state, action, params): ...

    with pytest.raises(UserError, match="StepOnly has no step_env; its step is not enough"):
        GymnaxEnvironment(StepOnly())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gymnax:Labeled-v0", {}, "unknown gymnax environment 'Labeled-v0'.*'Labelled-v0'"),
        ("gymnax:Labelled-v0", {"end": 2}, "option of gymnax:Labelled-v0 'end'.*mean 'ends'"),
        ("gymnax:Labelled-v0", {"ends": 2.5}, "ends must be a whole number, got 2.5"),
        ("gymnax:Labelled-v0", {"mirrored": 1}, "mirrored must be true or false, got 1"),
        ("gymnax:Labelled-v0", {"reward": "much"}, "reward must be a number, got 'much'"),
        ("gymnax:Labelled-v0", {"every_end": "cut"}, "unknown value of every_end 'cut'"),
        ("gymnax:fake_gymnax:bear", {}, "unknown name in fake_gymnax 'bear'.*'bare'"),
        ("gymnax:fake_gymnas:bare", {}, "there is no module fake_gymnas"),
    ],
)
def test_mistakes_get_one_line(pretended_gymnax, name, options, message):
    with pytest.raises(UserError, match=message):
        make_env(name, **options)


def test_a_missing_package_and_other_versions_say_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(jax_packages.metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(UserError, match=r"need gymnax: pip install 'clew\[jaxenvs\]'"):
        make_env("gymnax:CartPole-v1")
    for version in ("0.0.9", "1.1.0", "2.0"):
        monkeypatch.setattr(jax_packages.metadata, "version", lambda name, v=version: v)
        with pytest.raises(UserError, match=rf"works with gymnax 1\.0, got {version}: pip install"):
            make_env("gymnax:CartPole-v1")


SETTINGS: dict[str, Any] = {
    "a2c": clew.A2CConfig(num_envs=2, rollout_length=8),
    "ppo": PPOConfig(num_envs=2, rollout_length=8, sequence_length=8, minibatches=1, epochs=1),
}


@pytest.mark.parametrize("algorithm", fast_only(SETTINGS, "ppo"))
def test_it_trains(pretended_gymnax, tmp_path, algorithm):
    config = clew.TrainConfig(
        env="gymnax:Labelled-v0",
        env_options={"max_steps_in_episode": 2},
        memory="gru",
        memory_options={"hidden_size": 4},
        algorithm=algorithm,
        **{algorithm: SETTINGS[algorithm]},
        steps=64,
        run_dir=str(tmp_path),
    )
    assert clew.train(config, progress=Watch()).path.exists()


def test_its_name_alone_is_enough(pretended_gymnax):
    """Its defaults contain no setting that only Gymnasium environments take."""
    make_parts(clew.TrainConfig(env="gymnax:Labelled-v0", memory="gru"))


def test_it_has_a_gymnasium_form(pretended_gymnax):
    """For libraries that train on Gymnasium environments."""
    env = JaxTaskEnv(make_env("gymnax:Labelled-v0", ends=2))
    observation, _ = env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2] for _ in range(2)]
    assert env.observation_space.contains(observation) and ends == [False, True]
