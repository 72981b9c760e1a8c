"""T-Mazes that last exactly as long as the best way through: passive and active."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.recall import integers
from clew.envs.tmaze import corridor_line
from clew.errors import LONGEST_EPISODE, UserError, require_at_least

MOVES = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)], np.int32)
"""Moves along and across the corridor of every action."""
METRICS = ("success", "oracle")


class TimedTMazeState(NamedTuple):
    """The state of an episode."""

    goal: Int[Array, ""]
    """The goal's side, 1 or -1 across the corridor."""
    place: Int[Array, " 2"]
    """The position along the corridor from the oracle, and across."""
    told: Bool[Array, ""]
    """Whether an observation has shown the goal."""
    time: Int[Array, ""]


class TimedTMaze(Environment):
    """Learn the goal's side from an oracle, and be on that side when time is up.

    The oracle is at position 0, the start at o, the junction at o + L, for `oracle_length` o and
    `corridor_length` L. An episode has L + 2 o + 1 steps: to the oracle, back, along the corridor
    and to a side. The observation is

        position     1 number    1 at the junction and at its sides, else 0
        side         1 number    there: 1, 0 or -1 across the corridor; at the oracle, the first
                                 time: the goal's side, 1 or -1; else 0

    so the corridor looks the same everywhere. Actions: 0 right, 1 up (side 1), 2 left, 3 down (side
    -1); walls block, and one can return from a side. Any other integer stays, because a compiled
    program cannot refuse it.

    The last step gives 1 if the agent is then at the goal's side. Every other step costs 1 / L if
    the agent is behind schedule: if its position is below t - o after t steps. So the best return
    is 1, or 1/2 for an agent that does not remember the side, or does not ask for it.

    Metrics: "success" (at the goal in the end), "oracle" (its answer was seen); each 0 or 1.

    Raises:
        UserError: an impossible length.

    Source: Ni et al. (2023), When Do Transformers Shine in RL?, the passive and the active T-Maze,
    with details from the authors' code: the oracle answers once, and the time limit terminates the
    episode.
    """

    corridor_length: int = eqx.field(static=True)
    oracle_length: int = eqx.field(static=True)
    observation_size = 2
    num_actions = len(MOVES)
    metric_names = METRICS
    boolean_metrics = METRICS
    action_names = ("right", "up", "left", "down")

    @property
    def shortest(self) -> int:
        return self.corridor_length + 2 * self.oracle_length + 1

    @property
    def observation_space(self) -> Box:
        return Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[TimedTMazeState, Float[Array, " 2"]]:
        return self.reset_to(2 * jax.random.bernoulli(key).astype(jnp.int32) - 1)

    def reset_to(self, goal: Int[Array, ""] | int) -> tuple[TimedTMazeState, Float[Array, " 2"]]:
        """Opens an episode with the goal at side 1 or -1."""
        place = jnp.array([self.oracle_length, 0], jnp.int32)
        zero, never = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_)
        return self._seen(TimedTMazeState(jnp.asarray(goal, jnp.int32), place, never, zero))

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, int]:
        return {"goal": 2 * int(rng.integers(2)) - 1}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, int]:
        goal = given.get("goal", drawn["goal"])
        if integers([goal]) not in ([-1], [1]):
            raise UserError(f"goal must be 1 (up) or -1 (down), got {goal!r}")
        return {"goal": int(goal)}

    def step(
        self, state: TimedTMazeState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[TimedTMazeState, Transition]:
        known = (action >= 0) & (action < self.num_actions)
        along, across = jnp.where(known, jnp.asarray(MOVES)[action], 0)
        x, y = state.place
        x, y = (
            jnp.where(y == 0, jnp.clip(x + along, 0, self._junction), x),
            jnp.where(x == self._junction, jnp.clip(y + across, -1, 1), y),
        )
        time = state.time + 1
        ended = time >= self.shortest
        success = ended & (y == state.goal)
        late = x < time - self.oracle_length
        on_the_way = jnp.where(late, -1.0 / self.corridor_length, 0.0)
        moved = TimedTMazeState(state.goal, jnp.stack([x, y]), state.told, time)
        after, observation = self._seen(moved)
        transition = Transition(
            observation=observation,
            reward=jnp.where(ended, success.astype(jnp.float32), on_the_way.astype(jnp.float32)),
            terminated=ended,
            truncated=jnp.zeros((), jnp.bool_),
            metrics={
                "success": success.astype(jnp.float32),
                "oracle": after.told.astype(jnp.float32),
            },
        )
        return after, transition

    def remembered(self, state: TimedTMazeState) -> dict[str, Int[Array, ""]]:
        return {"goal": (state.goal + 1) // 2}

    def render_text(self, state: TimedTMazeState, observation: np.ndarray) -> str:
        """The corridor: A the agent, T the junction; and the oracle's answer."""
        x, side = map(int, state.place)
        where = ("below", "at", "above")[side + 1] if x == self._junction else "before"
        goal = "up" if state.goal > 0 else "down"
        corridor = corridor_line(self._junction + 1, x)
        return f"{corridor} {where} the junction, step {int(state.time)}, goal {goal}\n"

    @property
    def _junction(self) -> int:
        return self.oracle_length + self.corridor_length

    def _seen(self, state: TimedTMazeState) -> tuple[TimedTMazeState, Float[Array, " 2"]]:
        """The state once it has been observed, and the observation."""
        x, y = state.place
        at_oracle, at_end = x == 0, x == self._junction
        answer = jnp.where(at_oracle & ~state.told, state.goal, 0)
        seen = jnp.stack([at_end.astype(jnp.int32), jnp.where(at_end, y, answer)])
        return state._replace(told=state.told | at_oracle), seen.astype(jnp.float32)


class PassiveTMaze(TimedTMaze):
    """Remember the goal's side from the first observation to the end of a corridor.

    A `TimedTMaze` whose agent starts at the oracle, so o is 0: it has to remember, but not to ask.

    Args:
        corridor_length: L, the number of steps to the junction, at least 1; published: 50 to 1,500.

    Raises:
        UserError: an impossible length.

    Source: Ni et al. (2023), "Passive T-Maze".
    """

    def __init__(self, corridor_length: int = 50):
        require_at_least("corridor_length", corridor_length, 1, LONGEST_EPISODE)
        self.corridor_length, self.oracle_length = corridor_length, 0


class ActiveTMaze(TimedTMaze):
    """Walk away from the junction to ask for the goal's side, and remember it to the other end.

    A `TimedTMaze` whose agent starts beside the oracle. An agent that never asks loses nothing on
    the way, so only the last reward shows the value of asking.

    Args:
        corridor_length: L, the number of steps from the start to the junction, at least 1;
            published: 20 to 500.
        oracle_length: o, the number of steps from the start to the oracle, at least 1; published:
            1.

    Raises:
        UserError: an impossible length.

    Source: Ni et al. (2023), "Active T-Maze".
    """

    def __init__(self, corridor_length: int = 50, oracle_length: int = 1):
        require_at_least("corridor_length", corridor_length, 1, LONGEST_EPISODE)
        require_at_least("oracle_length", oracle_length, 1, LONGEST_EPISODE)
        self.corridor_length, self.oracle_length = corridor_length, oracle_length
