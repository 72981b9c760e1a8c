"""The tasks for every library that trains on Gymnasium environments; here, the T-Maze.

Importing this module registers all of them (`ENTRY_POINTS`, and `MEMORY_MAZES`, which need the
extra `memory-maze` as soon as one is made):

    import clew.envs.gymnasium_api
    env = gymnasium.make("clew/TMaze-v0", corridor_length=120)

or, in one line, `gymnasium.make("clew.envs.gymnasium_api:clew/TMaze-v0")`, which imports it.
"""

import numbers
from typing import Any

import gymnasium
import numpy as np

from clew.envs.gymnasium_checks import (
    RENDER_MODES,
    known_options,
    require_action,
    require_render_mode,
    require_running,
)
from clew.envs.tmaze import (
    CUE_BITS,
    DISTRACTOR_BITS,
    DOWN,
    RIGHT_TURN_REWARD,
    STEP_REWARD,
    UP,
    WRONG_TURN_REWARD,
    check_settings,
    gray_code,
    moves,
    position_bits,
    tmaze_line,
)
from clew.errors import UserError

ENV_ID = "clew/TMaze-v0"
ENTRY_POINTS = {
    ENV_ID: "clew.envs.gymnasium_api:TMazeEnv",
    "clew/MemoryChain-v0": "clew.envs.gymnasium_recall:MemoryChainEnv",
    "clew/DistributedMemory-v0": "clew.envs.gymnasium_recall:DistributedMemoryEnv",
}
MEMORY_MAZES = {f"clew/MemoryMaze-{size}x{size}-v0": size for size in (9, 11, 13, 15)}


class TMazeEnv(gymnasium.Env[np.ndarray, np.int64]):
    """`clew.envs.TMaze`, its rules to the letter, in NumPy.

    Observations are float32 vectors of 0 and 1, actions 0 up, 1 down, 2 left, 3 right; see
    `clew.envs.TMaze` for both and for the rewards. `info` has "success", "junction" (reached)
    and "timeout" of the episode so far, as booleans, and "cue", which the agent must not see.

    The time limit is kept inside, because it ends the episode in one of two ways: with
    `terminated` ("terminate", as published) or with `truncated` ("truncate"). A turn in the
    very last step counts as a turn.

    `reset(options={"cue": 0})` (turn up) or `{"cue": 1}` (turn down) forces the cue. Otherwise
    the cue is drawn, and the distractors are the same for the same seed either way.

    Args:
        corridor_length: number of positions, at least 2.
        time_limit: steps after which an episode ends without a turn.
        on_time_limit: "terminate" or "truncate".
        render_mode: None, or "ansi" for a line of text.

    Raises:
        UserError: impossible settings, options or actions.
        gymnasium.error.ResetNeeded: a step before the first reset or after an episode's end.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 10}

    def __init__(
        self,
        corridor_length: int = 120,
        time_limit: int = 1000,
        on_time_limit: str = "terminate",
        render_mode: str | None = None,
    ):
        check_settings(corridor_length, time_limit, on_time_limit)
        require_render_mode(render_mode)
        self.corridor_length = corridor_length
        self.time_limit = time_limit
        self.on_time_limit = on_time_limit
        self.render_mode = render_mode
        self._shifts = np.arange(position_bits(corridor_length))[::-1]
        self._size = CUE_BITS + self._shifts.size + DISTRACTOR_BITS
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (self._size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._cue = self._position = self._time = 0
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Opens an episode; `options={"cue": 0 or 1}` forces its cue."""
        forced = _forced_cue(options)
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2))
        self._cue = drawn if forced is None else forced
        self._position = self._time = 0
        self._running = True
        observation = self._observe()
        observation[:CUE_BITS] = (0, 1) if self._cue == 0 else (1, 0)
        return observation, self._info()

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Walks, turns or idles."""
        require_running(self._running)
        action = require_action(self, action, "up, down, left, right")
        junction = self.corridor_length - 1
        turned = self._position == junction and action in (UP, DOWN)
        success = turned and action == self._cue
        right, left = moves(self._position, action, junction)
        self._position += right - left
        self._time += 1
        timeout = self._time >= self.time_limit and not turned

        reward = STEP_REWARD
        if turned:
            reward = RIGHT_TURN_REWARD if success else WRONG_TURN_REWARD
        truncated = timeout and self.on_time_limit == "truncate"
        terminated = turned or (timeout and not truncated)
        self._running = not (terminated or truncated)

        observation = self._observe()
        observation[-DISTRACTOR_BITS:] = self.np_random.integers(2, size=DISTRACTOR_BITS)
        return observation, reward, terminated, truncated, self._info(success, timeout)

    def render(self) -> str | None:
        """The corridor as a line of text: A the agent, T the junction; None without a mode."""
        if self.render_mode is None:
            return None
        return tmaze_line(self.corridor_length, self._position, self._time, self._cue)

    def _observe(self) -> np.ndarray:
        observation = np.zeros(self._size, np.float32)
        code = (gray_code(self._position) >> self._shifts) & 1
        observation[CUE_BITS:-DISTRACTOR_BITS] = code
        return observation

    def _info(self, success: bool = False, timeout: bool = False) -> dict[str, Any]:
        junction = self._position == self.corridor_length - 1
        return {"success": success, "junction": junction, "timeout": timeout, "cue": self._cue}


def _forced_cue(options: dict[str, Any] | None) -> int | None:
    cue = known_options(options, "T-Maze", ["cue"]).get("cue")
    if cue is None:
        return None
    if isinstance(cue, bool) or not isinstance(cue, numbers.Integral) or cue not in (0, 1):
        raise UserError(f"cue must be 0 (turn up) or 1 (turn down), got {cue!r}")
    return int(cue)


def register() -> None:
    """Makes the tasks known to `gymnasium.make`; calling it again changes nothing.

    No `max_episode_steps`: Gymnasium's own limit would truncate whatever the task's rules say.
    """
    for env_id, entry_point in ENTRY_POINTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point)
    for env_id, size in MEMORY_MAZES.items():
        if env_id not in gymnasium.registry:
            entry_point = "clew.bridges.memory_maze:MemoryMazeEnv"
            gymnasium.register(env_id, entry_point=entry_point, kwargs={"size": size})


register()
