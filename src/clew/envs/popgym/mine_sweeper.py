"""Minesweeper on an unseen board."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from jaxtyping import Array, Bool, Int, Key

from clew.envs.base import Environment, Transition, as_array
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import UserError, require_at_least

LARGEST_BOARD = 32


class MineSweeperState(NamedTuple):
    """The state of an episode."""

    mines: Bool[Array, "rows columns"]
    viewed: Bool[Array, "rows columns"]
    time: Int[Array, ""]
    """Number of actions taken."""


class MineSweeper(Environment):
    """Look at every square without a mine on an unseen board.

    The observation is the number of mines on the square last looked at and its eight neighbours,
    but not which square it was: the agent needs its previous action (`previous_action` of
    `clew.WrapperConfig`). With c squares without a mine, a new one gives 1 / c, one seen before
    -0.5 / (c - 2), and a mine -0.5 - 1 / c. The episode ends at a mine or when all squares without
    one have been looked at; it is truncated after c actions. Looking at all of them has the return
    1, which takes luck.

    Actions: a row and a column; outside the board, the nearest square is taken.

    Args:
        difficulty: easy, medium or hard: 4, 6 or 8 squares a side with 2, 6 or 10 mines.
        size: side length, 2 to 32; overrides the difficulty.
        num_mines: overrides the difficulty; at least 3 squares must have no mine.
        as_published: truncate an episode one action later, as in popgym before 1.0.7, with which
            the published scores were made.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, MineSweeper. Its observation has no number for more than 9 mines on nine
    squares, and there cannot be more.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"size": 4, "num_mines": 2},
        "medium": {"size": 6, "num_mines": 6},
        "hard": {"size": 8, "num_mines": 10},
    }
    size: int = eqx.field(static=True)
    num_mines: int = eqx.field(static=True)
    as_published: bool = eqx.field(static=True)
    num_actions = 0
    observation_size = 1
    opening_is_costly = True
    metric_names = ("viewed",)

    def __init__(
        self,
        difficulty: str = "easy",
        size: int | None = None,
        num_mines: int | None = None,
        as_published: bool = False,
    ):
        self.size, self.num_mines = sized(self.SIZES, difficulty, size=size, num_mines=num_mines)
        require_at_least("size", self.size, 2, LARGEST_BOARD)
        require_at_least("num_mines", self.num_mines, 1, self.size**2 - 3)
        if not isinstance(as_published, bool):
            raise UserError(f"as_published must be True or False, got {as_published!r}")
        self.as_published = as_published

    @property
    def observation_space(self) -> Discrete:
        """The number of mines nearby."""
        return Discrete(min(self.num_mines + 1, 10))

    @property
    def action_space(self) -> MultiDiscrete:
        """A row and a column."""
        return MultiDiscrete([self.size, self.size])

    @property
    def num_clear(self) -> int:
        """Number of squares without a mine."""
        return self.size**2 - self.num_mines

    def reset(self, key: Key[Array, ""]) -> tuple[MineSweeperState, Int[Array, ""]]:
        # Where jax.random.permutation would put each mine, without sorting the other squares.
        places = jnp.arange(self.size**2)[None]
        bits = jax.random.bits(jax.random.split(key)[1], places.shape)
        mine, of_mine = places[:, : self.num_mines].T, bits[:, : self.num_mines].T
        before = (bits < of_mine) | ((bits == of_mine) & (places < mine))
        mines = jnp.any(jnp.sum(before, axis=1, keepdims=True) == places, axis=0)
        return self.reset_to(mines.reshape(self.size, self.size))

    def reset_to(
        self, mines: Bool[Array, "rows columns"] | np.ndarray
    ) -> tuple[MineSweeperState, Int[Array, ""]]:
        """Opens an episode with mines on these squares."""
        mines, zero = jnp.asarray(mines, bool), jnp.zeros((), jnp.int32)
        return MineSweeperState(mines, jnp.zeros_like(mines), zero), zero

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        order = rng.permutation(self.size**2)
        return {"mines": (order < self.num_mines).reshape(self.size, self.size)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        mines = as_array(given["mines"])
        if mines.shape != (self.size, self.size) or int((mines != 0).sum()) != self.num_mines:
            raise UserError(
                f"mines must be {self.size} rows of {self.size} squares, {self.num_mines} of them "
                f"with a mine, got {given['mines']!r}"
            )
        return {"mines": mines != 0}

    def step(
        self, state: MineSweeperState, action: Int[Array, " 2"], key: Key[Array, ""]
    ) -> tuple[MineSweeperState, Transition]:
        row, column = jnp.clip(jnp.asarray(action).astype(jnp.int32), 0, self.size - 1)
        mine, again = state.mines[row, column], state.viewed[row, column]
        viewed = state.viewed.at[row, column].set(True)
        gain, again_cost = 1.0 / self.num_clear, 0.5 / (self.num_clear - 2)
        reward = jnp.where(mine, -0.5 - gain, jnp.where(again, -again_cost, gain))
        time = state.time + 1
        terminated = mine | jnp.all(viewed | state.mines)
        limit = self.num_clear + self.as_published
        near = jax.lax.dynamic_slice(jnp.pad(state.mines, 1), (row, column), (3, 3))
        seen = jnp.sum((viewed & ~state.mines).astype(jnp.float32)) / self.num_clear
        return MineSweeperState(state.mines, viewed & ~state.mines, time), Transition(
            observation=jnp.sum(near.astype(jnp.int32)),
            reward=reward.astype(jnp.float32),
            terminated=terminated,
            truncated=(time >= limit) & ~terminated,
            metrics={"viewed": seen},
        )

    def render_text(self, state: Any, observation: Any) -> str:
        """The board: * a mine, o a square that was looked at."""
        marks = np.array([[".", "o"], ["*", "*"]])
        rows = marks[np.asarray(state.mines, int), np.asarray(state.viewed, int)]
        return "\n".join("".join(row) for row in rows) + "\n"
