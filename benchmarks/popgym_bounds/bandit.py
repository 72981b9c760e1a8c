"""The bandit: Gittins indices from below, a Lagrangian relaxation from above."""

import numpy as np
from benchmarks.bandit_policies import bandit_policy_returns
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, mean_of

from clew.envs.popgym import MultiarmedBandit

TRIALS = 3_000
PRICES = np.linspace(0.5, 1.0, 501)[:, None]
"""Prices of a pull: Lagrange multipliers; the one with the least bound is used."""


def multiarmed_bandit(env: MultiarmedBandit) -> Bounds:
    """Between an index policy, and arms whose number of pulls is n only in expectation.

    With a price per pull, arms are independent, and k of them earn no more in n pulls than
    n price + k value of one arm at that price.
    """
    paid = bandit_policy_returns("gittins", env.num_actions, env.pulls, trials=TRIALS)
    most = min(env.pulls * PRICES + env.num_actions * single_arm_value(env.pulls, PRICES))[0]
    return Bounds(
        mean_of(2.0 * paid / env.pulls - 1.0),
        "Gittins indices, discount 0.99",
        Estimate(2.0 * float(most) / env.pulls - 1.0),
        "n pulls on average, which makes the arms independent",
    )


def single_arm_value(pulls: int, prices: np.ndarray) -> np.ndarray:
    """The optimal value of an arm that may be pulled this often, at each price of a pull."""
    value = np.zeros((len(prices), pulls + 1))
    for total in range(pulls - 1, -1, -1):
        paid = (np.arange(total + 1) + 1) / (total + 2)
        value = np.maximum(0.0, paid * (1 + value[:, 1:]) + (1 - paid) * value[:, :-1] - prices)
    return value


def win_stay(env: MultiarmedBandit) -> Estimate:
    """Win-stay, lose-shift: the same arm again after it paid, else the next one."""
    rng, every = np.random.default_rng(0), np.arange(TRIALS)
    chances, arm = rng.random((TRIALS, env.num_actions)), np.zeros(TRIALS, int)
    total = np.zeros(TRIALS)
    for _ in range(env.pulls):
        paid = rng.random(TRIALS) < chances[every, arm]
        total += 2 * paid - 1
        arm = np.where(paid, arm, (arm + 1) % env.num_actions)
    return mean_of(total / env.pulls)


def one_arm(env: MultiarmedBandit) -> Estimate:
    """The first arm after a payment, else any of the others.

    With probabilities a and b of a payment after none and after one, pulls are a Markov chain.
    """
    chances = np.random.default_rng(0).random((50 * TRIALS, env.num_actions))
    b, a = chances[:, 0], chances[:, 1:].mean(axis=1)
    transient = (b - a) * (1 - (b - a) ** env.pulls) / (1 - b + a) / env.pulls
    return mean_of(2 * a / (1 - b + a) * (1 - transient) - 1)
