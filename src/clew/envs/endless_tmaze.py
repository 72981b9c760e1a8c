"""The endless T-Maze: one corridor after another, each with a cue that replaces the last."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Environment, Transition, as_array
from clew.envs.tmaze import corridor_line
from clew.errors import LONGEST_EPISODE, UserError, require_at_least, require_choice

FORWARD, LEFT, RIGHT = 0, 1, 2
"""The actions. Cue 0 asks for `LEFT` at the junction, cue 1 for `RIGHT`."""
RIGHT_TURN_REWARD, IDLE_REWARD = 1.0, -0.01
LENGTHS = ("fixed", "uniform")
PATIENCE = 6
"""The time limit, as a multiple of the shortest way."""


class EndlessTMazeState(NamedTuple):
    """The state of an episode."""

    cues: Int[Array, " corridors"]
    lengths: Int[Array, " corridors"]
    corridor: Int[Array, ""]
    """How many have been passed; the agent never leaves the last one's junction."""
    position: Int[Array, ""]
    time: Int[Array, ""]


class EndlessTMaze(Environment):
    """Remember the cue of this corridor, and forget the one before.

    Every corridor begins with a cue, which says how to turn at its end; the correct turn leads into
    the next one. With n = `num_corridors` and L = `corridor_length` the observation is

        position   1 number    steps from the corridor's beginning, over L
        cue        2 numbers   at the beginning: [1, 0] left, [0, 1] right; elsewhere [0, 0]

    Actions: 0 forward, 1 left, 2 right. In a corridor forward walks, while a turn or any other
    integer costs 0.01 and changes nothing. At a junction the correct turn gives 1; anything else
    gives `wrong_reward` and ends the episode. The last junction ends the episode too. After 6 n (L
    + 1) steps an episode is truncated.

    Corridors have L steps, or with `lengths` "uniform" each has its own length from 1 to L: then
    nothing shows the junction, and an agent has to try its turn at every step, which costs little
    where there is no junction.

    Metrics: "success" (0 or 1, whether all corridors were passed) and "corridors" (the share of
    corridors passed).

    Args:
        corridor_length: L, at least 1.
        num_corridors: n, at least 1; 1 is a T-Maze.
        lengths: "fixed" or "uniform".
        wrong_reward: reward of a wrong action at a junction: -1 in the paper, -0.01 in the authors'
            code.

    Raises:
        UserError: an impossible size, or unknown lengths.

    Source: "Memory Retention Is Not Enough to Master Memory Tasks in Reinforcement Learning" (AAMAS
    2026, arXiv 2601.15086), with the observation, the delay's cost and the time limit of the
    authors' code. Deviation: an episode that ends at its last possible step is terminated, not
    truncated.
    """

    corridor_length: int = eqx.field(static=True)
    num_corridors: int = eqx.field(static=True)
    lengths: str = eqx.field(static=True)
    wrong_reward: float = eqx.field(static=True)
    observation_size = 3
    num_actions = 3
    metric_names = ("success", "corridors")
    boolean_metrics = ("success",)
    action_names = ("forward", "left", "right")

    def __init__(
        self,
        corridor_length: int = 10,
        num_corridors: int = 5,
        lengths: str = "fixed",
        wrong_reward: float = -1.0,
    ):
        require_at_least("corridor_length", corridor_length, 1, LONGEST_EPISODE)
        require_at_least("num_corridors", num_corridors, 1, LONGEST_EPISODE)
        require_choice("lengths", lengths, LENGTHS)
        self.corridor_length, self.num_corridors = corridor_length, num_corridors
        self.lengths, self.wrong_reward = lengths, float(wrong_reward)

    @property
    def time_limit(self) -> int:
        """Steps after which an episode is cut off."""
        return PATIENCE * (self.corridor_length + 1) * self.num_corridors

    @property
    def shortest(self) -> int:
        """The way to the first junction, and a wrong turn."""
        return 1 + (self.corridor_length if self.lengths == "fixed" else 1)

    @property
    def observation_space(self) -> Box:
        return Box(0.0, 1.0, (self.observation_size,), np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[EndlessTMazeState, Float[Array, " 3"]]:
        of_cues, of_lengths = jax.random.split(key)
        count = (self.num_corridors,)
        cues = jax.random.bernoulli(of_cues, shape=count).astype(jnp.int32)
        shortest = self.shortest - 1
        lengths = jax.random.randint(of_lengths, count, shortest, self.corridor_length + 1)
        return self.reset_to(cues, lengths)

    def reset_to(
        self, cues: Int[Array, " n"] | np.ndarray, lengths: Int[Array, " n"] | np.ndarray
    ) -> tuple[EndlessTMazeState, Float[Array, " 3"]]:
        """Opens an episode with the cue, 0 left or 1 right, and the length of every corridor."""
        zero = jnp.zeros((), jnp.int32)
        given = (jnp.asarray(x, jnp.int32) for x in (cues, lengths))
        state = EndlessTMazeState(*given, corridor=zero, position=zero, time=zero)
        return state, self._observe(state)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        count, shortest = self.num_corridors, self.shortest - 1
        return {
            "cues": rng.integers(2, size=count, dtype=np.int32),
            "lengths": rng.integers(shortest, self.corridor_length + 1, count, dtype=np.int32),
        }

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        limits = {"cues": (0, 1), "lengths": (self.shortest - 1, self.corridor_length)}
        for name, value in given.items():
            low, high = limits.get(name, (0, 0))
            array = as_array(value)
            fits = array.shape == (self.num_corridors,) and array.dtype.kind in "iu"
            if name in limits and not (fits and ((array >= low) & (array <= high)).all()):
                raise UserError(
                    f"{name} must be {self.num_corridors} whole numbers from {low} to {high}, got "
                    f"{value!r}"
                )
        return drawn | {name: np.asarray(value, np.int32) for name, value in given.items()}

    def step(
        self, state: EndlessTMazeState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[EndlessTMazeState, Transition]:
        cue, length = state.cues[state.corridor], state.lengths[state.corridor]
        junction = state.position == length
        right = junction & (action == jnp.where(cue == 1, RIGHT, LEFT))
        walks = ~junction & (action == FORWARD)
        passed = state.corridor + right.astype(jnp.int32)
        whole = passed == self.num_corridors
        ended, time = (junction & ~right) | whole, state.time + 1

        position = jnp.where(right & ~whole, 0, state.position + walks.astype(jnp.int32))
        # The last corridor is not left, so there is no next cue.
        corridor = jnp.minimum(passed, self.num_corridors - 1)
        after = EndlessTMazeState(state.cues, state.lengths, corridor, position, time)
        on_the_way = jnp.where(walks, 0.0, IDLE_REWARD)
        turned = jnp.where(right, RIGHT_TURN_REWARD, self.wrong_reward)
        transition = Transition(
            observation=self._observe(after),
            reward=jnp.where(junction, turned, on_the_way).astype(jnp.float32),
            terminated=ended,
            truncated=(time >= self.time_limit) & ~ended,
            metrics={
                "success": whole.astype(jnp.float32),
                "corridors": passed.astype(jnp.float32) / self.num_corridors,
            },
        )
        return after, transition

    def remembered(self, state: EndlessTMazeState) -> dict[str, Int[Array, ""]]:
        return {"first cue": state.cues[0]}

    def render_text(self, state: EndlessTMazeState, observation: np.ndarray) -> str:
        """The corridor: A the agent, T the junction; and its cue."""
        number, length = int(state.corridor), int(state.lengths[int(state.corridor)])
        cue = ("left", "right")[int(state.cues[number])]
        corridor = corridor_line(length + 1, int(state.position))
        of_all = f"corridor {number + 1} of {self.num_corridors}"
        return f"{corridor} {of_all}, step {int(state.time)}, cue {cue}\n"

    def _observe(self, state: EndlessTMazeState) -> Float[Array, " 3"]:
        position = state.position.astype(jnp.float32) / self.corridor_length
        cue, first = state.cues[state.corridor], state.position == 0
        shown = jnp.stack([first & (cue == 0), first & (cue == 1)]).astype(jnp.float32)
        return jnp.concatenate([position[None], shown])
