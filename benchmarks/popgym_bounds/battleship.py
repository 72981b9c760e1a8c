"""Battleship: a greedy policy from below; from above, a player who has to find only one ship."""

import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, mean_of
from jaxtyping import Bool, Float

from clew.envs.popgym import Battleship
from clew.envs.popgym.battleship import SHIPS, ways_to_lie

EPISODES = 1_000
HIT_WEIGHT = 10.0
"""How much likelier a placement of a ship becomes with each hit on it."""
HIDDEN = 0
"""The ship that has to be found while the others are shown."""

Boards = Bool[np.ndarray, "boards squares"]
Placements = Float[np.ndarray, "placements squares"]


def battleship(env: Battleship) -> Bounds:
    """Between shots at the likeliest square and the search for one ship."""
    rng = np.random.default_rng(0)
    boards = draw_boards(env, rng)
    relaxed = [return_with_one_hidden(env.size, rng) for _ in range(EPISODES // 2)]
    return Bounds(
        mean_of(returns_of_greedy_shots(boards, env.size)),
        "the square in most possible ship placements, weighted tenfold for each hit",
        mean_of(np.array(relaxed)),
        "the ship of length 2 must be found even if the others are shown",
    )


def draw_boards(env: Battleship, rng: np.random.Generator) -> Boards:
    """Positions of the ships in fresh episodes."""
    return np.array([env.draw(rng, 0)["ships"].ravel() for _ in range(EPISODES)])


def placements(size: int, ship: int) -> Placements:
    """Possible placements of a ship of this length, each one once."""
    ways = ways_to_lie(size, ship)
    boards = np.zeros((len(ways), size**2))
    np.put_along_axis(boards, ways, 1.0, axis=1)
    return np.unique(boards, axis=0)


def returns_of_greedy_shots(boards: Boards, size: int) -> np.ndarray:
    """Returns of shots at the square with the largest weight of placements without a miss."""
    ways = np.concatenate([placements(size, ship) for ship in SHIPS])
    shot, misses, left = np.zeros_like(boards), np.zeros(len(boards)), np.arange(len(boards))
    while len(left):
        hits = (boards[left] & shot[left]) @ ways.T
        possible = (~boards[left] & shot[left]) @ ways.T == 0
        weights = np.where(possible & (hits < ways.sum(axis=1)), HIT_WEIGHT**hits, 0.0)
        square = np.where(shot[left], -1.0, weights @ ways).argmax(axis=1)
        shot[left, square] = True
        misses[left] += ~boards[left, square]
        left = left[(boards[left] & ~shot[left]).any(axis=1)]
    return 1.0 - misses / (size**2 - sum(SHIPS))


def return_with_one_hidden(size: int, rng: np.random.Generator) -> float:
    """The largest return on a board on which all ships but the first are shown.

    Until it is hit, t shots find it with a probability of at most the sum of the t largest
    probabilities that it covers a square.
    """
    ways, board, laid = {ship: placements(size, ship) for ship in SHIPS}, np.zeros(size**2), []
    for ship in SHIPS:
        free = ways[ship][ways[ship] @ board == 0]
        laid.append(free[rng.integers(len(free))])
        board += laid[-1]
    possible = ways[SHIPS[HIDDEN]][ways[SHIPS[HIDDEN]] @ (board - laid[HIDDEN]) == 0]
    # The probability of the other ships' positions, after each placement of the hidden one.
    before, weights = possible, np.ones(len(possible))
    for ship, there in zip(SHIPS[1:], laid[1:], strict=True):
        weights /= (before @ ways[ship].T == 0).sum(axis=1)
        before = before + there
    covered = np.sort(weights @ possible / weights.sum())[::-1]
    misses = np.maximum(0.0, 1.0 - covered.cumsum()).sum()
    return 1.0 - float(misses) / (size**2 - sum(SHIPS))


def shots_in_order(env: Battleship) -> Estimate:
    """The return of shots at one square after another, in row order."""
    squares, needed = env.size**2, sum(SHIPS)
    boards = draw_boards(env, np.random.default_rng(0))
    shots = squares - boards[:, ::-1].argmax(axis=1)
    return mean_of(1.0 - (shots - needed) / (squares - needed))
