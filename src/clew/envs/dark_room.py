"""The dark room: an invisible goal that the agent finds by walking over it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import Environment, EnvState, Observation, Transition, as_array
from clew.errors import UserError, require_at_least, require_choice

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], np.int32)
"""Rows and columns of every action."""
STARTS = ("centre", "random")


class DarkRoomState(NamedTuple):
    """The state of an episode; rows count from the top, columns from the left."""

    goal: Int[Array, " 2"]
    place: Int[Array, " 2"]
    time: Int[Array, ""]
    found: Bool[Array, ""]


class DarkRoom(Environment):
    """Find a goal in a dark square room by walking over it, and stay there.

    The observation is the agent's own position: its row and its column, one-hot. Actions: 0 up, 1
    down, 2 left, 3 right, 4 stay; walls block. Every step that ends on the goal gives 1, all others
    0. The goal is uniform over all positions except the start. An episode terminates after
    `time_limit` steps. Any other integer stays, because a compiled program cannot refuse it.

    Nothing shows where the goal is, so the task is meant for trials (`trial_episodes` of
    `clew.WrapperConfig`): within a trial the goal stays, and an agent that remembers where it was
    rewarded walks straight there from the second episode on.

    Metric: "found" (0 or 1, whether the goal was reached in this episode).

    Args:
        size: side length, at least 2.
        time_limit: steps of an episode.
        start: "centre" opens every episode in the middle (for an even size, above and left of it);
            "random" at any position but the goal, a new one in each episode of a trial.

    Raises:
        UserError: an impossible size or limit, or an unknown start.

    Source: Laskin et al. (2022), In-context Reinforcement Learning with Algorithm Distillation,
    "Dark Room", with its size and limit. Deviations: the position is one-hot instead of two
    numbers, and the goal is never where the agent starts.
    """

    size: int = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)
    start: str = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions = len(MOVES)
    metric_names = ("found",)
    boolean_metrics = ("found",)
    action_names = ("up", "down", "left", "right", "stay")

    def __init__(self, size: int = 9, time_limit: int = 20, start: str = "centre"):
        require_at_least("size", size, 2)
        require_at_least("time_limit", time_limit, 1)
        require_choice("start", start, STARTS)
        self.size, self.time_limit, self.start = size, time_limit, start
        self.observation_size = 2 * size

    @property
    def shortest(self) -> int:
        return self.time_limit

    def reset(self, key: Key[Array, ""]) -> tuple[DarkRoomState, Float[Array, " n"]]:
        place_key, goal_key = jax.random.split(key)
        place = self._centre()
        if self.start == "random":
            place = jax.random.randint(place_key, (), 0, self.size**2)
        goal = self._other_than(place, goal_key)
        return self._opened(self._coordinates(goal), self._coordinates(place))

    def next_in_trial(
        self, first: tuple[EnvState, Observation], key: Key[Array, ""]
    ) -> tuple[DarkRoomState, Float[Array, " n"]]:
        """The goal stays; a random start is drawn again."""
        (goal, place, _, _), _ = first
        if self.start == "random":
            number = goal[0] * self.size + goal[1]
            place = self._coordinates(self._other_than(number, key))
        return self._opened(goal, place)

    def reset_to(
        self, goal: Int[Array, " 2"] | np.ndarray, place: Int[Array, " 2"] | np.ndarray
    ) -> tuple[DarkRoomState, Float[Array, " n"]]:
        """Opens an episode with this goal and this start, each a row and a column."""
        return self._opened(jnp.asarray(goal, jnp.int32), jnp.asarray(place, jnp.int32))

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        places = self.size**2
        place = self._centre() if self.start == "centre" else int(rng.integers(places))
        goal = (place + 1 + int(rng.integers(places - 1))) % places
        return {"goal": self._pair(goal), "place": self._pair(place)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            pair = as_array(value)
            fits = pair.shape == (2,) and pair.dtype.kind in "iu"
            if not fits or not ((pair >= 0) & (pair < self.size)).all():
                raise UserError(
                    f"{name} must be a row and a column from 0 to {self.size - 1}, got {value!r}"
                )
        return drawn | {name: np.asarray(value, np.int32) for name, value in given.items()}

    def step(
        self, state: DarkRoomState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DarkRoomState, Transition]:
        known = (action >= 0) & (action < self.num_actions)
        move = jnp.where(known, jnp.asarray(MOVES)[action], 0)
        place = jnp.clip(state.place + move, 0, self.size - 1)
        there = jnp.all(place == state.goal)
        time, found = state.time + 1, state.found | there
        transition = Transition(
            observation=self._observe(place),
            reward=there.astype(jnp.float32),
            terminated=time >= self.time_limit,
            truncated=jnp.zeros((), jnp.bool_),
            metrics={"found": found.astype(jnp.float32)},
        )
        return DarkRoomState(state.goal, place, time, found), transition

    def remembered(self, state: DarkRoomState) -> dict[str, Int[Array, ""]]:
        return {"row": state.goal[0], "column": state.goal[1]}

    def render_text(self, state: DarkRoomState, observation: np.ndarray) -> str:
        """The room: A the agent, G the goal, X both."""
        rows = [["."] * self.size for _ in range(self.size)]
        goal, place = tuple(map(int, state.goal)), tuple(map(int, state.place))
        rows[goal[0]][goal[1]] = "G"
        rows[place[0]][place[1]] = "X" if goal == place else "A"
        return "\n".join("".join(row) for row in rows) + "\n"

    def _centre(self) -> int:
        middle = (self.size - 1) // 2
        return middle * self.size + middle

    def _other_than(self, place: int | Int[Array, ""], key: Key[Array, ""]) -> Int[Array, ""]:
        places = self.size**2
        return (place + 1 + jax.random.randint(key, (), 0, places - 1)) % places

    def _coordinates(self, place: int | Int[Array, ""]) -> Int[Array, " 2"]:
        place = jnp.asarray(place, jnp.int32)
        return jnp.stack([place // self.size, place % self.size])

    def _pair(self, place: int) -> np.ndarray:
        return np.array(divmod(place, self.size), np.int32)

    def _opened(
        self, goal: Int[Array, " 2"], place: Int[Array, " 2"]
    ) -> tuple[DarkRoomState, Float[Array, " n"]]:
        zero, never = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_)
        return DarkRoomState(goal, place, zero, never), self._observe(place)

    def _observe(self, place: Int[Array, " 2"]) -> Float[Array, " n"]:
        return jax.nn.one_hot(place, self.size, dtype=jnp.float32).ravel()
