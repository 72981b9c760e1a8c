"""Probes and memory lengths on data whose answer is known."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from clew.envs import AutoReset, TMaze
from clew.errors import UserError
from clew.inspect import by_lag, held_out, memory_length, probe_steps, shares
from clew.inspect.probe import read_episodes
from streams import agent_on

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("width", [5, 2000])
def test_a_planted_cue_is_found_and_noise_holds_none(width: int) -> None:
    """Also with many more features than episodes, and in units of a thousandth."""
    classes = RANDOM.integers(0, 2, 200)
    noise = RANDOM.standard_normal((200, width))
    assert 0.35 < held_out(noise, classes).mean() < 0.65
    planted = noise.copy()
    planted[:, : max(1, width // 50)] += 4 * classes[:, None]
    assert held_out(1e-3 * planted, classes).mean() > 0.9


def test_three_classes_and_constant_numbers() -> None:
    classes = np.arange(90) % 3
    features = np.eye(3)[classes] + 0.1 * RANDOM.standard_normal((90, 3))
    constant = np.hstack([features, np.ones((90, 2))])
    assert held_out(constant, classes).all()


def test_nothing_to_read_gives_the_commonest_class() -> None:
    classes = np.array([0] * 30 + [1] * 12)
    for empty in (np.zeros((42, 0)), np.ones((42, 4))):
        assert held_out(empty, classes).mean() == pytest.approx(30 / 42)


def test_probes_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(UserError, match="5 folds need at least as many examples, got 3"):
        held_out(np.ones((3, 1)), np.arange(3))
    with pytest.raises(UserError, match="finite"):
        held_out(np.full((9, 1), np.nan), np.arange(9) % 2)


def test_a_complex_state_is_read_as_two_numbers(ordinary_promotion: None) -> None:
    """The real and the imaginary part are read."""
    agent = agent_on(AutoReset(TMaze(corridor_length=2)), "own_lru:LRU")
    xs = RANDOM.standard_normal((2, 3, agent.memory.input_size)).astype(np.float32)
    found = read_episodes(agent, xs)
    state = agent.init_state()
    for x in xs[1]:
        state = agent.memory.step(state, x, jnp.array(False))[0]
    assert found.state_size == 16
    expected = np.concatenate([np.real(state), np.imag(state)])
    np.testing.assert_allclose(found.states[1, -1], expected, rtol=1e-4)


def test_only_episodes_that_go_on_are_probed() -> None:
    """A cue is in the features until step 2, and 30 of 60 episodes are longer than 3 steps."""
    classes = RANDOM.integers(0, 2, 60)
    lengths = np.repeat([3, 5], 30)
    features = RANDOM.standard_normal((60, 5, 2))
    features[:, :3, 0] += 9 * classes[:, None]
    found = probe_steps(features, classes, lengths, label="cue", source="state")
    assert found.steps == [0, 1, 2, 3, 4] and found.episodes == [60, 60, 60, 30, 30]
    assert all(a.low > 0.9 for a in found.accuracy[:3])
    assert all(a.mean < 0.8 for a in found.accuracy[3:])
    share = classes.mean()
    assert found.majority[0] == pytest.approx(max(share, 1 - share))
    few = probe_steps(features[:9], classes[:9], lengths[:9], label="cue", source="state")
    assert few.steps == []


def test_the_memory_length_is_the_lag_that_reaches_the_share() -> None:
    """Ten equal steps: the ninth reaches 90%; only the latest: length 0; none at all: NaN."""
    influence = np.zeros((3, 12))
    influence[0, 2:12] = 0.1
    influence[1, 11] = 5.0
    lags = by_lag(influence, np.array([11, 11, 11]))
    assert lags[0].tolist() == influence[0, ::-1].tolist()
    found = memory_length(lags)
    assert found.lengths[:2].tolist() == [8, 0] and math.isnan(found.lengths[2])
    assert found.mean.mean == 4.0 and found.quartiles == (2.0, 4.0, 6.0)
    assert memory_length(lags, 1.0).lengths[0] == 9
    assert np.isnan(shares(lags)[2]).all()
    assert math.isnan(memory_length(lags[2:]).quartiles[1])
    with pytest.raises(UserError, match="share must be above 0"):
        memory_length(lags, 0.0)


def test_lags_count_back_from_each_episodes_decision() -> None:
    influence = np.arange(8.0).reshape(2, 4)
    assert by_lag(influence, np.array([3, 1])).tolist() == [[3, 2, 1, 0], [5, 4, 0, 0]]
