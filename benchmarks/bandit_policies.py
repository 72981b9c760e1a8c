"""Returns of policies in trials of a Bernoulli bandit: the best exactly, the others by playing."""

import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from clew.errors import require_at_least, require_choice, require_fraction

Counts = Int[np.ndarray, "instances arms"]
Indices = Float[np.ndarray, "instances arms"]

HORIZON = 500
"""Pulls after which an arm's probability counts as known, for its Gittins index."""
PAYMENTS = 501
"""Sure payments from 0 to 1, between which a Gittins index is interpolated."""
EPSILON, UCB_SCALE, GITTINS_DISCOUNT = 0.1, 0.2, 0.99


def best_bandit_return(arms: int, pulls: int) -> float:
    """Expected return of the optimal policy, by dynamic programming.

    With s and f the numbers of pulls of an arm that paid and that did not, its probability is
    Beta(s + 1, f + 1), and the value of n further pulls is

        V_0 = 0,   V_n(c) = max_i (s_i + 1) / (s_i + f_i + 2) (1 + V_{n-1}(c + win of i))
                              + (f_i + 1) / (s_i + f_i + 2) V_{n-1}(c + loss of i)

    Arms are alike, so counts are kept in sorted order: 5 arms and 10 pulls take a second, 10 arms
    and 10 pulls take as long, and a few more pulls take very much longer.

    Raises:
        UserError: fewer than 2 arms, or than 1 pull.
    """
    require_at_least("arms", arms, 2)
    require_at_least("pulls", pulls, 1)

    @functools.cache
    def value(counts: tuple[tuple[int, int], ...], left: int) -> float:
        if not left:
            return 0.0
        return max(_of_pull(counts, left, i, value) for i in _different(counts))

    return value(((0, 0),) * arms, pulls)


def _different(counts: tuple[tuple[int, int], ...]) -> list[int]:
    """The first of the arms that have the same counts; `counts` are sorted."""
    return [i for i in range(len(counts)) if i == 0 or counts[i] != counts[i - 1]]


def _of_pull(counts: tuple[tuple[int, int], ...], left: int, arm: int, value: Callable) -> float:
    (wins, losses), others = counts[arm], (*counts[:arm], *counts[arm + 1 :])
    paid = (wins + 1) / (wins + losses + 2)
    won = value(tuple(sorted((*others, (wins + 1, losses)))), left - 1)
    lost = value(tuple(sorted((*others, (wins, losses + 1)))), left - 1)
    return paid * (1.0 + won) + (1.0 - paid) * lost


@functools.lru_cache(8)
def gittins_indices(pulls: int, discount: float = GITTINS_DISCOUNT) -> np.ndarray:
    """The Gittins index [wins, losses] of an arm, for wins + losses < pulls.

    It is the sure payment per turn for which two choices are worth the same: to take it from now
    on, or to pull the arm for as long as one likes and take it from then on. For a payment m,

        W(s, f) = max(m / (1 - d),  p (1 + d W(s + 1, f)) + (1 - p) d W(s, f + 1)),
        p = (s + 1) / (s + f + 2),

    is computed backwards from s + f = pulls + `HORIZON`, where the arm counts as known. The index
    is where both are equal, interpolated linearly between the nearest of `PAYMENTS`. With a
    discount and no last pull, pulling an arm with the largest index is optimal.

    Raises:
        UserError: fewer than 1 pull, or a discount outside of [0, 1].

    Source: Gittins, Glazebrook and Weber (2011), section 8.4, whose table 8.1 has 0.7029 for an
    arm that was never pulled and a discount of 0.9.
    """
    require_at_least("pulls", pulls, 1)
    require_fraction("discount", discount)
    payments = np.linspace(0.0, 1.0, PAYMENTS)[:, None]
    sure, last = payments / (1.0 - discount), pulls + HORIZON
    value = np.maximum(sure, (np.arange(last + 1) + 1) / (last + 2) / (1.0 - discount))
    found = np.zeros((pulls, pulls))
    for total in range(last - 1, -1, -1):
        wins = np.arange(total + 1)
        paid = (wins + 1) / (total + 2)
        pulled = paid * (1.0 + discount * value[:, 1:])
        pulled += (1.0 - paid) * discount * value[:, :-1]
        if total < pulls:
            found[wins, total - wins] = _crossing(payments[:, 0], pulled - sure)
        value = np.maximum(sure, pulled)
    return found


def _crossing(payments: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """The zero of each column of a decreasing gain [payments, columns]."""
    above, columns = (gain > 0).sum(axis=0) - 1, np.arange(gain.shape[1])
    high, low = gain[above, columns], gain[above + 1, columns]
    return payments[above] + (payments[1] - payments[0]) * high / (high - low)


def _random(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    return rng.random(wins.shape)


def _greedy(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    return (wins + 1) / (wins + losses + 2)


def _epsilon_greedy(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    explores = rng.random((len(wins), 1)) < EPSILON
    return np.where(explores, rng.random(wins.shape), _greedy(wins, losses, rng))


def _ucb1(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    pulls = wins + losses
    total = np.maximum(pulls.sum(axis=1, keepdims=True), 1)
    shown = np.maximum(pulls, 1)
    bound = wins / shown + UCB_SCALE * np.sqrt(2.0 * np.log(total) / shown)
    return np.where(pulls == 0, np.inf, bound)


def _thompson(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    return rng.beta(wins + 1, losses + 1)


def _optimistic_thompson(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    return np.maximum(_thompson(wins, losses, rng), _greedy(wins, losses, rng))


def _gittins(wins: Counts, losses: Counts, rng: np.random.Generator) -> Indices:
    pulls = int((wins + losses).sum(axis=1).max())
    return gittins_indices(100 * (pulls // 100 + 1))[wins, losses]  # a few tables serve all pulls


POLICIES: dict[str, Callable[[Counts, Counts, np.random.Generator], Indices]] = {
    "random": _random,
    "gittins": _gittins,
    "thompson": _thompson,
    "optimistic thompson": _optimistic_thompson,
    "ucb1": _ucb1,
    "epsilon-greedy": _epsilon_greedy,
    "greedy": _greedy,
}
"""Index policies by name. Each pulls an arm with the largest index, computed from the arm's numbers
of pulls that paid and that did not."""


def bandit_policy_returns(
    policy: str, arms: int, pulls: int, *, trials: int = 10_000, seed: int = 0
) -> Int[np.ndarray, " trials"]:
    """Returns of one of `POLICIES` in fresh trials; ties between arms are broken at random.

    "gittins" has the discount 0.99 of the agents, "epsilon-greedy" explores in one pull of ten, and
    "ucb1" adds 0.2 sqrt(2 ln t / n), which earns more in so few pulls than the full bound.

    Raises:
        UserError: an unknown policy, or an impossible number.

    Source: the baselines of Duan et al. (2016), RL^2, section 3.1 and table 1.
    """
    require_choice("policy", policy, POLICIES)
    require_at_least("arms", arms, 2)
    require_at_least("pulls", pulls, 1)
    require_at_least("trials", trials, 2)
    rng = np.random.default_rng(seed)
    chances, every = rng.random((trials, arms)), np.arange(trials)
    wins, losses = np.zeros((2, trials, arms), np.int64)
    for _ in range(pulls):
        index = POLICIES[policy](wins, losses, rng)
        equal = index == index.max(axis=1, keepdims=True)
        arm = (equal * rng.random((trials, arms))).argmax(axis=1)
        paid = rng.random(trials) < chances[every, arm]
        wins[every, arm] += paid
        losses[every, arm] += ~paid
    return wins.sum(axis=1)
