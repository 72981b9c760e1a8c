"""The T-Maze equals its plain transcription; tests of its observations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from task_values import optimal_return, reach_probability

from clew.envs import TimeStep, TMaze
from clew.envs.tmaze import DISTRACTOR_BITS, DOWN, LEFT, RIGHT, UP
from clew.errors import UserError
from oracles.tmaze import TMazeOracle, gray_words
from streams import BATCH, roll


def walking_actions(time: int, seed: int = 0) -> np.ndarray:
    """Random actions [time, batch] that mostly walk to the right."""
    chances = [0.15, 0.15, 0.1, 0.6]
    return np.random.default_rng(seed).choice(4, size=(time, BATCH), p=chances)


def cue_of(observation: np.ndarray) -> int:
    """The cue that a first observation shows."""
    assert tuple(observation[:2]) in [(0.0, 1.0), (1.0, 0.0)]
    return int(observation[0])


@pytest.mark.parametrize("rule", ["terminate", "truncate"])
@pytest.mark.parametrize(("length", "limit"), [(2, 2), (6, 17)])
def test_a_stream_of_random_episodes_equals_the_transcription(length, limit, rule):
    env = TMaze(length, limit, rule)
    actions = walking_actions(120)
    steps = roll(env, actions)
    ends = {"success": 0, "wrong": 0, "timeout": 0}
    for b in range(BATCH):
        at = jax.tree.map(lambda leaf, b=b: leaf[:, b], steps)
        t = 0
        while t < len(actions):
            assert at.start[t]
            oracle = TMazeOracle(length, limit, rule == "truncate", cue_of(at.observation[t]))
            np.testing.assert_array_equal(
                at.observation[t, :-DISTRACTOR_BITS], oracle.observation()
            )
            assert not at.observation[t, -DISTRACTOR_BITS:].any()
            t = _compare_episode(at, actions[:, b], t, oracle, ends)
    assert min(ends.values()) > 20, f"every way to end must occur: {ends}"


def _compare_episode(at: TimeStep, actions: np.ndarray, t: int, oracle: TMazeOracle, ends) -> int:
    """Follows one episode from its start; returns where the next one starts."""
    total, terminated, truncated = 0.0, False, False
    while not (terminated or truncated) and t < len(actions):
        reward, terminated, truncated, metrics = oracle.step(int(actions[t]))
        total, t = total + reward, t + 1
        assert at.reward[t] == np.float32(reward)
        assert at.discount[t] == (0.0 if terminated else 1.0)
        assert (at.last[t], at.ended[t]) == (truncated, terminated or truncated)
        assert at.start[t] == terminated
        if not terminated:
            expected = oracle.observation()
            np.testing.assert_array_equal(at.observation[t, :-DISTRACTOR_BITS], expected)
        if not at.ended[t]:
            assert all(values[t] == 0.0 for values in at.metrics.values())
            continue
        expected = {**metrics, "return": total, "length": oracle.time}
        assert {name: float(v[t]) for name, v in at.metrics.items()} == pytest.approx(expected)
        how = "timeout" if metrics["timeout"] else "success" if metrics["success"] else "wrong"
        ends[how] += 1
    if truncated and t < len(actions):
        t += 1
        assert (at.reward[t], at.discount[t], at.ended[t], at.last[t]) == (0.0, 1.0, False, False)
        assert all(values[t] == 0.0 for values in at.metrics.values())
    return t


@pytest.mark.parametrize(
    ("length", "bits"), [(2, 8), (120, 8), (256, 8), (257, 9), (512, 9), (513, 10), (70_000, 17)]
)
def test_the_position_takes_eight_bits_and_as_many_as_the_junction_needs(length, bits):
    env = TMaze(length, time_limit=length)
    assert env.observation_size == 2 + bits + 6
    assert env.reset(jax.random.key(0))[1].shape == (env.observation_size,)


@pytest.mark.parametrize("length", [256, 300])
def test_the_whole_corridor_is_in_gray_code_and_the_junction_has_no_other_mark(length):
    env = TMaze(length)
    observation = roll(env, np.full((length - 1, 1), RIGHT)).observation[:, 0]
    bits = env.observation_size - 8
    codes = ["".join(str(int(bit)) for bit in row) for row in observation[:, 2:-6]]
    assert codes == gray_words(bits)[:length]
    assert not observation[1:, :2].any()
    assert codes[:6] == [word.zfill(bits) for word in ("0", "1", "11", "10", "110", "111")]


@pytest.mark.parametrize(("turn", "wanted"), [(UP, 0), (DOWN, 1)])
@pytest.mark.parametrize("cue", [0, 1])
def test_the_cue_says_which_turn_is_right_and_there_is_no_way_back(cue, turn, wanted):
    env, key = TMaze(3), jax.random.key(1)
    state, observation = env.reset_to(cue)
    assert list(observation[:2]) == ([0.0, 1.0] if cue == 0 else [1.0, 0.0])
    for action, position in [(RIGHT, 1), (LEFT, 0), (LEFT, 0), (UP, 0), (DOWN, 0), (RIGHT, 1)]:
        state, transition = env.step(state, jnp.int32(action), key)
        assert (int(state.position), float(transition.reward)) == (position, np.float32(-0.1))
    for action in (RIGHT, LEFT, LEFT, RIGHT, 7, -1):
        state, transition = env.step(state, jnp.int32(action), key)
        assert (int(state.position), bool(transition.terminated)) == (2, False)
    _, transition = env.step(state, jnp.int32(turn), key)
    assert bool(transition.terminated) and not bool(transition.truncated)
    assert float(transition.reward) == (4.0 if wanted == cue else -1.0)
    assert float(transition.metrics["success"]) == float(wanted == cue)


def test_a_turn_in_the_last_allowed_step_is_a_turn():
    for rule in ("terminate", "truncate"):
        env, key = TMaze(2, 2, rule), jax.random.key(0)
        state, _ = env.reset_to(1)
        state, _ = env.step(state, jnp.int32(RIGHT), key)
        _, transition = env.step(state, jnp.int32(DOWN), key)
        assert bool(transition.terminated) and not bool(transition.truncated)
        assert float(transition.metrics["timeout"]) == 0.0


def test_cues_and_distractors_are_fair_and_independent():
    actions = np.full((600, BATCH), LEFT)
    steps = roll(TMaze(5, time_limit=5), actions)
    cues = steps.observation[steps.start][:, 0]
    noise = steps.observation[~steps.start][:, -DISTRACTOR_BITS:]
    assert abs(cues.mean() - 0.5) < 4 * 0.5 / len(cues) ** 0.5
    assert abs(noise.mean(0) - 0.5).max() < 4 * 0.5 / len(noise) ** 0.5
    assert abs(np.corrcoef(noise.T) - np.eye(DISTRACTOR_BITS)).max() < 4 / len(noise) ** 0.5
    across_time = noise.reshape(-1, BATCH, DISTRACTOR_BITS)
    assert (across_time[1:] == across_time[:-1]).mean() == pytest.approx(0.5, abs=0.01)


def test_the_chance_of_finding_the_junction_is_the_documented_warning():
    assert reach_probability(120) == pytest.approx(1.78e-7, rel=0.01)
    assert reach_probability(160) == pytest.approx(1.81e-12, rel=0.01)
    assert reach_probability(200) == pytest.approx(7.30e-19, rel=0.01)
    assert reach_probability(200, 1000, (0.225, 0.225, 0.2, 0.35)) == pytest.approx(0.021, rel=0.02)
    assert reach_probability(50, 49, (0.0, 0.0, 0.0, 1.0)) == 1.0
    assert reach_probability(50, 48, (0.0, 0.0, 0.0, 1.0)) == 0.0


def test_the_chance_of_finding_the_junction_equals_counting_every_action_sequence():
    reached = 0
    for actions in itertools.product(range(4), repeat=5):
        oracle = TMazeOracle(4, 100, False, 0)
        reached += any(oracle.step(action)[3]["junction"] for action in actions)
    assert reach_probability(4, 5) == pytest.approx(reached / 4**5)


def test_optimal_returns():
    lengths = (120, 140, 160, 180, 200)
    assert [optimal_return(n) for n in lengths] == pytest.approx([-7.9, -9.9, -11.9, -13.9, -15.9])
    blind = [optimal_return(n, success_probability=0.5) for n in lengths]
    assert blind == pytest.approx([optimal_return(n) - 2.5 for n in lengths])
    discounted = [optimal_return(n, 0.99) for n in lengths]
    assert discounted == pytest.approx([-5.77, -6.54, -7.17, -7.68, -8.10], abs=0.01)
    assert optimal_return(120, 0.99, success_probability=0.0) == pytest.approx(-7.28, abs=0.01)
    actions = np.array([[RIGHT]] * 119 + [[UP]])
    walked = roll(TMaze(120), actions, seed=4).metrics["return"][-1, 0]
    assert walked == pytest.approx(-7.9, abs=1e-4) or walked == pytest.approx(-12.9, abs=1e-4)


def test_a_maze_that_cannot_be_solved_in_time_warns():
    said = "time_limit 1000 is shorter than corridor_length 1001"
    with pytest.warns(UserWarning, match=said) as warned:
        TMaze(1001)
    assert warned[0].filename.endswith("clew/envs/tmaze.py")  # so that commands show one line


def test_a_stretched_corridor_shows_nothing_that_the_shown_one_does_not():
    env = TMaze(11, time_limit=50, shown_length=4)
    observation = roll(env, np.full((10, 1), RIGHT)).observation[:, 0]
    short = roll(TMaze(4, time_limit=50), np.full((3, 1), RIGHT)).observation[:, 0]
    assert env.observation_size == TMaze(4).observation_size
    shown = [tuple(row[2:-DISTRACTOR_BITS]) for row in observation]
    codes = [tuple(row[2:-DISTRACTOR_BITS]) for row in short]
    assert shown == [codes[p * 3 // 10] for p in range(11)]
    assert shown.count(codes[-1]) == 1  # no other place looks like the junction
    assert TMaze(400, shown_length=120).observation_size == TMaze(120).observation_size
    for length in (1, 12):
        with pytest.raises(UserError, match="shown_length must be 0, or from 2 to the corridor"):
            TMaze(11, shown_length=length)
    with pytest.raises(UserError, match="shown_length must be at most 21476 in a corridor of 1000"):
        TMaze(100_000, time_limit=200_000, shown_length=50_001)
    TMaze(100_000, time_limit=200_000, shown_length=21_476)
