"""Mazes seen three by three squares at a time: find the exit, or walk everywhere."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import MultiDiscrete
from jaxtyping import Array, Bool, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import LONGEST_EPISODE, UserError, require_at_least

FREE, WALL, START, GOAL = range(4)
MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)], np.int32)
"""Row and column offsets of every action."""
NONE = len(MOVES)
"""Stands for the last action at the start."""
LARGEST_SIDE = 64


class LabyrinthState(NamedTuple):
    """The state of an episode; rows count from the top, columns from the left."""

    grid: Int[Array, "side side"]
    place: Int[Array, " 2"]
    visited: Bool[Array, "side side"]
    time: Int[Array, ""]
    """Number of actions taken."""


def carve(key: Key[Array, ""], side: int) -> Int[Array, "side side"]:
    """A maze of free squares and walls, by the hunt-and-kill algorithm.

    From a random cell (an odd row and column) a walk opens one random unopened neighbour after
    another, two squares away, and the wall in between, until there is none. Then a cell is drawn,
    and if it is open, the next walk continues from it. There are side^2 + 1 walks, so a cell rarely
    stays closed.

    Source: mazelib 0.9.16, HuntAndKill with its default "random" order, which popgym uses.
    """
    cells, walks = (side // 2) ** 2, side**2 + 1
    bits = jax.random.bits(key, (walks + cells, 3), jnp.uint32)
    half, steps = side // 2, jnp.asarray(MOVES) * 2

    def some_cell(bits: Array) -> Int[Array, " 2"]:
        return 1 + 2 * (bits % half).astype(jnp.int32)

    def one(
        carry: tuple[Array, Array, Array], bits: Array
    ) -> tuple[tuple[Array, Array, Array], None]:
        grid, place, walk = carry
        there = place[None] + steps
        inside = jnp.all((there > 0) & (there < side), axis=1)
        row, column = jnp.clip(there, 0, side - 1).T
        closed = inside & (grid[row, column] == WALL) & (grid[place[0], place[1]] == FREE)
        count = jnp.sum(closed)
        wanted = (bits[2] % jnp.maximum(count, 1).astype(jnp.uint32)).astype(jnp.int32)
        chosen = jnp.argmax(closed & (jnp.cumsum(closed) == wanted + 1))
        goes = (count > 0) & (walk < walks)
        following = place + steps[chosen]
        between = place + steps[chosen] // 2
        opened = grid.at[following[0], following[1]].set(FREE).at[between[0], between[1]].set(FREE)
        grid = jnp.where(goes, opened, grid)
        place = jnp.where(goes, following, some_cell(bits[:2]))
        return (grid, place, walk + (~goes).astype(jnp.int32)), None

    first = some_cell(jax.random.bits(jax.random.fold_in(key, 1), (2,), jnp.uint32))
    grid = jnp.full((side, side), WALL, jnp.int8).at[first[0], first[1]].set(FREE)
    (grid, _, _), _ = jax.lax.scan(one, (grid, first, jnp.zeros((), jnp.int32)), bits)
    return grid


def entrances(key: Key[Array, ""], side: int) -> tuple[Int[Array, " 2"], Int[Array, " 2"]]:
    """Start and exit, on opposite walls, each at a random odd row or column.

    Source: mazelib 0.9.16, with both entrances on the outside.
    """
    wall, places = jax.random.split(key)
    direction = jax.random.randint(wall, (), 0, 4)
    start, end = 1 + 2 * jax.random.randint(places, (2,), 0, side // 2)
    near, far = jnp.zeros((), jnp.int32), jnp.asarray(side - 1, jnp.int32)
    first = jnp.where(direction % 2 == 0, near, far)
    pair = jnp.stack([jnp.stack([first, start]), jnp.stack([side - 1 - first, end])])
    pair = jnp.where(direction >= 2, pair[:, ::-1], pair)
    return pair[0], pair[1]


class _Labyrinth(Environment):
    """The common part of both tasks: the maze and the movement in it."""

    SIZES: ClassVar[Sizes] = {
        "easy": {"size": 10, "max_steps": 1024},
        "medium": {"size": 14, "max_steps": 1024},
        "hard": {"size": 18, "max_steps": 1024},
    }
    has_exit: ClassVar[bool] = False
    side: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_size = 10
    num_actions = len(MOVES)
    action_names = ("left", "right", "up", "down")
    opening_is_costly = True

    def __init__(
        self, difficulty: str = "easy", size: int | None = None, max_steps: int | None = None
    ):
        side, self.max_steps = sized(self.SIZES, difficulty, size=size, max_steps=max_steps)
        require_at_least("size", side, 4, LARGEST_SIDE)
        if side % 2:
            raise UserError(f"size must be even, got {side}")
        require_at_least("max_steps", self.max_steps, 2, LONGEST_EPISODE)
        self.side = side + 1

    @property
    def observation_space(self) -> MultiDiscrete:
        """Nine squares and the last action."""
        return MultiDiscrete([5] * 10)

    def reset(self, key: Key[Array, ""]) -> tuple[LabyrinthState, Int[Array, " 10"]]:
        maze, ends = jax.random.split(key)
        return self.reset_to(carve(maze, self.side), *entrances(ends, self.side))

    def reset_to(
        self,
        grid: Int[Array, "side side"] | np.ndarray,
        start: Int[Array, " 2"] | np.ndarray,
        end: Int[Array, " 2"] | np.ndarray,
    ) -> tuple[LabyrinthState, Int[Array, " 10"]]:
        """Opens an episode in this maze of free squares (0) and walls (1), with these entrances."""
        grid, start = jnp.asarray(grid, jnp.int8), jnp.asarray(start, jnp.int32)
        grid = grid.at[start[0], start[1]].set(START)
        if self.has_exit:
            grid = grid.at[end[0], end[1]].set(GOAL)
        visited = jnp.zeros(grid.shape, bool).at[start[0], start[1]].set(True)
        state = LabyrinthState(grid, start, visited, jnp.zeros((), jnp.int32))
        return state, self._observe(state, jnp.full((), NONE, jnp.int32))

    def _walked(
        self, state: LabyrinthState, action: Int[Array, ""]
    ) -> tuple[LabyrinthState, Int[Array, " 10"], Bool[Array, ""]]:
        """The state after an action, the observation, and whether the square is visited for the
        first time."""
        action = jnp.clip(jnp.asarray(action).astype(jnp.int32), 0, NONE - 1)
        there = jnp.clip(state.place + jnp.asarray(MOVES)[action], 0, self.side - 1)
        blocked = state.grid[there[0], there[1]] == WALL
        row, column = place = jnp.where(blocked, state.place, there)
        new = ~state.visited[row, column]
        visited = state.visited.at[row, column].set(True)
        after = LabyrinthState(state.grid, place, visited, state.time + 1)
        return after, self._observe(after, action), new

    def _observe(self, state: LabyrinthState, action: Int[Array, ""]) -> Int[Array, " 10"]:
        """The squares around the agent, by rows, and the action that led here.

        At the maze's edge, squares outside are left out and the others move up or to the left;
        missing entries at the end are walls. This is as in popgym.
        """
        first = jnp.maximum(state.place - 1, 0)
        rows, columns = (first[axis] + jnp.arange(3) for axis in (0, 1))
        shown_rows = (rows <= state.place[0] + 1) & (rows < self.side)
        shown_columns = (columns <= state.place[1] + 1) & (columns < self.side)
        last = self.side - 1
        squares = state.grid[jnp.ix_(jnp.minimum(rows, last), jnp.minimum(columns, last))]
        shown = jnp.outer(shown_rows, shown_columns)
        view = jnp.where(shown, squares.astype(jnp.int32), WALL)
        return jnp.append(view.ravel(), action)

    def render_text(self, state: Any, observation: Any) -> str:
        """The maze: # a wall, + a visited square, S the start, G the exit, A the agent."""
        marks = np.array([".", "#", "S", "G"])[np.asarray(state.grid, int)]
        marks[np.asarray(state.visited) & (marks == ".")] = "+"
        marks[tuple(int(x) for x in state.place)] = "A"
        return "\n".join("".join(row) for row in marks) + "\n"


class LabyrinthEscape(_Labyrinth):
    """Find the exit of a maze of which three by three squares are seen at a time.

    Every action costs 1 / n; the one that reaches the exit gives an additional 1 and ends the
    episode, which is truncated after n - 1 actions. The observation has the squares around the
    agent (0 free, 1 wall, 2 start, 3 exit) and the last action, 4 at the start.

    Actions: 0 left, 1 right, 2 up, 3 down; walls block. Other integers act as the nearest of these.

    Args:
        difficulty: easy, medium or hard: mazes of 11, 15 or 19 squares a side.
        size: side length in squares minus one, an even number; overrides the difficulty.
        max_steps: n; 1,024 by default.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, LabyrinthEscape, which warns that its mazes can be solved without memory.
    """

    has_exit = True
    metric_names = ("success",)
    boolean_metrics = ("success",)

    def step(
        self, state: LabyrinthState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[LabyrinthState, Transition]:
        after, seen, _ = self._walked(state, action)
        out = after.grid[after.place[0], after.place[1]] == GOAL
        success = out.astype(jnp.float32)
        return after, Transition(
            observation=seen,
            reward=success - 1.0 / self.max_steps,
            terminated=out,
            truncated=after.time == self.max_steps - 1,
            metrics={"success": success},
        )


class LabyrinthExplore(_Labyrinth):
    """Visit every square of a maze of which three by three squares are seen at a time.

    The first visit to a square gives 1 / m, where m is the number of free squares without the
    start, so the return is at most 1; every other action costs 1 / n. The episode ends when all
    squares were visited, and is truncated after n - 1 actions. Observations and actions are as in
    `LabyrinthEscape`; there is no exit.

    Args:
        difficulty: easy, medium or hard: mazes of 11, 15 or 19 squares a side.
        size: side length in squares minus one, an even number; overrides the difficulty.
        max_steps: n; 1,024 by default.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, LabyrinthExplore, which warns that its mazes can be solved without memory.
    """

    metric_names = ("explored",)

    def step(
        self, state: LabyrinthState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[LabyrinthState, Transition]:
        after, seen, new = self._walked(state, action)
        open_squares = after.grid != WALL
        share = 1.0 / jnp.maximum(jnp.sum(after.grid == FREE), 1).astype(jnp.float32)
        known = jnp.sum(after.visited & open_squares) / jnp.sum(open_squares)
        return after, Transition(
            observation=seen,
            reward=jnp.where(new, share, -1.0 / self.max_steps),
            terminated=jnp.all(open_squares == after.visited),
            truncated=after.time == self.max_steps - 1,
            metrics={"explored": known.astype(jnp.float32)},
        )
