"""Battleship on an unseen board."""

from functools import lru_cache
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

SHIPS = (2, 3, 3, 4)
"""Lengths of the ships."""
LARGEST_BOARD = 32


class BattleshipState(NamedTuple):
    """The state of an episode."""

    ships: Bool[Array, "rows columns"]
    """Where ships lie."""
    guessed: Bool[Array, "rows columns"]
    """The squares shot at."""
    hits: Int[Array, ""]
    time: Int[Array, ""]
    """Number of shots so far."""


class Battleship(Environment):
    """Sink four ships on an unseen board, shot by shot.

    The observation is whether the last shot hit, but not where it went: the agent needs its
    previous action (`previous_action` of `clew.WrapperConfig`). With c = size^2 squares, of which s
    = 12 have ships, a hit gives 1 / s and every other shot, including a second one at the same
    square, -1 / (c - s): the return is 1 with hits only, and 0 for shooting at every square once.
    The episode ends with the last hit, and is truncated after c shots.

    Actions: a row and a column; outside the board, the nearest square is taken.

    Args:
        difficulty: easy, medium or hard: a board of 8, 10 or 12 squares a side.
        size: side length, 5 to 32; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible size.

    Source: popgym 1.0.7, Battleship; ships are placed one after the other, each uniformly among all
    free positions and directions.
    """

    SIZES: ClassVar[Sizes] = {"easy": {"size": 8}, "medium": {"size": 10}, "hard": {"size": 12}}
    size: int = eqx.field(static=True)
    num_actions = 0
    observation_size = 1
    opening_is_costly = True
    metric_names = ("hits",)

    def __init__(self, difficulty: str = "easy", size: int | None = None):
        (self.size,) = sized(self.SIZES, difficulty, size=size)
        require_at_least("size", self.size, max(SHIPS) + 1, LARGEST_BOARD)

    @property
    def observation_space(self) -> Discrete:
        """Whether the last shot hit."""
        return Discrete(2)

    @property
    def action_space(self) -> MultiDiscrete:
        """A row and a column."""
        return MultiDiscrete([self.size, self.size])

    @property
    def shortest(self) -> int:
        return sum(SHIPS)

    def reset(self, key: Key[Array, ""]) -> tuple[BattleshipState, Int[Array, ""]]:
        squares = jnp.zeros(self.size**2, bool)
        for ship, lay_key in zip(SHIPS, jax.random.split(key, len(SHIPS)), strict=True):
            ways = jnp.asarray(ways_to_lie(self.size, ship))
            free = ~jnp.any(squares[ways], axis=1)
            drawn = jax.random.uniform(lay_key, free.shape)
            squares = squares.at[ways[jnp.argmax(jnp.where(free, drawn, -1.0))]].set(True)
        return self.reset_to(squares.reshape(self.size, self.size))

    def reset_to(
        self, ships: Bool[Array, "rows columns"] | np.ndarray
    ) -> tuple[BattleshipState, Int[Array, ""]]:
        """Opens an episode with ships on these squares."""
        ships, zero = jnp.asarray(ships, bool), jnp.zeros((), jnp.int32)
        return BattleshipState(ships, jnp.zeros_like(ships), zero, zero), zero

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        squares = np.zeros(self.size**2, bool)
        for ship in SHIPS:
            ways = ways_to_lie(self.size, ship)
            free = ways[~squares[ways].any(axis=1)]
            squares[free[rng.integers(len(free))]] = True
        return {"ships": squares.reshape(self.size, self.size)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        ships = as_array(given["ships"])
        if ships.shape != (self.size, self.size) or int((ships != 0).sum()) != sum(SHIPS):
            raise UserError(
                f"ships must be {self.size} rows of {self.size} squares, {sum(SHIPS)} of them with "
                f"a ship, got {given['ships']!r}"
            )
        return {"ships": ships != 0}

    def step(
        self, state: BattleshipState, action: Int[Array, " 2"], key: Key[Array, ""]
    ) -> tuple[BattleshipState, Transition]:
        row, column = jnp.clip(jnp.asarray(action).astype(jnp.int32), 0, self.size - 1)
        hit = state.ships[row, column] & ~state.guessed[row, column]
        after = BattleshipState(
            ships=state.ships,
            guessed=state.guessed.at[row, column].set(True),
            hits=state.hits + hit.astype(jnp.int32),
            time=state.time + 1,
        )
        squares, needed = self.size**2, sum(SHIPS)
        return after, Transition(
            observation=hit.astype(jnp.int32),
            reward=jnp.where(hit, 1.0 / needed, -1.0 / (squares - needed)).astype(jnp.float32),
            terminated=after.hits == needed,
            truncated=after.time >= squares,
            metrics={"hits": after.hits.astype(jnp.float32)},
        )

    def render_text(self, state: Any, observation: Any) -> str:
        """The board: S a ship, X a hit, o a miss."""
        marks = np.array([[".", "o"], ["S", "X"]])
        rows = marks[np.asarray(state.ships, int), np.asarray(state.guessed, int)]
        return "\n".join("".join(row) for row in rows) + "\n"


@lru_cache(maxsize=16)
def ways_to_lie(size: int, ship: int) -> Int[np.ndarray, "ways ship"]:
    """The squares of a ship for every first square, axis and direction that fits on the board."""
    found = []
    for row, column in np.ndindex(size, size):
        for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            places = np.array([row, column]) + np.outer(np.arange(ship), step)
            if (places >= 0).all() and (places < size).all():
                found.append(places @ (size, 1))
    return np.array(found)
