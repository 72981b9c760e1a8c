"""Wrappers around JAX tasks give the same numbers as those around host environments."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clew
from clew.bridges.gymnasium.stream import GymnasiumStream
from clew.envs import AutoReset, Environment, TMaze, Transition
from clew.envs.spaces import PREVIOUS_ACTION, PREVIOUS_REWARD, encode_actions
from clew.envs.wrappers import (
    FOR_JAX,
    KeptEntries,
    NoiseAndFlicker,
    PreviousStep,
    ScaledReward,
    WholeObservation,
    WrapperConfig,
    encode_action,
    wrap,
)
from clew.errors import UserError
from clew.interact import make_task
from clew.run.build import make_parts
from streams import roll

STEPS = 40
SHOWN = (PREVIOUS_ACTION, PREVIOUS_REWARD)
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "multi": spaces.MultiDiscrete([3, 2]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
OTHERS = ("multi", "binary", "box")
SETTINGS = [
    {"previous": True},
    {"previous": True, "reward_scale": 0.5, "reward_clip": 2.0, "keep": (2, 0)},
    {"reward_scale": 3.0},
    {"keep": (1,)},
    {"reward_clip": 1.5},
]


class Counting(Environment):
    """Observes (episode, step, parity); episodes have 3 steps, and every other one is truncated."""

    own_actions: str = eqx.field(static=True, default="discrete")
    observation_size: int = eqx.field(static=True, default=3)
    num_actions: int = eqx.field(static=True, default=4)
    metric_names: tuple[str, ...] = eqx.field(static=True, default=("parity",))

    @property
    def action_space(self) -> spaces.Space:
        return ACTIONS[self.own_actions]

    def observe(self, state) -> Any:
        episode, time = state
        return jnp.stack([episode, time, episode % 2]).astype(jnp.float32)

    def reset(self, key):
        state = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return state, self.observe(state)

    def next_episode(self, state, key):
        state = state[0] + 1, jnp.zeros((), jnp.int32)
        return state, self.observe(state)

    def step(self, state, action, key):
        episode, time = state
        state, odd = (episode, time + 1), episode % 2 == 1
        over = time + 1 >= 3
        reward = (time + 1).astype(jnp.float32) - episode.astype(jnp.float32)
        timesteps = Transition(
            self.observe(state), reward, over & odd, over & ~odd, {"parity": jnp.float32(odd)}
        )
        return state, timesteps

    def remembered(self, state):
        return {"parity": state[0] % 2}

    def render_text(self, state, observation):
        return f"{int(state[0])}: {observation.tolist()}"


class HostCounting(gymnasium.Env):
    """The same for Gymnasium."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, own_actions: str = "discrete"):
        self.action_space = ACTIONS[own_actions]
        self.episode, self.time = -1, 0

    def observe(self) -> Any:
        return np.array([self.episode, self.time, self.episode % 2], np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.time = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over, odd = self.time >= 3, self.episode % 2 == 1
        return self.observe(), float(self.time - self.episode), over and odd, over and not odd, {}


def stepped(env: Environment, actions: np.ndarray) -> list[Any]:
    """Time steps of one environment."""
    stream = AutoReset(env)
    key = jax.random.key(0)
    state, first = stream.reset(key)
    timesteps, step = [first], jax.jit(lambda state, action: stream.step(state, action, key))
    for action in actions:
        state, now = step(state, action)
        timesteps.append(now)
    return timesteps


@pytest.mark.parametrize(
    ("actions", "settings"),
    [*(("discrete", settings) for settings in SETTINGS), *((a, SETTINGS[0]) for a in OTHERS)],
)
def test_they_show_what_the_host_s_show(actions, settings):
    """Compared by label: after a termination JAX opens an episode at once, the host one step on."""
    config, space = WrapperConfig(**settings), ACTIONS[actions]
    space.seed(1)
    table = {(e, t): space.sample() for e in range(20) for t in range(4)}
    env = wrap(Counting(actions), config)
    stream = GymnasiumStream(
        SyncVectorEnv([lambda: HostCounting(actions)], autoreset_mode=AutoresetMode.NEXT_STEP),
        wrappers=config,
    )
    host = played_by_label(stream, table, space)
    ours = ours_by_label(env, table, space)
    assert set(ours) <= set(host) and len(ours) >= 15
    assert len({label for label in ours if label[1] == 3 and label[0] % 2 == 0}) >= 3
    for label, (observation, reward) in ours.items():
        expected, earned = host[label]
        jax.tree.map(np.testing.assert_array_equal, observation, expected)
        np.testing.assert_allclose(reward, earned, rtol=1e-6, err_msg=str(label))
    assert env.observation_space == stream.observation_space


def played_by_label(stream: GymnasiumStream, table: Any, space: Any) -> dict[Any, Any]:
    """Maps (episode, step) to observation and reward, on the host."""
    timesteps, found = stream.reset(0), {}
    episode = time = 0
    for _ in range(STEPS):
        found[episode, time] = _first(timesteps.observation), timesteps.reward[0]
        timesteps = stream.step(np.asarray(table[episode, time])[None])
        episode, time = (episode + 1, 0) if timesteps.start[0] else (episode, time + 1)
    return found


def ours_by_label(env: Environment, table: Any, space: Any) -> dict[Any, Any]:
    """The same for a JAX task; an observation after a termination is never seen."""
    stream, key, found = AutoReset(env), jax.random.key(0), {}
    state, timesteps = stream.reset(key)
    step = jax.jit(lambda *x: stream.step(*x))
    episode = time = 0
    for _ in range(STEPS // 2):
        if not (time == 0 and timesteps.ended):  # its reward belongs to the episode before
            found[episode, time] = jax.device_get((timesteps.observation, timesteps.reward))
        state, timesteps = step(state, table[episode, time], key)
        episode, time = (episode + 1, 0) if timesteps.start else (episode, time + 1)
    return found


def _first(observation: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], observation)


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_become_the_numbers_that_the_host_s_become(name):
    space = ACTIONS[name]
    space.seed(0)
    actions = np.array([space.sample() for _ in range(6)])
    ours = jax.vmap(lambda action: encode_action(space, action))(jnp.asarray(actions))
    np.testing.assert_array_equal(ours, encode_actions(space, actions))


def test_the_return_is_of_the_task_s_own_rewards_and_nothing_else_changes():
    actions = np.zeros((30, 2), np.int64)
    plain = roll(Counting(), actions)
    config = WrapperConfig(reward_scale=0.5, reward_clip=1.0, previous=True)
    wrapped = roll(wrap(Counting(), config), actions)
    np.testing.assert_array_equal(wrapped.reward, np.clip(plain.reward * 0.5, -1, 1))
    for name in ("discount", "start", "last", "ended"):
        np.testing.assert_array_equal(getattr(wrapped, name), getattr(plain, name))
    assert set(wrapped.metrics) == {"parity", "return", "length"}
    jax.tree.map(np.testing.assert_array_equal, wrapped.metrics, plain.metrics)
    assert (plain.metrics["return"] != 0).any()


def test_it_passes_on_what_the_task_says():
    env = wrap(Counting(), WrapperConfig(reward_scale=2.0, previous=True))
    state, observation = env.reset(jax.random.key(0))
    assert env.remembered(state) == {"parity": 0}
    assert env.render_text(state, jax.device_get(observation)) == "0: [0.0, 0.0, 0.0]"
    assert env.render_image(state, jax.device_get(observation)) is None
    assert PreviousStep(TMaze(5), SHOWN).action_names == TMaze.action_names
    assert (env.observation_size, env.num_actions) == (3 + 4 + 1, 4)
    kept = KeptEntries(Counting(), (0,))
    state, observation = kept.reset(jax.random.key(0))
    assert kept.render_image(state, observation) is None is kept.render_text(state, observation)
    assert kept.remembered(state) == {"parity": 0}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"frame_skip": 2}, f"frame_skip wraps .* tmaze is .*takes {', '.join(FOR_JAX)}"),
        ({"normalise_observations": True}, "normalise_observations wraps"),
        ({"keep": (16,)}, "the observation has entries 0 to 15"),
        ({"reward_scale": 0.0}, "reward_scale must be a finite number above 0"),
    ],
)
def test_what_does_not_go_around_a_task_in_jax_is_refused(config, message):
    with pytest.raises(UserError, match=message):
        make_task("tmaze", {}, WrapperConfig(**config))


def test_the_previous_action_can_be_shown_alone():
    """So can the reward, which in some tasks says whether an answer was right."""
    actions = np.random.default_rng(0).integers(4, size=(30, 2))
    both = roll(wrap(Counting(), WrapperConfig(previous=True)), actions)
    alone = roll(wrap(Counting(), WrapperConfig(previous_action=True)), actions)
    assert set(alone.observation) == {"observation", PREVIOUS_ACTION}
    for name, seen in alone.observation.items():
        np.testing.assert_array_equal(seen, both.observation[name])
    trial = make_task("bandit", {}, WrapperConfig(previous_action=True, trial_episodes=2))
    assert {PREVIOUS_REWARD, "previous_ended"} < set(trial.observation_space)


def test_wrappers_in_the_wrong_order_are_refused():
    with pytest.raises(UserError, match="ScaledReward belongs inside"):
        ScaledReward(PreviousStep(Counting(), SHOWN))
    with pytest.raises(UserError, match="previous adds 'previous_action'"):
        PreviousStep(PreviousStep(Counting(), SHOWN), SHOWN)


def test_a_run_takes_them():
    config = clew.TrainConfig(
        env="memory_chain", env_options={}, memory="gru", memory_options={},
        wrappers=WrapperConfig(reward_scale=2.0, keep=(0, 2)),
    )  # fmt: skip
    make_parts(config)
    task = make_task("memory_chain", {}, WrapperConfig(previous=True))
    assert set(task.observation_space) == {"observation", "previous_action", "previous_reward"}


def many(env: Environment) -> Any:
    """Observations of 64 environments in 60 steps of action 0."""
    return roll(env, np.zeros((60, 64), np.int64))


def test_noise_has_its_deviation_and_nothing_else_changes():
    """At every step, also the first ones of episodes; each entry has its own draw."""
    plain, noisy = many(Counting()), many(wrap(Counting(), WrapperConfig(noise=0.5)))
    drawn = (noisy.observation - plain.observation) / 0.5
    assert abs(drawn.mean()) < 0.03 and abs(drawn.std() - 1) < 0.03
    assert abs(drawn[plain.start].std() - 1) < 0.05
    flat = drawn.reshape(len(drawn), -1)
    assert abs(np.corrcoef(flat[:-1].ravel(), flat[1:].ravel())[0, 1]) < 0.03
    assert np.abs(np.corrcoef(drawn.reshape(-1, 3).T) - np.eye(3)).max() < 0.05
    for name in ("reward", "discount", "start", "last", "ended"):
        np.testing.assert_array_equal(getattr(noisy, name), getattr(plain, name))


def test_flicker_blanks_whole_observations_but_not_what_is_shown_beside():
    """With the given frequency, each step independently; the previous action and reward stay."""
    config = WrapperConfig(flicker=0.3, previous=True, noise=1.0)
    shown = WrapperConfig(previous=True)
    plain, seen = many(wrap(Counting(), shown)), many(wrap(Counting(), config))
    numbers = seen.observation["observation"]
    blank = (numbers == 0).all(-1)
    np.testing.assert_array_equal(blank, (numbers == 0).any(-1))  # noise leaves no other 0
    assert abs(blank.mean() - 0.3) < 0.02 and abs((blank[1:] & blank[:-1]).mean() - 0.09) < 0.02
    for name in SHOWN:
        np.testing.assert_array_equal(seen.observation[name], plain.observation[name])


class Nesting(Counting):
    """Observes the same in a Dict within a Dict."""

    @property
    def observation_space(self) -> spaces.Space:
        numbers = spaces.Box(-1.0, 99.0, (3,), np.float32)
        inner = spaces.Dict({"deep": numbers, "bits": spaces.Box(0, 1, (2,), np.uint8)})
        return spaces.Dict({"inner": inner, "outer": numbers})

    def observe(self, state):
        numbers = super().observe(state)
        inner = {"deep": numbers, "bits": jnp.ones(2, jnp.uint8)}
        return {"inner": inner, "outer": numbers}


def test_noise_and_flicker_reach_a_dict_within_a_dict():
    env = wrap(Nesting(), WrapperConfig(noise=0.5))
    plain, noisy = many(Nesting()).observation, many(env).observation
    drawn = [noisy["inner"]["deep"] - plain["inner"]["deep"], noisy["outer"] - plain["outer"]]
    for one in drawn:
        assert abs(one.std() - 0.5) < 0.02
    assert abs(np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]) < 0.03
    np.testing.assert_array_equal(noisy["inner"]["bits"], plain["inner"]["bits"])
    space: Any = env.observation_space
    assert np.isposinf(space["inner"]["deep"].high).all() and env.observation_size == 8
    assert space["inner"]["bits"] == Nesting().observation_space["inner"]["bits"]
    seen = many(wrap(Nesting(), WrapperConfig(flicker=0.3))).observation
    blank = seen["inner"]["bits"].sum(-1) == 0
    assert abs(blank.mean() - 0.3) < 0.02 and not seen["outer"][blank].any()


def test_the_whole_observation_stands_beside_what_is_left_of_it():
    actions = np.random.default_rng(0).integers(4, size=(30, 2))
    config = WrapperConfig(keep=(1, 2), noise=0.5, flicker=0.3, previous=True, whole=True)
    env = wrap(Counting(), config)
    seen = roll(env, actions).observation
    np.testing.assert_array_equal(seen.pop("whole"), roll(Counting(), actions).observation)
    others = roll(wrap(Counting(), replace(config, whole=False)), actions).observation
    assert seen.keys() == others.keys()
    for name, part in others.items():
        np.testing.assert_allclose(seen[name], part, rtol=1e-6)
    assert env.observation_space["whole"] == Counting().observation_space
    state, observation = env.reset(jax.random.key(0))
    assert env.render_text(state, observation) is None
    deep = wrap(Nesting(), WrapperConfig(noise=0.5, whole=True))
    _, observation = deep.reset(jax.random.key(0))
    assert deep.observation_space.contains(jax.device_get(observation))
    np.testing.assert_array_equal(observation["whole.inner"]["deep"], observation["whole.outer"])
    with pytest.raises(UserError, match="needs a HeldObservation inside"):
        WholeObservation(Counting())
    with pytest.raises(UserError, match=r"whole adds 'whole\.inner', which the environment"):
        WholeObservation(deep)


def test_all_observations_may_be_blank():
    """The probability may be a Python integer, which JAX's draws do not accept."""
    assert not many(wrap(Counting(), WrapperConfig(flicker=1))).observation.any()


def test_noise_and_flicker_are_known_to_the_space_and_to_pictures():
    env = NoiseAndFlicker(TMaze(5), noise=0.1, flicker=0.5)
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    assert np.isneginf(space.low).all() and np.isposinf(space.high).all()
    state, observation = env.reset(jax.random.key(0))
    assert env.render_text(state, observation) is None
    inside = NoiseAndFlicker(Counting(), flicker=0.5)
    assert inside.observation_space == Counting().observation_space
    with pytest.raises(UserError, match="flicker must be"):
        wrap(Counting(), WrapperConfig(flicker=1.5))
    with pytest.raises(UserError, match="noise must be"):
        wrap(Counting(), WrapperConfig(noise=-1.0))
    with pytest.raises(UserError, match="noise finds no float Box"):
        wrap(clew.make_env("pixel_maze", size=9), WrapperConfig(noise=1.0))
