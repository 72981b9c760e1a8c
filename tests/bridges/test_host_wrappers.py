"""Wrappers of Gymnasium environments equal plain loops."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from clew.bridges.gymnasium.build import FrameSkip
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream, generator
from clew.bridges.gymnasium.task import gymnasium_task
from clew.bridges.gymnasium.wrappers import RunningMoments
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from labelled import LENGTHS, Labelled, makers

NEXT, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
ENVS, STEPS = 3, 40


def opened(mode: AutoresetMode = NEXT, frozen: bool = False, **settings: Any) -> GymnasiumStream:
    """Labelled environments through wrappers."""
    vector = SyncVectorEnv(makers(ENVS), autoreset_mode=mode)
    return GymnasiumStream(vector, name="maze", wrappers=WrapperConfig(**settings), frozen=frozen)


def play(stream: GymnasiumStream, steps: int = STEPS) -> tuple[list[GymnasiumStep], np.ndarray]:
    """A reset, and steps with random actions, which are returned too."""
    actions = np.random.default_rng(1).integers(2, size=(steps, stream.num_envs))
    timesteps = [stream.reset(0)]
    return timesteps + [stream.step(row) for row in actions], actions


def named(observation: Any) -> dict[str, np.ndarray]:
    """An observation that is a dict."""
    assert isinstance(observation, dict)
    return observation


def array(observation: Any) -> np.ndarray:
    """An observation that is an array."""
    assert isinstance(observation, np.ndarray)
    return observation


@pytest.mark.parametrize("frames", [2, 3])
def test_frame_skip(frames: int) -> None:
    """A step returns the last observation and the sum of rewards, and never passes an end."""
    env, plain = FrameSkip(Labelled(0), frames), Labelled(0)
    for _ in range(12):
        env.reset()
        plain.reset()
        ended = False
        while not ended:
            steps = [plain.step(0)]
            while len(steps) < frames and not (steps[-1][2] or steps[-1][3]):
                steps.append(plain.step(0))
            label, reward, terminated, truncated, _ = env.step(0)
            np.testing.assert_array_equal(label, steps[-1][0])
            assert reward == sum(step[1] for step in steps)
            assert (terminated, truncated) == steps[-1][2:4]
            ended = terminated or truncated


@pytest.mark.parametrize("reward", [1, np.float32(1), np.ones(1), np.array(1.0)])
def test_rewards_of_every_form_are_summed(reward: Any) -> None:
    class Rewarding(Labelled):
        def step(self, action: Any) -> Any:
            label, _, *rest = super().step(action)
            return label, reward, *rest

    env = FrameSkip(Rewarding(lengths=(9,)), 3)
    env.reset()
    assert env.step(0)[1] == 3


def test_time_limit_after_frame_skip() -> None:
    """It counts the agent's steps and truncates, and a termination in the last step stays one."""
    task = gymnasium_task("labelled:Labelled", {"lengths": (9, 4), "ends": ("terminated",) * 2})
    stream = task.open(1, wrappers=WrapperConfig(frame_skip=2, time_limit=2))
    ends = [step for step in play(stream)[0] if step.ended[0]]
    for episode, step in enumerate(ends):
        assert step.metrics["length"][0] == 2
        assert step.discount[0] == (1.0, 0.0)[episode % 2]
        assert step.metrics["return"][0] == 40 * episode + 1 + 2 + 3 + 4
        np.testing.assert_array_equal(array(step.observation)[0, :2], (episode, 4))


def test_keep() -> None:
    """It keeps the chosen entries in the requested order, also in the space."""
    timesteps, _ = play(opened(SAME, keep=(2, 0)))
    plain, _ = play(opened(SAME))
    for step, whole in zip(timesteps, plain, strict=True):
        np.testing.assert_array_equal(step.observation, array(whole.observation)[:, [2, 0]])
        assert (step.final is None) == (whole.final is None)
        if step.final and whole.final:
            np.testing.assert_array_equal(step.final[1], array(whole.final[1])[:, [2, 0]])
    stream = gymnasium_task("gymnasium:CartPole-v1").open(1, wrappers=WrapperConfig(keep=(0, 2)))
    assert stream.observation_space.shape == (2,)
    assert np.isfinite(stream.observation_space.high).all()  # positions, not velocities


def seen_rows(step: GymnasiumStep) -> np.ndarray:
    """Every observation of a step, including final ones."""
    rows = array(step.observation)
    return rows if step.final is None else np.vstack([rows, array(step.final[1])[step.final[0]]])


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_normalised_observations(mode: AutoresetMode) -> None:
    """They use the mean and variance of all observations so far, including the present ones."""
    stream = opened(mode, normalise_observations=True, observation_clip=1.2)
    plain, _ = play(opened(mode))
    timesteps, _ = play(stream)
    rows = np.zeros((0, 3))
    for step, raw in zip(timesteps, plain, strict=True):
        rows = np.vstack([rows, seen_rows(raw)])
        scaled = (seen_rows(raw) - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-8)
        np.testing.assert_allclose(
            seen_rows(step), np.clip(scaled, -1.2, 1.2), rtol=1e-5, atol=1e-6
        )
    state = stream.state()["observation"]["observation"]
    assert state["count"] == len(rows)
    np.testing.assert_allclose(state["mean"], rows.mean(axis=0))
    np.testing.assert_allclose(state["m2"] / state["count"], rows.var(axis=0))


def test_both_modes_learn_the_same_statistics() -> None:
    """They see the same observations: whole episodes of one length."""
    states = []
    for mode, steps in ((NEXT, 4 * 5 - 1), (SAME, 3 * 5)):
        env = [lambda: Labelled(7, lengths=(3,), ends=("truncated",))] * 2
        stream = GymnasiumStream(
            SyncVectorEnv(env, autoreset_mode=mode),
            wrappers=WrapperConfig(normalise_observations=True, normalise_rewards=True),
        )
        play(stream, steps)
        states.append(stream.state())
    # The same-step stream has already opened a sixth episode.
    extra, (n, s) = np.array([5.0, 0.0, 7.0]), (s["observation"]["observation"] for s in states)
    rows = np.array([[e, t, 7.0] for e in range(5) for t in range(4)] * 2)
    np.testing.assert_allclose(n["mean"], rows.mean(axis=0))
    np.testing.assert_allclose(s["mean"], np.vstack([rows, extra, extra]).mean(axis=0))
    assert states[0]["reward"]["count"] == states[1]["reward"]["count"] == 30
    np.testing.assert_allclose(
        states[0]["reward"]["mean_square"], states[1]["reward"]["mean_square"]
    )


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_rewards(mode: AutoresetMode) -> None:
    """Divided by the discounted return's root mean square, scaled, clipped; metrics are raw."""
    settings: dict[str, Any] = {"normalise_rewards": True, "reward_gamma": 0.9}
    stream = opened(mode, **settings, reward_scale=3.0, reward_clip=2.5)
    plain, _ = play(opened(mode))
    timesteps, _ = play(stream)
    returns, squares = np.zeros(ENVS), []
    for k in range(1, len(timesteps)):
        counted = [i for i in range(ENVS) if not timesteps[k - 1].last[i]]
        for i in counted:
            returns[i] = plain[k].reward[i] + 0.9 * returns[i]
            squares.append(returns[i] ** 2)
        for i in range(ENVS):
            scaled = 3.0 * plain[k].reward[i] / np.sqrt(np.mean(squares))
            assert timesteps[k].reward[i] == pytest.approx(min(2.5, scaled), rel=1e-5)
        returns[plain[k].ended] = 0.0
        np.testing.assert_array_equal(timesteps[k].metrics["return"], plain[k].metrics["return"])
    assert stream.state()["reward"]["count"] == len(squares)


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_previous_action_and_reward(mode: AutoresetMode) -> None:
    """Those before the observation, with the reward used in learning; nothing at a start."""
    timesteps, actions = play(opened(mode, previous=True, reward_scale=0.5))
    plain, _ = play(opened(mode))
    for k, (step, raw) in enumerate(zip(timesteps, plain, strict=True)):
        seen = named(step.observation)
        np.testing.assert_array_equal(seen["observation"], raw.observation)
        for i in range(ENVS):
            action = np.zeros(2) if raw.start[i] else np.eye(2)[actions[k - 1, i]]
            np.testing.assert_array_equal(seen["previous_action"][i], action)
            earned = 0.0 if raw.start[i] else 0.5 * raw.reward[i]
            np.testing.assert_array_equal(seen["previous_reward"][i], [earned])
            if step.final is not None and step.final[0][i]:
                final = named(step.final[1])
                np.testing.assert_array_equal(
                    final["previous_action"][i], np.eye(2)[actions[k - 1, i]]
                )
                assert final["previous_reward"][i] == 0.5 * raw.reward[i]
                assert final["observation"][i, 1] == LENGTHS[int(final["observation"][i, 0]) % 6]


def test_the_previous_action_can_be_shown_alone() -> None:
    both, _ = play(opened(NEXT, previous=True))
    alone, _ = play(opened(NEXT, previous_action=True))
    for step, other in zip(alone, both, strict=True):
        seen, all_of_it = named(step.observation), named(other.observation)
        assert set(seen) == {"observation", "previous_action"}
        for name, values in seen.items():
            np.testing.assert_array_equal(values, all_of_it[name])


@pytest.mark.parametrize(
    ("space", "action", "seen"),
    [
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[0, 1, 0, 0, 1]]),
        (spaces.MultiBinary(2), [[1, 0]], [[1, 0]]),
        (spaces.Box(-1, 1, (2,), np.float64), [[0.5, 3.0]], [[0.5, 3.0]]),
    ],
)
def test_previous_actions_of_other_spaces(space: Any, action: Any, seen: Any) -> None:
    """One-hot vectors side by side; continuous ones as the agent chose them; in a Dict by name."""
    task = gymnasium_task("labelled:Strange", {"action": space})
    config = WrapperConfig(previous=True)
    stream = task.open(1, wrappers=config)
    stream.reset(0)
    timesteps = named(stream.step(action).observation)["previous_action"]
    np.testing.assert_array_equal(timesteps, np.float32(seen))
    assert stream.observation_space == task.observed(config)
    assert timesteps[0].shape == stream.observation_space["previous_action"].shape
    names = set(gymnasium_task("labelled:DictLabelled").observed(config))
    assert names == {"episode", "more.step", "number", "previous_action", "previous_reward"}


def test_what_was_learned_is_kept_and_frozen() -> None:
    """They survive a checkpoint; a frozen stream uses them without changing them."""
    settings: dict[str, Any] = {"normalise_observations": True, "normalise_rewards": True}
    learner = opened(**settings)
    play(learner)
    state = learner.state()
    frozen = opened(frozen=True, **settings)
    frozen.restore(state)
    timesteps, _ = play(frozen, 5)
    raw, _ = play(opened(), 5)
    kept = state["observation"]["observation"]
    scale = np.sqrt(kept["m2"] / kept["count"] + 1e-8)
    expected = (array(raw[3].observation) - kept["mean"]) / scale
    np.testing.assert_allclose(
        timesteps[3].observation, np.clip(expected, -10, 10), rtol=1e-5, atol=1e-6
    )
    expected = raw[3].reward / np.sqrt(state["reward"]["mean_square"] + 1e-8)
    np.testing.assert_allclose(timesteps[3].reward, expected, rtol=1e-5)
    after = frozen.state()
    for group, part in state.items():
        np.testing.assert_equal(after[group], part)
    with pytest.raises(UserError, match="from other wrappers or from another"):
        opened().restore(state)
    assert opened().state() == {}


@pytest.mark.parametrize("split", [1, 2, 7, 50])
def test_running_moments(split: int) -> None:
    """Batches of any size give the same moments as all data at once, also far from 0."""
    rows = np.random.default_rng(0).normal(1e6, 3.0, (100, 2))
    moments = RunningMoments.of((2,))
    np.testing.assert_array_equal(moments.variance(), 1.0)
    for i in range(0, 100, split):
        moments.update(rows[i : i + split])
    moments.update(rows[:0])
    assert moments.count == 100
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    np.testing.assert_allclose(moments.variance(), rows.var(axis=0), rtol=1e-6)


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_noise_and_flicker(mode: AutoresetMode) -> None:
    """Noise comes before normalisation, blanks after it; neither affects the added entries."""
    settings = {"previous": True, "observation_clip": 1e6}
    plain, _ = play(opened(mode, **settings), 400)
    seen, _ = play(opened(mode, **settings, noise=2.0, flicker=0.25), 400)
    again, _ = play(opened(mode, **settings, noise=2.0, flicker=0.25), 400)
    whole = np.array([named(step.observation)["observation"] for step in plain])
    numbers = np.array([named(step.observation)["observation"] for step in seen])
    blank = (numbers == 0).all(-1)
    assert abs(blank.mean() - 0.25) < 0.05
    drawn = (numbers - whole)[~blank] / 2.0
    assert abs(drawn.mean()) < 0.06 and abs(drawn.std() - 1) < 0.06
    for one, other, same in zip(plain, seen, again, strict=True):
        for name in ("previous_action", "previous_reward"):
            np.testing.assert_array_equal(
                named(one.observation)[name], named(other.observation)[name]
            )
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(
            named(other.observation)["observation"], named(same.observation)["observation"]
        )
        assert (other.final is None) == (one.final is None)
    learned = opened(mode, normalise_observations=True, noise=2.0, flicker=0.25)
    normal, _ = play(learned, 400)
    values = np.array([array(step.observation) for step in normal[200:]])
    blank = (values == 0).all(-1)
    assert abs(blank.mean() - 0.25) < 0.05 and 0.8 < values[~blank].std() < 1.3


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_the_whole_observation_stands_beside_what_is_left_of_it(mode: AutoresetMode) -> None:
    settings = {"keep": (0, 1), "noise": 2.0, "flicker": 0.25}
    plain, _ = play(opened(mode))
    hidden, _ = play(opened(mode, **settings))
    seen, _ = play(opened(mode, **settings, whole=True))
    for one, other, both in zip(plain, hidden, seen, strict=True):
        pairs = [(one.observation, other.observation, both.observation)]
        if one.final and other.final and both.final:
            pairs.append((one.final[1], other.final[1], both.final[1]))
        for whole, left, shown in pairs:
            np.testing.assert_array_equal(named(shown)["whole"], whole)
            np.testing.assert_array_equal(named(shown)["observation"], left)
    learned = opened(mode, **settings, whole=True, normalise_observations=True)
    assert set(learned.observation_space) == {"observation", "whole"}
    play(learned)
    alone = opened(mode, normalise_observations=True)
    play(alone)
    moments, expected = (stream.state()["observation"] for stream in (learned, alone))
    assert moments["observation"]["mean"].shape == (2,)
    np.testing.assert_array_equal(moments["whole"]["mean"], expected["observation"]["mean"])


def test_noise_is_not_what_an_environment_of_that_seed_draws() -> None:
    """A vector environment of another package gets the stream's own seed."""
    drawn = generator(7).standard_normal(1000)
    own = np.random.default_rng(7).standard_normal(1000)
    assert abs(np.corrcoef(drawn, own)[0, 1]) < 0.1
    np.testing.assert_array_equal(drawn, generator(7).standard_normal(1000))
