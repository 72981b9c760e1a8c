"""Memory Maze (Pasukonis et al., 2022) for Gymnasium; needs `pip install 'clew[memory-maze]'`.

The tasks are the package's own, either as shipped, or four times as fast with the same pictures and
rewards. Two things in the package take most of the time and RAM without a visible effect:

- After each of 50 physics substeps every target iterates over the list of contacts from Python,
  which takes some 240 us even for a single contact. `contact.geom` is the same list as one array of
  pairs of geometries, and a target is touched exactly if its geometry is in it.
- Each of ten kinds of walls gets its own set of the same eight textures. One set is enough: a
  wall's texture is drawn as an index into its set, and all sets have the same order.

The changes do not affect other users of `dm_control` or `memory_maze` in the process: the tasks are
built by copies of Memory Maze's functions with other globals, and clew's targets have their own
class. tests/bridges/test_memory_maze.py compares every frame and reward of whole episodes.
"""

import functools
import logging
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from clew.bridges.memory_maze_packages import load_tasks, require_drawing
from clew.envs.gymnasium_api import (
    known_options,
    require_action,
    require_render_mode,
    require_running,
    require_unforked,
)
from clew.errors import UserError, require_at_least, require_choice

SIZES = {9: (3, 250), 11: (4, 500), 13: (5, 750), 15: (6, 1000)}  # targets, seconds
PHYSICS_RATE = 200  # physics steps per second
CONTROL_RATES = tuple(rate for rate in range(1, PHYSICS_RATE + 1) if PHYSICS_RATE % rate == 0)
LEAST_PIXELS, MOST_PIXELS = 64, 480  # below, Memory Maze's border fills the picture; above, none
CAMERAS = {"agent": "walker/egocentric", "top": "top_camera"}
ACTIONS = "nothing, forward, left, right, forward and left, forward and right"
SEEDS = 2**32
NOISE = "Cannot set velocity on Entity with no free joint."
FORKED = "Memory Maze cannot draw in a process forked from one that has drawn"
_drawing_processes: set[int] = set()


class MemoryMazeEnv(gymnasium.Env[Any, np.int64]):
    """A random maze with balls of different colours; the border shows the colour of the next goal.

    The agent sees a picture, uint8 [64, 64, 3], and takes one of 6 actions: 0 nothing, 1 forward,
    2 left, 3 right, 4 forward and left, 5 forward and right. Touching the ball of the border's
    colour gives a reward of 1 and changes the border's colour; the balls stay in place until the
    episode ends, so that it pays to remember their places. There are no other rewards.

    An episode has 1000, 2000, 3000 or 4000 steps (size 9, 11, 13, 15) and is then truncated; it
    never terminates. `info` is empty.

    `reset(seed=s)` builds the task anew, with the mazes of
    `memory_maze.tasks.memory_maze_9x9(seed=s)`; `reset()` opens the next of these mazes.

    The packages are imported when the environment is made, but the first `reset` builds the maze,
    so that processes forked in between do not share a drawing context.

    Args:
        size: 9, 11, 13 or 15 cells a side, with 3, 4, 5 or 6 balls.
        extra_observables: observe a dictionary instead of a picture: `image`; in cells, counted
            from the lower left corner, `agent_pos` [2], `targets_pos` [targets, 2] and `target_pos`
            [2], the current target; the unit vector `agent_dir` [2]; `targets_vec` and
            `target_vec`, the same relative to the agent, in cells; `target_color` [3], 0 to 1; and
            `maze_layout` [size, size], uint8, 1 for free cells, with row 0 as the lowest. Floats
            are float32.
        control_freq: actions per second, a divisor of 200. The time limit is in seconds, so that
            an episode at 40 has ten times as many steps as at 4.
        camera_resolution: pixels a side of the agent's picture, 64 to 480.
        top_camera: the agent sees the maze from above, and itself with two ears.
        good_visibility: low walls, and balls that stand above the floor.
        randomize_colors: draw the balls' colours out of six in each episode.
        patched: False for the task exactly as shipped, at a quarter of the speed; see
            this module's docstring.
        render_mode: None, or "rgb_array" for a picture from `render`.
        render_camera: "agent" for the agent's view, including the border, or "top".
        render_resolution: pixels a side of that picture, 64 to 480.

    Raises:
        UserError: impossible settings or actions; or missing packages or system libraries, with
            the commands to install them.
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
        require_at_least("camera_resolution", camera_resolution, LEAST_PIXELS, MOST_PIXELS)
        require_at_least("render_resolution", render_resolution, LEAST_PIXELS, MOST_PIXELS)
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
        """Steps after which an episode is truncated."""
        return SIZES[self.size][1] * self._options["control_freq"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode in a new maze; with a seed, in the first of that seed's mazes."""
        known_options(options, "the Memory Maze", [])
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
        """Frees the drawing context; a `reset` afterwards builds a new maze."""
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

    across = size * np.sqrt(2)  # the largest distance between two places in the maze
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


def build_task(size: int, seed: int, patched: bool, **options: Any) -> Any:
    """A task of Memory Maze, as a dm_env environment with dictionaries as observations.

    Its options are those of the functions in `memory_maze.tasks`; its seed is below 2**32. Without
    `patched` it is as shipped.

    Raises:
        UserError: a package is not installed, or nothing can be drawn (see `load_tasks`), for
            example because this process was forked from one that has drawn.
    """
    tasks = load_tasks()
    require_unforked(_drawing_processes, FORKED)
    make = getattr(tasks, f"memory_maze_{size}x{size}")
    if patched:
        textures = types.SimpleNamespace(
            WallTextures=functools.cache(tasks.labmaze_textures.WallTextures)
        )
        build = _copy(
            tasks._memory_maze, labmaze_textures=textures, MemoryMazeTask=_quick_task_class()
        )
        make = _copy(make, _memory_maze=build)
    try:
        return make(seed=seed, **options)  # draws a first picture
    except Exception as error:
        require_drawing(error)
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Removes one warning from the log: at every reset, that a ball has no free joint."""
    logger = logging.getLogger("absl")

    def is_of_interest(record: logging.LogRecord) -> bool:
        return record.msg != NOISE

    logger.addFilter(is_of_interest)
    try:
        yield
    finally:
        logger.removeFilter(is_of_interest)


def _copy(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A copy of a function, with other values for some of its module's globals."""
    seen = {**function.__globals__, **names}
    copy = types.FunctionType(
        function.__code__, seen, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


@functools.cache
def _quick_task_class() -> type:
    from dm_control.locomotion.props import target_sphere  # pyright: ignore # optional: dm_control

    class QuickTarget(target_sphere.TargetSphere):
        def _update_activation(self, physics: Any) -> None:
            # As in the original, except that all geometries may touch it, as is the case here.
            if not self._activated and (physics.data.ptr.contact.geom == self._geom_id).any():
                self._activated = True
                physics.bind(self._material).rgba[-1] = 0

    class QuickTask(load_tasks().MemoryMazeTask):
        def _create_targets(self, *args: Any, **settings: Any) -> None:
            super()._create_targets(*args, **settings)
            for target in self._targets:
                assert not target._specific_collision_geom_ids
                target.__class__ = QuickTarget

    return QuickTask
