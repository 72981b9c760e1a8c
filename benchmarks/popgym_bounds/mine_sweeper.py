"""MineSweeper: least-risk play from below; from above, the risk of the first two squares."""

import itertools
from math import comb

import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, mean_of
from jaxtyping import Bool, Float, Int

from clew.envs.popgym import MineSweeper

GAMES = 2_000

Squares = Bool[np.ndarray, " squares"]
Neighbours = Bool[np.ndarray, "squares squares"]


def mine_sweeper(env: MineSweeper) -> Bounds:
    """Between least-risk play and the first two squares, whose risk nobody can avoid.

    If there are few boards, all are played.
    """
    squares, mines, rng = env.size**2, env.num_mines, np.random.default_rng(0)
    every = comb(squares, mines) < GAMES
    if every:
        places = itertools.combinations(range(squares), mines)
        boards = [np.isin(np.arange(squares), some) for some in places]
    else:
        boards = [rng.permutation(squares) < mines for _ in range(GAMES)]
    lower = mean_of(np.array([return_at_least_risk(env, board) for board in boards]))
    return Bounds(
        Estimate(lower.mean) if every else lower,
        "the square with the lowest risk over all possible boards",
        Estimate(max(bound_after_two_squares(env, neighbours) for neighbours in (3, 5, 8))),
        "the risk of the first two squares is unavoidable",
    )


def bound_after_two_squares(env: MineSweeper, neighbours: int) -> float:
    """The largest return if the first square has this many neighbours.

    The number of their mines is seen. The next square is one of them, or another one.
    """
    rest, clear = env.size**2 - 1 - neighbours, env.num_clear
    earned = env.num_mines / env.size**2 * (-0.5 - 1.0 / clear)
    for mines in range(env.num_mines + 1):
        ways = comb(neighbours, mines) * comb(rest, env.num_mines - mines)
        risk = min(mines / neighbours, (env.num_mines - mines) / rest)
        earned += ways / comb(env.size**2, env.num_mines) * (1.0 - risk - 0.5 * risk)
    return earned


def return_at_least_risk(env: MineSweeper, mines: Squares) -> float:
    """The return of opening squares without risk, and then one with the least risk.

    Among several it opens one with the fewest unseen neighbours, first of all a corner. If the best
    possible continuation is worth less than opening known squares until the time is over, it does
    the latter.
    """
    near, clear = neighbours_of(env.size), env.num_clear
    counts, seen = near.astype(int) @ mines, np.zeros(len(mines), bool)
    again, mine = 0.5 / (clear - 2), 0.5 + 1.0 / clear
    risks = np.ones(len(mines))
    risks[0] = env.num_mines / len(mines)
    while not (seen | mines).all():
        safe, left = ~seen & (risks < 1e-12), clear - int(seen.sum())
        if safe.any():
            seen |= safe
        else:
            unseen = near.astype(int) @ ~seen
            square = int(np.where(seen, 2.0, np.round(risks, 9) + 1e-9 * unseen).argmin())
            risk = risks[square]
            if (1.0 - risk) * left / clear - risk * mine < -left * again:
                return (clear - left) / clear - left * again
            if mines[square]:
                return (clear - left) / clear - mine
            seen[square] = True
        risks = mine_probabilities(near, seen, counts, env.num_mines)
    return 1.0


def mine_probabilities(
    near: Neighbours, seen: Squares, counts: Int[np.ndarray, " squares"], mines: int
) -> Float[np.ndarray, " squares"]:
    """The probability of a mine at every square, from all boards with the observed counts."""
    boards, covered = np.zeros((1, len(seen)), bool), seen.copy()
    for square in np.flatnonzero(seen):
        new = np.flatnonzero(near[square] & ~covered)
        missing = counts[square] - boards[:, near[square]].sum(axis=1)
        ways = np.array(list(itertools.product((False, True), repeat=len(new))))
        of_board, way = np.nonzero(missing[:, None] == ways.sum(axis=1)[None])
        boards = boards[of_board]
        boards[:, new] = ways[way]
        boards = boards[boards.sum(axis=1) <= mines]
        covered[new] = True
    elsewhere, left = int((~covered).sum()), mines - boards.sum(axis=1)
    weights = np.array([comb(elsewhere, n) for n in range(mines + 1)], float)[left]
    weights /= weights.sum()
    probabilities = weights @ boards
    if elsewhere:
        probabilities[~covered] = weights @ left / elsewhere
    return probabilities


def neighbours_of(size: int) -> Neighbours:
    """Which squares count for which: itself and those around it."""
    places = np.stack(np.unravel_index(np.arange(size**2), (size, size)), axis=1)
    return np.abs(places[:, None] - places[None]).max(axis=-1) <= 1
