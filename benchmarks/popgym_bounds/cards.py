"""The best returns of tasks with cards, which are computed, and of the bandit."""

import functools
import math
from collections import Counter

import numpy as np
from benchmarks.bandit_policies import bandit_policy_returns
from benchmarks.popgym_bounds.bracket import Bracket, Estimate, exact, mean_of
from scipy.special import binom

from clew.envs.popgym import Concentration, HigherLower, MultiarmedBandit
from clew.envs.popgym.cards import KINDS, RANKS

TRIALS = 3_000
"""Of the bandit."""
COSTS = np.linspace(0.5, 1.0, 501)[:, None]
"""Of a pull, of which the best one is taken."""

Lying = tuple[tuple[int, int], ...]
"""Of every kind how many cards lie at places that are known, and how many elsewhere; sorted."""


def higher_lower(env: HigherLower) -> Bracket:
    """Who counts the cards says at every step what more of those that are left are.

    With `left` cards still to come, of which H are higher and L lower than the one that lies there,
    a step is worth |H - L| / left; H and L are drawn without replacement.
    """
    each, total = env.num_cards // len(RANKS), 0.0
    for left in range(1, env.num_cards):
        for rank in range(len(RANKS)):
            above, below = (len(RANKS) - 1 - rank) * each, rank * each
            higher, lower = np.ogrid[: above + 1, : below + 1]
            ways = binom(above, higher) * binom(below, lower)
            ways = ways * binom(each - 1, left - higher - lower)
            total += (ways * np.abs(higher - lower)).sum() / binom(env.num_cards - 1, left) / left
    return exact(total / len(RANKS) / env.num_cards, "counting the cards")


def concentration(env: Concentration) -> Bracket:
    """All pairs earn 1, and two cards that differ cost 2 of the time limit.

    Time is of no matter: the best play has at most as many turns without a pair as there are pairs,
    for which the limit has room.
    """
    kinds = len(KINDS[env.kind])
    lost = mismatches(((0, env.num_actions // kinds),) * kinds)
    return exact(1.0 - 2.0 / env.time_limit * lost, "perfect memory")


@functools.cache
def mismatches(lying: Lying) -> float:
    """The fewest turns without a pair, on average, that are still to come before a turn.

    Every turn is tried: a known pair, and as the first card one that is known or one that is not.
    A card that lies face up already costs as much as a turn and shows nothing.
    """
    kinds = Counter(lying)
    unknown = sum(kind[1] * many for kind, many in kinds.items())
    if not unknown:
        return 0.0
    ways = [mismatches(_with(lying, kind, -2, 0)) for kind in kinds if kind[0] >= 2]
    ways += [_second(lying, kind) for kind in kinds if kind[0]]
    chances = {kind: kind[1] * many / unknown for kind, many in kinds.items() if kind[1]}
    return min([*ways, sum(p * _first(lying, kind) for kind, p in chances.items())])


def _first(lying: Lying, kind: tuple[int, int]) -> float:
    """After an unknown card, of this kind: one that makes a pair, an unknown one, or neither."""
    shown = _with(lying, kind, 1, -1)
    ways = [1.0 + mismatches(shown), _second(shown, _settled(kind[0] + 1, kind[1] - 1))]
    return min([*ways, mismatches(_with(lying, kind, -1, -1))] if kind[0] else ways)


def _second(lying: Lying, first: tuple[int, int]) -> float:
    """After a card of a kind, whose place is known, an unknown one."""
    kinds = Counter(lying)
    unknown = sum(kind[1] * many for kind, many in kinds.items())
    if not unknown:
        return math.inf
    total = first[1] * mismatches(_with(lying, first, -1, -1)) if first[1] else 0.0
    for kind, many in kinds.items():
        others = many - (kind == first)
        if kind[1] and others:
            total += others * kind[1] * (1.0 + mismatches(_with(lying, kind, 1, -1)))
    return total / unknown


def _with(lying: Lying, kind: tuple[int, int], known: int, unknown: int) -> Lying:
    """As many more cards of a kind at places that are known, and that are not."""
    others = list(lying)
    others.remove(kind)
    return tuple(sorted([*others, _settled(kind[0] + known, kind[1] + unknown)]))


def _settled(known: int, unknown: int) -> tuple[int, int]:
    """A kind; where all its places are known its pairs are certain."""
    return (known, unknown) if unknown else (0, 0)


def multiarmed_bandit(env: MultiarmedBandit) -> Bracket:
    """Between an index policy and the best of arms that are pulled n times in all on average."""
    paid = bandit_policy_returns("gittins", env.num_actions, env.pulls, trials=TRIALS)
    most = min(env.pulls * COSTS + env.num_actions * one_arm(env.pulls, COSTS))[0]
    return Bracket(
        mean_of(2.0 * paid / env.pulls - 1.0),
        "Gittins indices, discount 0.99",
        Estimate(2.0 * float(most) / env.pulls - 1.0),
        "arms are independent if n pulls in all are a mean",
    )


def one_arm(pulls: int, costs: np.ndarray) -> np.ndarray:
    """The value of an arm alone that may be pulled so often, where every pull has a cost.

    Whatever is done with k arms in n pulls, each earns at most this value and the cost of its
    pulls, so that all earn n cost + k value or less, for every cost.
    """
    value = np.zeros((len(costs), pulls + 1))
    for total in range(pulls - 1, -1, -1):
        paid = (np.arange(total + 1) + 1) / (total + 2)
        value = np.maximum(0.0, paid * (1 + value[:, 1:]) + (1 - paid) * value[:, :-1] - costs)
    return value


def win_stay(env: MultiarmedBandit) -> Estimate:
    """The same arm again after it paid, else the next one."""
    rng, every = np.random.default_rng(0), np.arange(TRIALS)
    chances, arm = rng.random((TRIALS, env.num_actions)), np.zeros(TRIALS, int)
    total = np.zeros(TRIALS)
    for _ in range(env.pulls):
        paid = rng.random(TRIALS) < chances[every, arm]
        total += 2 * paid - 1
        arm = np.where(paid, arm, (arm + 1) % env.num_actions)
    return mean_of(total / env.pulls)


def one_arm_after_a_payment(env: MultiarmedBandit) -> Estimate:
    """The first arm after a payment, else any of the others.

    With the chances a of a payment after none, and b after one, the pulls are a Markov chain.
    """
    chances = np.random.default_rng(0).random((50 * TRIALS, env.num_actions))
    b, a = chances[:, 0], chances[:, 1:].mean(axis=1)
    fades = (b - a) * (1 - (b - a) ** env.pulls) / (1 - b + a) / env.pulls
    return mean_of(2 * a / (1 - b + a) * (1 - fades) - 1)
