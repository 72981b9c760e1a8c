"""The T-Maze: see a cue once, walk down a corridor, and turn as the cue said."""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.pictures import tmaze_picture
from clew.envs.recall import integers
from clew.errors import LONGEST_EPISODE, UserError, require_at_least, require_choice

UP, DOWN, LEFT, RIGHT = 0, 1, 2, 3
"""The four actions. Cue 0 asks for `UP` at the junction, cue 1 for `DOWN`."""

STEP_REWARD, RIGHT_TURN_REWARD, WRONG_TURN_REWARD = -0.1, 4.0, -1.0
CUE_BITS, DISTRACTOR_BITS = 2, 6
METRICS = ("success", "junction", "timeout")
TIME_LIMIT_RULES = ("terminate", "truncate")
CORRIDOR_COLUMNS = 60
"""The longest corridor that is drawn position by position in a line of text."""


class TMazeState(NamedTuple):
    """The state of an episode."""

    cue: Int[Array, ""]
    position: Int[Array, ""]
    time: Int[Array, ""]


class TMaze(Environment):
    """Remember one bit, seen only in the first observation, to the end of a corridor.

    Positions run from 0 to corridor_length - 1, the junction. The observation is, in order:

        cue          2 numbers   cue 0 (turn up): [0, 1]; cue 1 (turn down): [1, 0];
                                 [0, 0] in every observation but the first
        position     8 numbers   Gray code, most significant bit first; more than 8 from
                                 corridor length 257 on, as many as the junction needs
        distractors  6 numbers   independent fair bits, fresh each step; 0 in the first

    all 0 or 1. Only its own Gray code marks the junction. Actions: 0 up, 1 down, 2 left, 3 right.
    In the corridor left and right walk (walls cost nothing extra), and up and down do nothing. At
    the junction up and down turn and end the episode, and left and right do nothing: there is no
    way back. Every step costs 0.1 except the turn, which gives +4 if it is the cue's and -1 if not.
    Any other integer does nothing, because a compiled program cannot refuse it.

    Metrics: "success" (correct turn), "junction" (reached it, turned or not), "timeout"; each 0 or
    1. If success = 0, they distinguish a wrong turn (junction = 1, timeout = 0) from a time-out.

    Args:
        corridor_length: number of positions, at least 2. The shortest episode has this many steps,
            and the cue has to be kept for one step less.
        time_limit: steps after which an episode ends without a turn.
        on_time_limit: "terminate" ends the episode as the turn does, with nothing to follow (as
            published); "truncate" lets the learner bootstrap from a value.
        shown_length: show positions as in a shorter corridor of this length, each for several
            positions: observations then do not differ from those of the shorter corridor, but the
            cue has to be kept for longer. 0 shows the true positions.

    Raises:
        UserError: a length below 2, a limit below 1, an unknown `on_time_limit`, a shown length
            above the length.

    Source: Pramanik (2023), section 5.1.1, after Bakker (2001). What the thesis leaves open is
    taken from the authors' published code: the time limit, which ends the episode, the order of the
    bits, and the distractors that are 0 in the first observation (the thesis: random "at each
    timestep"). Deviation: corridors of length 257 and more, which the published 8 bits do not
    allow.
    """

    corridor_length: int = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)
    on_time_limit: str = eqx.field(static=True)
    shown_length: int = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions = 4
    metric_names = METRICS
    boolean_metrics = METRICS
    action_names = ("up", "down", "left", "right")

    def __init__(
        self,
        corridor_length: int = 120,
        time_limit: int = 1000,
        on_time_limit: str = "terminate",
        shown_length: int = 0,
    ):
        check_settings(corridor_length, time_limit, on_time_limit)
        shown = shown_length or corridor_length
        if not 2 <= shown <= corridor_length:
            raise UserError(
                f"shown_length must be 0, or from 2 to the corridor_length {corridor_length}, got "
                f"{shown_length}"
            )
        if shown < corridor_length and (corridor_length - 1) * (shown - 1) >= 2**31:
            raise UserError(
                f"shown_length must be at most {(2**31 - 1) // (corridor_length - 1) + 1} in a "
                f"corridor of {corridor_length}, got {shown_length}"
            )
        self.corridor_length = corridor_length
        self.time_limit = time_limit
        self.on_time_limit = on_time_limit
        self.shown_length = shown
        self.observation_size = CUE_BITS + position_bits(shown) + DISTRACTOR_BITS

    def reset(self, key: Key[Array, ""]) -> tuple[TMazeState, Float[Array, " n"]]:
        return self.reset_to((jax.random.bits(key, (), jnp.uint32) & 1).astype(jnp.int32))

    def reset_to(self, cue: Int[Array, ""] | int) -> tuple[TMazeState, Float[Array, " n"]]:
        zero = jnp.zeros((), jnp.int32)
        cue = jnp.asarray(cue, jnp.int32)
        return TMazeState(cue, zero, zero), self._observe(cue + 1, zero, zero)

    @property
    def shortest(self) -> int:
        """Steps to the junction and the turn, or the time limit."""
        return min(self.corridor_length, self.time_limit)

    @property
    def observation_space(self) -> Box:
        return Box(0.0, 1.0, (self.observation_size,), np.float32)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, int]:
        """The cue: the same as in the published environment for the same seed."""
        return {"cue": int(rng.integers(2))}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, int]:
        cue = given.get("cue", drawn["cue"])
        if integers([cue]) not in ([0], [1]):
            raise UserError(f"cue must be 0 (turn up) or 1 (turn down), got {cue!r}")
        return {"cue": int(cue)}

    def step(
        self, state: TMazeState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[TMazeState, Transition]:
        action = jnp.asarray(action).astype(jnp.int32)
        junction = self.corridor_length - 1
        turned = (state.position == junction) & ((action == UP) | (action == DOWN))
        success = turned & (action == state.cue)
        corridor = state.position < junction  # which is not left again
        right = corridor & (action == RIGHT)
        left = corridor & (action == LEFT) & (state.position > 0)
        position = state.position + right.astype(jnp.int32) - left.astype(jnp.int32)
        time = state.time + 1
        timeout = (time >= self.time_limit) & ~turned
        terminate = self.on_time_limit == "terminate"

        turn_reward = jnp.where(success, RIGHT_TURN_REWARD, WRONG_TURN_REWARD)
        noise = jax.random.bits(key, (), jnp.uint32).astype(jnp.int32)
        transition = Transition(
            observation=self._observe(jnp.zeros((), jnp.int32), position, noise),
            reward=jnp.where(turned, turn_reward, STEP_REWARD).astype(jnp.float32),
            terminated=turned | timeout if terminate else turned,
            truncated=jnp.zeros_like(timeout) if terminate else timeout,
            metrics={
                "success": success.astype(jnp.float32),
                "junction": (position == junction).astype(jnp.float32),
                "timeout": timeout.astype(jnp.float32),
            },
        )
        return TMazeState(state.cue, position, time), transition

    def remembered(self, state: TMazeState) -> dict[str, Int[Array, ""]]:
        return {"cue": state.cue}

    def render_image(self, state: TMazeState, observation: np.ndarray) -> np.ndarray:
        where = (int(state.cue), int(state.position), int(state.time))
        bits = {"cue_bits": CUE_BITS, "distractor_bits": DISTRACTOR_BITS}
        return tmaze_picture(self.corridor_length, *where, observation, **bits)

    def render_text(self, state: TMazeState, observation: np.ndarray) -> str:
        """The corridor: A the agent, T the junction; the cue is shown while the agent sees it."""
        position, time = int(state.position), int(state.time)
        shown = "hidden" if time else ("up", "down")[int(state.cue)]
        place = f"position {position} of {self.corridor_length - 1}"
        corridor = corridor_line(self.corridor_length, position)
        return f"{corridor} {place}, step {time}, cue {shown}\n"

    def _observe(self, cue_word: Array, position: Array, noise: Array) -> Float[Array, " n"]:
        # One shift of one selected word per number: a single fused pass without concatenation.
        # The word of cue 0 is 0b01, that of cue 1 is 0b10.
        width = position_bits(self.shown_length)
        if self.shown_length < self.corridor_length:
            # Rounded down: only the junction shows the code of the shorter corridor's junction.
            position = position * (self.shown_length - 1) // (self.corridor_length - 1)
        shifts = np.concatenate([np.arange(n)[::-1] for n in (CUE_BITS, width, DISTRACTOR_BITS)])
        index = np.arange(self.observation_size)
        gray_code = position ^ (position >> 1)
        words = jnp.where(index < CUE_BITS + width, gray_code, noise)
        words = jnp.where(index < CUE_BITS, cue_word, words)
        return ((words >> shifts.astype(np.int32)) & 1).astype(jnp.float32)


def position_bits(corridor_length: int) -> int:
    """How many bits the position takes in the observation: 8, or as many as the junction needs."""
    return max(8, (corridor_length - 1).bit_length())


def check_settings(corridor_length: int, time_limit: int, on_time_limit: str) -> None:
    """Refuses impossible settings, and warns of a maze that cannot be solved in time."""
    require_at_least("corridor_length", corridor_length, 2, LONGEST_EPISODE)
    require_at_least("time_limit", time_limit, 1, LONGEST_EPISODE)
    require_choice("on_time_limit", on_time_limit, TIME_LIMIT_RULES)
    if time_limit < corridor_length:
        warnings.warn(
            f"time_limit {time_limit} is shorter than corridor_length {corridor_length}: the turn "
            f"is step {corridor_length} at the earliest, so no episode can succeed",
            UserWarning,
            stacklevel=2,  # one level up is Equinox, and the command line would show a line of it
        )


def corridor_line(positions: int, position: int) -> str:
    """A corridor, scaled down if it is long: A the agent, T the junction."""
    columns = min(positions, CORRIDOR_COLUMNS)
    corridor = ["-"] * (columns - 1) + ["T"]
    corridor[position * (columns - 1) // (positions - 1)] = "A"
    return f"|{''.join(corridor)}|"
