"""Memory Maze as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from clew.bridges.memory_maze.building import build_task, quiet
from clew.bridges.memory_maze.packages import load_tasks
from clew.envs.gymnasium_checks import (
    known_options,
    require_action,
    require_render_mode,
    require_running,
)
from clew.errors import UserError, require_choice

SIZES = {9: (3, 250), 11: (4, 500), 13: (5, 750), 15: (6, 1000)}  # targets, seconds
PHYSICS_RATE = 200  # steps of physics a second
CONTROL_RATES = tuple(rate for rate in range(1, PHYSICS_RATE + 1) if PHYSICS_RATE % rate == 0)
LEAST_PIXELS, MOST_PIXELS = 64, 480  # below, Memory Maze's border fills the picture; above, none
CAMERAS = {"agent": "walker/egocentric", "top": "top_camera"}
ACTIONS = "nothing, forward, left, right, forward and left, forward and right"
SEEDS = 2**32


class MemoryMazeEnv(gymnasium.Env[Any, np.int64]):
    """A random maze with balls of different colours; the border names the colour to go to next.

    The agent sees a picture, uint8 [64, 64, 3], and does one of 6 actions: 0 nothing, 1 forward,
    2 left, 3 right, 4 forward and left, 5 forward and right. Touching the ball of the border's
    colour earns 1 and changes the border to another; the balls stay where they are until the
    episode ends, so that remembering where they are pays. Nothing else earns anything.

    An episode has 1000, 2000, 3000 or 4000 steps (size 9, 11, 13, 15) and is then truncated; it
    never terminates. `info` is empty.

    `reset(seed=s)` builds the task anew, and its mazes are those of
    `memory_maze.tasks.memory_maze_9x9(seed=s)`; `reset()` opens the next of its mazes.

    The packages are imported when the environment is made, and the maze is built by the first
    `reset`, so that processes forked in between do not share a drawing context.

    Args:
        size: 9, 11, 13 or 15 cells a side, with 3, 4, 5 or 6 balls.
        extra_observables: shows a dictionary instead of a picture: `image`; in cells, counted from
            the lower left corner, `agent_pos` [2], `targets_pos` [targets, 2] and `target_pos` [2],
            the one to go to; the unit vector `agent_dir` [2]; `targets_vec` and `target_vec`, the
            same seen from the agent, in cells; `target_color` [3], 0 to 1; and `maze_layout`
            [size, size], uint8, 1 where one can walk, its row 0 the lowest. Floats are float32.
        control_freq: actions a second, a divisor of 200. The time is limited in seconds, so that
            an episode at 40 has ten times as many steps as at 4.
        camera_resolution: pixels a side of the picture that the agent sees, 64 to 480.
        top_camera: the agent sees the maze from above, and itself with two ears.
        good_visibility: low walls and balls that stand above the floor.
        randomize_colors: draws the balls' colours out of six, anew in each episode.
        patched: False for the task exactly as shipped, at a quarter of the speed; see
            `clew.bridges.memory_maze.building`.
        render_mode: None, or "rgb_array" for a picture from `render`.
        render_camera: "agent" for what the agent sees, border included, or "top".
        render_resolution: pixels a side of that picture, 64 to 480.

    Raises:
        UserError: impossible settings or actions; packages or system libraries that are missing,
            with what to install.
        gymnasium.error.ResetNeeded: a step before the first reset or after an episode's end.

    Source: J. Pasukonis, T. Lillicrap and D. Hafner (2022), *Evaluating long-term memory in 3D
    mazes*, and their package memory-maze 1.0.3.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(
        self,
        size: int = 9,
        *,
        extra_observables: bool = False,
        control_freq: int = 4,
        camera_resolution: int = 64,
        top_camera: bool = False,
        good_visibility: bool = False,
        randomize_colors: bool = False,
        patched: bool = True,
        render_mode: str | None = None,
        render_camera: str = "agent",
        render_resolution: int = 256,
    ):
        _require_one_of("size", size, SIZES)
        _require_one_of("control_freq", control_freq, CONTROL_RATES)
        _require_pixels("camera_resolution", camera_resolution)
        _require_pixels("render_resolution", render_resolution)
        require_choice("render_camera", render_camera, CAMERAS)
        require_render_mode(render_mode, self.metadata["render_modes"])
        self.size = size
        self.extra_observables = extra_observables
        self.patched = patched
        self.render_mode = render_mode
        self.render_camera = render_camera
        self.render_resolution = render_resolution
        self.metadata = {**self.metadata, "render_fps": control_freq}
        self.action_space = Discrete(6)
        image = Box(0, 255, (camera_resolution, camera_resolution, 3), np.uint8)
        self.observation_space = _extra_space(size, image) if extra_observables else image
        self._options = {
            "control_freq": control_freq,
            "camera_resolution": camera_resolution,
            "top_camera": top_camera,
            "good_visibility": good_visibility,
            "randomize_colors": randomize_colors,
            "global_observables": extra_observables,
        }
        self._task: Any = None
        self._color = np.zeros(3)
        self._running = False
        load_tasks()

    @property
    def steps_per_episode(self) -> int:
        """After so many steps an episode is truncated."""
        return SIZES[self.size][1] * self._options["control_freq"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode in a new maze; with a seed, the first of that seed's mazes."""
        known_options(options, "Memory Maze", [])
        super().reset(seed=seed)
        with quiet():
            if seed is not None or self._task is None:
                self.close()
                drawn = int(self.np_random.integers(SEEDS))
                chosen = seed if seed is not None and seed < SEEDS else drawn
                self._task = build_task(self.size, chosen, self.patched, **self._options)
            timestep = self._task.reset()
        self._running = True
        return self._observation(timestep), {}

    def step(self, action: np.int64 | int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Acts for 1/4 of a second (1/control_freq)."""
        require_running(self._running)
        timestep = self._task.step(require_action(self, action, ACTIONS))
        ended = timestep.last()
        terminated = bool(ended and timestep.discount == 0)
        self._running = not ended
        observation = self._observation(timestep)
        return observation, float(timestep.reward), terminated, ended and not terminated, {}

    def render(self) -> np.ndarray | None:
        """A picture, uint8 [render_resolution, render_resolution, 3]; None without a mode.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            return None
        require_running(self._task is not None)
        pixels = self.render_resolution
        camera = CAMERAS[self.render_camera]
        picture = self._task.physics.render(pixels, pixels, camera_id=camera)
        if self.render_camera == "agent":
            border = pixels // 32
            framed = np.empty_like(picture)
            framed[:] = self._color * 255 * 0.7
            framed[border:-border, border:-border] = picture[border:-border, border:-border]
            picture = framed
        return picture

    def close(self) -> None:
        """Gives the drawing context back; a `reset` afterwards builds a new maze."""
        task, self._task = self._task, None
        self._running = False
        if task is not None:
            task.close()

    def _observation(self, timestep: Any) -> Any:
        shown = timestep.observation
        self._color = shown["target_color"]
        if not self.extra_observables:
            return shown["image"]
        spaces = self.observation_space
        assert isinstance(spaces, Dict)
        return {name: np.asarray(shown[name], space.dtype) for name, space in spaces.items()}


def _extra_space(size: int, image: Box) -> Dict:
    targets = SIZES[size][0]

    def box(low: float, high: float, *shape: int) -> Box:
        return Box(low, high, shape, np.float32)

    across = size * np.sqrt(2)  # as far as two places in the maze can be from one another
    return Dict(
        {
            "image": image,
            "agent_pos": box(0, size, 2),
            "agent_dir": box(-1, 1, 2),
            "targets_pos": box(0, size, targets, 2),
            "targets_vec": box(-across, across, targets, 2),
            "target_pos": box(0, size, 2),
            "target_vec": box(-across, across, 2),
            "target_color": box(0, 1, 3),
            "maze_layout": Box(0, 1, (size, size), np.uint8),
        }
    )


def _require_one_of(name: str, value: Any, choices: Any) -> None:
    if isinstance(value, bool) or value not in choices:
        raise UserError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def _require_pixels(name: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not LEAST_PIXELS <= value <= MOST_PIXELS:
        bounds = f"from {LEAST_PIXELS} to {MOST_PIXELS}"
        raise UserError(f"{name} must be an integer {bounds}, got {value!r}")
