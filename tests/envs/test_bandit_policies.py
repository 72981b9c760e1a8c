"""Returns of policies in trials of a bandit."""

import numpy as np
import pytest
from benchmarks.bandit_policies import (
    POLICIES,
    bandit_policy_returns,
    best_bandit_return,
    gittins_indices,
)

from clew.errors import UserError
from oracles import bandit


@pytest.mark.parametrize(("arms", "pulls"), [(2, 1), (2, 5), (3, 4)])
def test_the_best_return_is_that_of_trying_everything(arms, pulls):
    expected = bandit.best_value(((0, 0),) * arms, pulls)
    assert best_bandit_return(arms, pulls) == pytest.approx(expected, abs=1e-12)


def test_the_best_return_at_the_published_size():
    """For 5 arms and 10 pulls; if every arm were known it would be 10 max p, 8.33."""
    assert best_bandit_return(5, 10) == pytest.approx(6.66, abs=1e-4)
    assert best_bandit_return(2, 40) / 40 < 2 / 3


@pytest.mark.parametrize(
    ("wins", "losses", "index"), [(0, 0, 0.7029), (1, 0, 0.8001), (0, 1, 0.5001)]
)
def test_gittins_indices_are_the_published_ones(wins, losses, index):
    """Gittins, Glazebrook and Weber (2011), table 8.1, discount 0.9."""
    assert gittins_indices(5, 0.9)[wins, losses] == pytest.approx(index, abs=1e-4)


def test_gittins_indices_are_above_the_means_and_fall_with_losses():
    found = gittins_indices(100)
    assert found[0, 0] > found[0, 1] > found[0, 2] and found[1, 0] > found[0, 0]
    wins, losses = np.nonzero(np.add.outer(np.arange(100), np.arange(100)) < 100)
    assert (found[wins, losses] > (wins + 1) / (wins + losses + 2)).all()


def greedy(counts, number):
    """The arm with the most payments relative to its pulls."""
    means = [(wins + 1) / (wins + losses + 2) for wins, losses in counts]
    return means.index(max(means))


def test_greedy_earns_what_every_outcome_says():
    found = bandit_policy_returns("greedy", 3, 5, trials=40_000)
    expected = bandit.expected_return(greedy, 3, 5)
    assert abs(found.mean() - expected) < 4 * found.std() / 200


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_earns_more_than_the_best(policy):
    found = bandit_policy_returns(policy, 5, 10, trials=20_000)
    error = found.std() / 20_000**0.5
    assert found.mean() < best_bandit_return(5, 10) + 4 * error
    if policy == "random":
        assert abs(found.mean() - 5) < 4 * error
    else:
        assert found.mean() > 5.5
    np.testing.assert_array_equal(found, bandit_policy_returns(policy, 5, 10, trials=20_000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_bandit_return(1, 10), "arms must be an integer of at least 2"),
        (lambda: best_bandit_return(2, 0), "pulls must be an integer of at least 1"),
        (lambda: bandit_policy_returns("gitins", 2, 1), "did you mean 'gittins'"),
        (lambda: gittins_indices(5, 1.5), "discount must be"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(UserError, match=message):
        call()
