"""Battleship and MineSweeper: policies that remember everything, and what nobody can know."""

import itertools
from math import comb

import numpy as np
from benchmarks.popgym_bounds.bracket import Bracket, Estimate, mean_of
from jaxtyping import Bool, Float, Int

from clew.envs.popgym import Battleship, MineSweeper
from clew.envs.popgym.battleship import SHIPS, _ways

EPISODES, GAMES = 1_000, 2_000
BOOST = 10.0
"""By how much likelier a place of a ship is for each hit on it."""
HIDDEN = 0
"""The ship that has to be found where the others are shown."""

Board = Bool[np.ndarray, " squares"]


def battleship(env: Battleship) -> Bracket:
    """Between shots at the likeliest square and a search for one ship alone."""
    rng = np.random.default_rng(0)
    boards = np.array([env.draw(rng, 0)["ships"].ravel() for _ in range(EPISODES)])
    return Bracket(
        mean_of(shots_at_the_likeliest(boards, env.size)),
        "the square with most places of ships, those with hits counting tenfold a hit",
        mean_of(np.array([found_late(env.size, rng) for _ in range(EPISODES // 2)])),
        "the ship of 2 has to be found, were the others shown",
    )


def places(size: int, ship: int) -> Float[np.ndarray, "places squares"]:
    """Where a ship can lie, each place once."""
    ways = _ways(size, ship)
    boards = np.zeros((len(ways), size**2))
    np.put_along_axis(boards, ways, 1.0, axis=1)
    return np.unique(boards, axis=0)


def shots_at_the_likeliest(boards: Bool[np.ndarray, "boards squares"], size: int) -> np.ndarray:
    """Returns of who shoots where most places of the four ships are that have no miss."""
    ways = np.concatenate([places(size, ship) for ship in SHIPS])
    shot, misses, left = np.zeros_like(boards), np.zeros(len(boards)), np.arange(len(boards))
    while len(left):
        hits = (boards[left] & shot[left]) @ ways.T
        possible = (~boards[left] & shot[left]) @ ways.T == 0
        weights = np.where(possible & (hits < ways.sum(axis=1)), BOOST**hits, 0.0)
        square = np.where(shot[left], -1.0, weights @ ways).argmax(axis=1)
        shot[left, square] = True
        misses[left] += ~boards[left, square]
        left = left[(boards[left] & ~shot[left]).any(axis=1)]
    return 1.0 - misses / (size**2 - sum(SHIPS))


def found_late(size: int, rng: np.random.Generator) -> float:
    """What is earned at most on a board of which all ships but the first are shown.

    Until it is hit, t shots have found it with a probability of no more than the sum of the t
    largest chances that a square has it.
    """
    ways, board, laid = {ship: places(size, ship) for ship in SHIPS}, np.zeros(size**2), []
    for ship in SHIPS:
        free = ways[ship][ways[ship] @ board == 0]
        laid.append(free[rng.integers(len(free))])
        board += laid[-1]
    possible = ways[SHIPS[HIDDEN]][ways[SHIPS[HIDDEN]] @ (board - laid[HIDDEN]) == 0]
    before, weights = possible, np.ones(len(possible))
    for ship, there in zip(SHIPS[1:], laid[1:], strict=True):
        weights /= (before @ ways[ship].T == 0).sum(axis=1)
        before = before + there
    chances = np.sort(weights @ possible / weights.sum())[::-1]
    misses = np.maximum(0.0, 1.0 - chances.cumsum()).sum()
    return 1.0 - float(misses) / (size**2 - sum(SHIPS))


def swept(env: Battleship) -> Estimate:
    """Returns of who shoots at one square after the other, in the order of rows."""
    rng, squares, needed = np.random.default_rng(0), env.size**2, sum(SHIPS)
    boards = np.array([env.draw(rng, 0)["ships"].ravel() for _ in range(EPISODES)])
    shots = squares - boards[:, ::-1].argmax(axis=1)
    return mean_of(1.0 - (shots - needed) / (squares - needed))


def mine_sweeper(env: MineSweeper) -> Bracket:
    """Between the square of the least risk and the first two, which nobody can know.

    Where the boards are few, all are played.
    """
    squares, mines, rng = env.size**2, env.num_mines, np.random.default_rng(0)
    if comb(squares, mines) < GAMES:
        boards = [np.isin(np.arange(squares), m) for m in _choices(squares, mines)]
    else:
        boards = [rng.permutation(squares) < mines for _ in range(GAMES)]
    low, every = mean_of(np.array([least_risk(env, b) for b in boards])), len(boards) < GAMES
    return Bracket(
        low._replace(error=0.0) if every else low,
        "the square of the least risk of all boards that are possible",
        Estimate(max(two_squares(env, near) for near in (3, 5, 8))),
        "the first two squares are a risk",
    )


def _choices(squares: int, mines: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(squares), mines))


def two_squares(env: MineSweeper, near: int) -> float:
    """What is earned at most if the first square has so many neighbours.

    It is seen how many mines they have. The next square is one of them, or another one.
    """
    rest, clear = env.size**2 - 1 - near, env.num_clear
    earned = env.num_mines / env.size**2 * (-0.5 - 1.0 / clear)
    for mines in range(env.num_mines + 1):
        ways = comb(near, mines) * comb(rest, env.num_mines - mines)
        risk = min(mines / near, (env.num_mines - mines) / rest)
        earned += ways / comb(env.size**2, env.num_mines) * (1.0 - risk - 0.5 * risk)
    return earned


def least_risk(env: MineSweeper, board: Board) -> float:
    """The return of who looks at squares of no risk, then at one of the least risk.

    Of several of these it is one with the fewest unseen squares around. Where even the best that
    can follow is worth less than to look at known squares until the time is over, it does that. A
    corner comes first.
    """
    beside, clear = _beside(env.size), env.num_clear
    shown, seen = beside.astype(int) @ board, np.zeros(len(board), bool)
    again, mine = 0.5 / (clear - 2), 0.5 + 1.0 / clear
    risks = np.ones(len(board))
    risks[0] = env.num_mines / len(board)
    while not (seen | board).all():
        safe, left = ~seen & (risks < 1e-12), clear - int(seen.sum())
        if safe.any():
            seen |= safe
        else:
            unseen = beside.astype(int) @ ~seen
            square = int(np.where(seen, 2.0, np.round(risks, 9) + 1e-9 * unseen).argmin())
            risk = risks[square]
            if (1.0 - risk) * left / clear - risk * mine < -left * again:
                return (clear - left) / clear - left * again
            if board[square]:
                return (clear - left) / clear - mine
            seen[square] = True
        risks = mine_chances(beside, seen, shown, env.num_mines)
    return 1.0


def mine_chances(
    beside: Bool[np.ndarray, "squares squares"],
    seen: Board,
    shown: Int[np.ndarray, " squares"],
    mines: int,
) -> Float[np.ndarray, " squares"]:
    """The chances of a mine at every square, from all boards that show what was seen."""
    boards, covered = np.zeros((1, len(seen)), bool), seen.copy()
    for square in np.flatnonzero(seen):
        new = np.flatnonzero(beside[square] & ~covered)
        missing = shown[square] - boards[:, beside[square]].sum(axis=1)
        ways = np.array(list(itertools.product((False, True), repeat=len(new))))
        of_board, way = np.nonzero(missing[:, None] == ways.sum(axis=1)[None])
        boards = boards[of_board]
        boards[:, new] = ways[way]
        boards = boards[boards.sum(axis=1) <= mines]
        covered[new] = True
    elsewhere, left = int((~covered).sum()), mines - boards.sum(axis=1)
    weights = np.array([comb(elsewhere, n) for n in range(mines + 1)], float)[left]
    weights /= weights.sum()
    chances = weights @ boards
    if elsewhere:
        chances[~covered] = weights @ left / elsewhere
    return chances


def _beside(size: int) -> Bool[np.ndarray, "squares squares"]:
    """Which squares are seen from which: itself and its neighbours."""
    places = np.stack(np.unravel_index(np.arange(size**2), (size, size)), axis=1)
    return np.abs(places[:, None] - places[None]).max(axis=-1) <= 1
