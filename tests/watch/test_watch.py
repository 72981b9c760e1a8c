"""Watching: recordings equal the episodes that were played, and every step is a frame."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from clew.agents.network import NetworkConfig, make_agent
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.inspect import gradient_influence, occlusion_influence
from clew.interact.task import PlayConfig
from clew.run.build import build_agent, make_task
from clew.run.config import TrainConfig
from clew.watch import Caption, Film, Recording, influences, shown_steps
from clew.watch.panels import (
    ActionPanel,
    InfluencePanel,
    PolicyPanel,
    TimeAxis,
    ValuePanel,
    round_numbers,
)
from clew.watch.pictures import as_picture, fitted, picture_of, strip
from clew.watch.scores import format_number

CONFIG = TrainConfig(
    env_options={"corridor_length": 2, "time_limit": 40},
    memory="gru",
    memory_options={"hidden_size": 4},
    network=NetworkConfig(head_size=4),
)
AGENT = build_agent(CONFIG, make_task(CONFIG), jax.random.key(3))


def played(count: int = 1, **options: Any) -> list[Recording]:
    how = PlayConfig(count, greedy=False, **options)
    return list(make_task(CONFIG).recordings(AGENT, how))


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    """Three episodes of an untrained agent."""
    return played(3)


@eqx.filter_jit
def unroll(agent: Any, seen: Any) -> tuple[Any, Any]:
    """Logits and values of an episode that begins with its first observation."""
    return agent.unroll(agent.init_state(), seen, jnp.arange(len(seen)) == 0)[1]


def unrolled(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Logits and values of the agent when it reads the recorded observations."""
    room = ((0, 64 - recording.length), (0, 0))  # one length, one program
    logits, values = unroll(AGENT, jnp.asarray(np.pad(recording.observations, room)))
    return np.asarray(logits)[: recording.length], np.asarray(values)[: recording.length]


def test_a_recording_is_what_the_agent_did(recordings: list[Recording]) -> None:
    assert len({r.length for r in recordings}) > 1
    for recording in recordings:
        logits, values = unrolled(recording)
        np.testing.assert_allclose(recording.values, values, atol=1e-5)
        np.testing.assert_allclose(recording.probabilities, jax.nn.softmax(logits), atol=1e-5)
        assert recording.observations[0, :2].sum() == 1  # the cue
        assert np.all(recording.observations[1:, :2] == 0)
        assert recording.metrics["length"] == recording.length
        assert recording.metrics["return"] == pytest.approx(recording.rewards.sum(), abs=1e-4)
        assert recording.action_names == ("up", "down", "left", "right")
        assert recording.ended == "terminated"


def test_the_same_seed_plays_the_same_episodes(recordings: list[Recording]) -> None:
    again, other = played(2), played(1, seed=1)[0]
    for one, two in zip(recordings, again, strict=False):
        assert np.array_equal(one.observations, two.observations)
        assert np.array_equal(one.actions, two.actions)
    assert not np.array_equal(again[0].observations, other.observations)


def test_long_episodes_are_cut_and_truncated_ones_named() -> None:
    recording = played(max_steps=3)[0]
    assert (recording.length, recording.ended, recording.metrics) == (3, "cut", {})
    limit = {"corridor_length": 3, "time_limit": 3, "on_time_limit": "truncate"}
    task = make_task(TrainConfig(env_options=limit))
    found = [r.ended for r in task.recordings(AGENT, PlayConfig(5, greedy=False))]
    assert "truncated" in found
    with pytest.raises(UserError, match="episodes must be an integer of at least 1, got 0"):
        played(0)


@pytest.mark.parametrize("previous", [False, True])
def test_the_tasks_own_rewards_are_shown(previous: bool, recordings: list[Recording]) -> None:
    """Even if the agent learned from scaled and clipped ones."""
    assert recordings[0].own_rewards is None
    wrappers = WrapperConfig(reward_scale=0.5, reward_clip=0.2, previous=previous)
    config = dataclasses.replace(CONFIG, wrappers=wrappers)
    task = make_task(config)
    agent = build_agent(config, task, jax.random.key(3))
    whole, cut = task.recordings(agent, PlayConfig(2, False)), PlayConfig(2, False, max_steps=3)
    for recording, shorter in zip(whole, task.recordings(agent, cut), strict=True):
        learned = np.clip(0.5 * recording.earned, -0.2, 0.2)
        np.testing.assert_allclose(recording.rewards, learned, atol=1e-6)
        assert recording.earned.sum() == pytest.approx(recording.metrics["return"], abs=1e-6)
        np.testing.assert_allclose(shorter.earned, recording.earned[: shorter.length], atol=1e-6)


def test_greedy_takes_the_most_probable_action() -> None:
    recording = next(make_task(CONFIG).recordings(AGENT, PlayConfig(max_steps=40)))
    assert np.array_equal(recording.actions, recording.probabilities.argmax(axis=1))


@pytest.mark.parametrize("way", ["occlusion", "gradient"])
def test_influence_is_that_of_inspect_in_shares(recordings: list[Recording], way: Any) -> None:
    """Although episodes are padded; and only requested quantities are present."""
    recording = max(recordings, key=lambda r: r.length)
    length = recording.length
    given = (
        AGENT,
        jnp.asarray(recording.observations),
        jnp.arange(length) == 0,
        jnp.asarray(recording.actions, jnp.int32),
        jnp.arange(length, dtype=jnp.int32),
    )
    nothing = jnp.zeros_like(given[1][0])
    if way == "gradient":
        direct = eqx.filter_jit(gradient_influence)(*given)
    else:
        direct = eqx.filter_jit(occlusion_influence)(*given, nothing)
    expected = np.asarray(direct.policy, float)
    expected /= expected.sum(axis=1, keepdims=True)
    explain = influences(AGENT, way)
    found = explain(recording, np.arange(length))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.all(np.triu(found, 1) == 0)
    few = explain(recording, np.array([1, length - 1]))
    assert np.flatnonzero(few.any(axis=1)).tolist() == [1, length - 1]
    np.testing.assert_allclose(few[-1], found[-1], atol=1e-6)


def made_up(time: int = 30, choices: int = 3, **changes: Any) -> Recording:
    """A made-up episode."""
    random = np.random.default_rng(0)
    chances = random.dirichlet(np.ones(choices), time)
    made = Recording(
        observations=random.standard_normal((time, 5)).astype(np.float32),
        actions=chances.argmax(axis=1),
        rewards=random.standard_normal(time),
        values=random.standard_normal(time),
        probabilities=chances,
    )
    return made._replace(**changes)


@pytest.mark.parametrize("space", [spaces.Box(0, 3, (2, 2), np.uint8), spaces.Discrete(4)])
def test_pictures_and_choices_are_explained_by_gradients(space: spaces.Space) -> None:
    """Bytes are read as numbers on any axes; choices have no derivative."""
    agent = make_agent(
        "gru",
        {"hidden_size": 4},
        observation_space=space,
        action_space=spaces.Discrete(3),
        network=NetworkConfig(head_size=4),
        key=jax.random.key(3),
    )
    space.seed(0)
    seen = np.stack([np.asarray(space.sample()) for _ in range(5)])
    found = influences(agent, "gradient")(made_up(5, observations=seen), np.arange(5))
    assert np.all(np.isfinite(found))
    assert np.any(found) == isinstance(space, spaces.Box)


def test_every_step_is_a_frame(recordings: list[Recording]) -> None:
    """All have one even size, each is different, and a recording always gives the same ones."""
    recording = recordings[0]
    shares = np.tril(np.ones((recording.length,) * 2))
    films = [Film(recording, Caption("a"), shares, gamma=0.9) for _ in range(2)]
    frames = [film[index] for film in films for index in range(len(film))]
    assert len(frames) == 2 * recording.length
    assert len({frame.shape for frame in frames}) == 1
    assert frames[0].shape == (films[0].height, 960, 3) and films[0].height % 2 == 0
    for index in range(recording.length):
        assert np.array_equal(frames[index], frames[recording.length + index])
        assert index == 0 or not np.array_equal(frames[index], frames[index - 1])


def test_panels_hold_the_agents_numbers(recordings: list[Recording]) -> None:
    recording = recordings[0]
    shares = np.tril(np.ones((recording.length,) * 2))
    value, policy, influence = Film(recording, Caption("a"), shares, gamma=0.9).panels
    assert isinstance(value, ValuePanel) and isinstance(policy, PolicyPanel)
    assert isinstance(influence, InfluencePanel)
    logits, values = unrolled(recording)
    np.testing.assert_allclose(value.values, values, atol=1e-5)
    np.testing.assert_allclose(policy.scores.shares, jax.nn.softmax(logits), atol=1e-5)
    assert influence.shares is shares
    rewards = np.asarray(recording.rewards, float)
    powers = 0.9 ** np.arange(recording.length)
    expected = [np.sum(rewards[t:] * powers[: recording.length - t]) for t in range(len(rewards))]
    np.testing.assert_allclose(value.returns, expected, atol=1e-5)


def test_long_episodes_show_evenly_spread_steps() -> None:
    assert shown_steps(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert shown_steps(101, 5).tolist() == [0, 25, 50, 75, 100]
    assert shown_steps(7, 1).tolist() == [6]
    film = Film(made_up(30), Caption("a"), max_frames=4)
    assert len(film) == 4 and film.steps[0] == 0 and film.steps[-1] == 29
    whole = Film(made_up(30), Caption("a"))
    assert film.height > whole.height  # it says what it leaves out
    with pytest.raises(UserError, match="max_frames must be an integer of at least 1"):
        shown_steps(3, 0)


def test_what_a_recording_lacks_has_no_panel() -> None:
    bare = Film(made_up(probabilities=None), Caption("a")).panels
    assert [type(panel) for panel in bare] == [ValuePanel]
    numbers = np.random.default_rng(0).standard_normal((30, 2))
    film = Film(made_up(probabilities=None, actions=numbers), Caption("a"))
    assert [type(panel) for panel in film.panels] == [ValuePanel, ActionPanel]
    assert film[3].shape == film[29].shape
    many = Film(made_up(choices=40), Caption("a"))
    assert many[0].shape == many[29].shape
    unknown = Film(made_up(values=np.full(30, np.nan)), Caption("a"))
    assert unknown[0].shape == unknown[29].shape


def test_pictures_are_what_there_is() -> None:
    """The given picture, otherwise the agent's observation: an image, or its numbers as a strip."""
    frames = [np.full((4, 6, 3), 8 * t, np.uint8) for t in range(30)]
    assert np.all(picture_of(made_up(pictures=frames), 7) == 56)
    images = np.arange(30 * 64, dtype=np.uint8).reshape(30, 8, 8, 1)
    shown = picture_of(made_up(observations=images), 2)
    assert shown.shape == (8, 8, 3) and np.array_equal(shown[..., 2], images[2, ..., 0])
    assert fitted(shown).shape == (320, 320, 3)
    assert np.array_equal(fitted(shown)[::40, ::40], shown)
    large = np.zeros((1000, 2000, 3), np.uint8)
    assert fitted(large).shape == (420, 840, 3)
    assert picture_of(made_up(), 0).shape[1] == 912
    assert strip(np.linspace(-1, 1, 500), 1.0).shape[1] == 912
    for bad in (np.zeros((4, 4, 3)), np.zeros((4, 4, 2), np.uint8)):
        with pytest.raises(UserError, match="a picture must be uint8"):
            as_picture(bad)


def test_round_numbers_and_the_axis() -> None:
    assert round_numbers(-0.2, 1.1, 4) == pytest.approx([0, 0.5, 1.0])
    assert round_numbers(3, 3, 4) == [3]
    assert TimeAxis(20).ticks() == [0, 5, 10, 15] and TimeAxis(1).ticks() == [0]
    assert TimeAxis(4).ticks() == [0, 1, 2, 3]
    assert TimeAxis(10).middle(9) < TimeAxis(10).left(10) == TimeAxis(5).left(5)
    texts = [format_number(x) for x in (0.001, -1.5, 12345.6, 0.25)]
    assert texts == ["0", "\u22121.5", "12346", "0.25"]
    assert format_number(float("nan")) == "nan"
