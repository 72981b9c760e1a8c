"""The labyrinths: optimal walks when the maze is known, and walks when it is not."""

from typing import Any

import jax
import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, mean_of

from clew.envs.popgym import LabyrinthEscape, LabyrinthExplore
from clew.envs.popgym.labyrinth import FREE, carve, entrances

MAZES = 500
CLOCKWISE = ((0, 1), (1, 0), (0, -1), (-1, 0))
RIGHT_FIRST = (1, 0, 3, 2)
"""Turns right, straight on, left, back."""

Square = tuple[int, int]


def labyrinth_escape(env: LabyrinthEscape) -> Bounds:
    """Between a depth-first walk and the shortest way."""
    low, high = [], []
    for squares, start, goal in mazes(env.side):
        low.append(_escape_return(env, depth_first(squares, start, goal)))
        high.append(_escape_return(env, distances(squares, start)[goal]))
    return Bounds(
        mean_of(np.array(low)),
        "depth-first search, away from the start's wall where possible",
        mean_of(np.array(high)),
        "the shortest path",
    )


def labyrinth_explore(env: LabyrinthExplore) -> Bounds:
    """Between a walk along the wall and the shortest walk through the whole maze.

    A maze is a tree. A walk through all of it uses every passage twice, except those between the
    start and the last square, which at best is the farthest one.
    """
    high = []
    for squares, start, goal in mazes(env.side):
        far = distances(squares - {goal}, start)
        assert len(far) == len(squares) - 1, "a maze in pieces"
        high.append(1.0 - (len(far) - 1 - max(far.values())) / env.max_steps)
    return Bounds(
        explore_along_the_wall(env),
        "along the wall, without a memory",
        mean_of(np.array(high)),
        "the shortest walk through all squares",
    )


def escape_along_the_wall(env: LabyrinthEscape) -> Estimate:
    """Returns of a walk along the right wall that takes the exit as soon as it is adjacent."""
    walks = [follow_the_wall(*maze, limit=env.max_steps - 1) for maze in mazes(env.side)]
    return mean_of(np.array([_escape_return(env, len(walk) - 1) for walk in walks]))


def explore_along_the_wall(env: LabyrinthExplore) -> Estimate:
    """Returns of a walk along the right wall."""
    earned = []
    for squares, start, goal in mazes(env.side):
        walk = follow_the_wall(squares - {goal}, start, None, limit=env.max_steps - 1)
        new = len(set(walk)) - 1
        earned.append(new / (len(squares) - 2) - (len(walk) - 1 - new) / env.max_steps)
    return mean_of(np.array(earned))


def _escape_return(env: LabyrinthEscape, steps: int) -> float:
    return float(steps < env.max_steps) - min(steps, env.max_steps - 1) / env.max_steps


def mazes(side: int) -> list[tuple[set[Square], Square, Square]]:
    """The task's mazes: passable squares, with the start and the exit among them."""

    @jax.jit
    @jax.vmap
    def draw(key: Any) -> Any:
        maze, ends = jax.random.split(key)
        return carve(maze, side), *entrances(ends, side)

    found, drawn = [], jax.device_get(draw(jax.random.split(jax.random.key(0), MAZES)))
    for grid, *ends in zip(*drawn, strict=True):
        start, goal = ((int(row), int(column)) for row, column in ends)
        free = {(int(row), int(column)) for row, column in np.argwhere(grid == FREE)}
        found.append((free | {start, goal}, start, goal))
    return found


def distances(squares: set[Square], start: Square) -> dict[Square, int]:
    """Steps from the start to every reachable square."""
    found, queue = {start: 0}, [start]
    for square in queue:
        for following in _neighbours(squares, square):
            if following not in found:
                found[following] = found[square] + 1
                queue.append(following)
    return found


def depth_first(squares: set[Square], start: Square, goal: Square) -> int:
    """Steps to the exit of a walk to unseen squares, back if there are none, and out if possible.

    Of two ways, the one that leads away from the start's wall comes first: the exit is opposite.
    """
    path, seen = [start], {start}
    (first,) = _neighbours(squares, start)
    away = np.subtract(first, start)
    steps = 0
    while path[-1] != goal:
        new = [square for square in _neighbours(squares, path[-1]) if square not in seen]
        if new:
            path.append(max(new, key=lambda s: (s == goal, away @ np.array(s))))
            seen.add(path[-1])
        else:
            path.pop()
        steps += 1
    return steps


def follow_the_wall(
    squares: set[Square], start: Square, goal: Square | None, limit: int
) -> list[Square]:
    """The squares of a walk that turns right if it can, until it is out or has been everywhere.

    It needs only the observation of a step, the squares around, and the last action.
    """
    walk, seen, heading = [start], {start}, 0
    while len(walk) <= limit and walk[-1] != goal and len(seen) < len(squares):
        ahead = [(heading + turn) % 4 for turn in RIGHT_FIRST]
        ways = [(d, _next(walk[-1], d)) for d in ahead if _next(walk[-1], d) in squares]
        heading, square = next((way for way in ways if way[1] == goal), ways[0])
        walk.append(square)
        seen.add(square)
    return walk


def _next(square: Square, direction: int) -> Square:
    return square[0] + CLOCKWISE[direction][0], square[1] + CLOCKWISE[direction][1]


def _neighbours(squares: set[Square], square: Square) -> list[Square]:
    return [there for d in range(4) if (there := _next(square, d)) in squares]
