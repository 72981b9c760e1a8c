"""Every task of `ENVS` as a Gymnasium environment, for other libraries.

`import clew` registers each of them under the name of its class, such as "clew/TMaze-v0", and also
Memory Maze, which needs the extra `memory-maze` once it is made:

    import clew
    env = gymnasium.make("clew/TMaze-v0", corridor_length=120)

or, in one line, `gymnasium.make("clew:clew/TMaze-v0")`, which imports clew. `register()` registers
tasks that a program has added to `ENVS`.
"""

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete, Space

from clew.envs import ENVS
from clew.envs.base import Environment, as_array
from clew.envs.programs import program_of, words_of_call
from clew.envs.spaces import MASK
from clew.errors import UserError, check_call, unknown_name

RENDER_MODES = ["ansi", "rgb_array"]
SEEDS = 2**32
NEW_TRIAL = "new_trial"
"""Option of `reset`; `clew.bridges.gymnasium.trials` uses the same name."""
FORKED = "clew's tasks cannot be stepped in a process forked from one that has stepped them"
_stepping_processes: set[int] = set()


class JaxTaskEnv(gymnasium.Env[Any, Any]):
    """A task in JAX as a Gymnasium environment, compiled for the CPU.

    `info` has the task's metrics of the episode so far, the current action mask where the task
    masks actions ("action_mask", int8), and the random draw of the episode (`Environment.draw`),
    which the agent must not see. `reset(options=...)` forces all or part of the draw; the rest is
    the same for the same seed either way. A seed also restarts a fixed stream of episodes at its
    first one. `options={"new_trial": False}` opens another episode of the trial that the last other
    reset began (`Environment.next_in_trial`); `info` then has the draw of the trial's beginning.

    A task in which no action changes the observations (`clew.envs.base.OpenLoop`) computes each
    episode when it opens.

    Args:
        task: a key of `ENVS`, or a task that is already made, such as one of `clew.make_env`, which
            also makes those of gymnax, XLand-MiniGrid, Craftax, Brax and Jumanji.
        render_mode: None, "ansi" for the task's lines of text, or "rgb_array" for its pictures; a
            task without pictures does not declare that mode and takes it for None.
        options: of the task; none for one that is already made.

    Raises:
        UserError: impossible settings, options or actions; or the process was forked from one that
            has stepped such an environment, which JAX does not support.
        gymnasium.error.ResetNeeded: a step before the first reset or after an episode's end.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 10, "trials": True}

    def __init__(self, task: str | Environment, render_mode: str | None = None, **options: Any):
        require_render_mode(render_mode)
        self.name = task if isinstance(task, str) else type(task).__name__
        self.task, self.render_mode = _made(task, options), render_mode
        if type(self.task).render_image is Environment.render_image:
            self.metadata = {**self.metadata, "render_modes": ["ansi"]}
            self.render_mode = None if render_mode == "rgb_array" else render_mode
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self._program = program_of(self.task)
        self._draw, self._force = self.task.draw, self.task.force  # binding a method takes long
        self._noise: np.random.Generator | None = None
        self._number = self._time = self._seed = 0
        self._running = False
        self._drawn: dict[str, Any] = {}
        self._arrays: list[str] = []
        self._flags = [name in self.task.boolean_metrics for name in self.task.metric_names]
        self._meanings = ", ".join(self.task.action_names)
        self._masks = self.task.masks_actions
        self._words: Any = None
        self._first: Any = None
        self._ahead: tuple[np.ndarray, np.ndarray] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode; `options` force what `Environment.draw` names."""
        require_unforked(_stepping_processes, FORKED)
        super().reset(seed=seed)
        options = dict(options or {})
        if not options.pop(NEW_TRIAL, True):
            return self._reopen()
        if seed is not None or self._noise is None:
            self._number = 0
            self._noise = self.np_random.spawn(1)[0]  # takes no numbers from `draw`
        drawn = self._draw(self.np_random, self._number)
        given = known_options(options, self.name, drawn)
        self._drawn = self._force(drawn, given) if given else drawn
        self._arrays = [n for n, value in self._drawn.items() if isinstance(value, np.ndarray)]
        self._seed = int(self._noise.integers(SEEDS))
        call = _on_processor(np.array((self._seed, self._time), np.uint32))
        if self._drawn:
            self._words = self._program.reset_to(call, self._drawn)
        elif self._number == 0:
            self._words = self._program.reset(call)
        else:
            self._words = self._program.next_episode(call, self._words)
        self._number, self._first = self._number + 1, self._words
        return self._opened()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one action."""
        require_running(self._running)
        if self.task.num_actions:
            action = require_action(self, action, self._meanings)
        else:
            action = require_numbers(self.action_space, action)
        if self._ahead is not None:
            observation = self._program.read_observation(self._ahead[0][self._time])
            numbers = self._ahead[1][action, self._time]
        else:
            call = words_of_call(self.task, action, self._seed, self._time)
            self._words = self._program.step(call, self._words)
            words = np.asarray(self._words)
            observation, numbers = self._program.observation(words), self._program.numbers(words)
        reward, terminated, truncated, *metrics = numbers.tolist()
        self._time += 1
        self._running = not (terminated or truncated)
        info = self._info(metrics)
        return observation, _shortest(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """The current state in the render mode; None without one."""
        if self.render_mode is None or self._words is None:
            return None
        if self._ahead is not None and self._time:
            observation = self._program.read_observation(self._ahead[0][self._time - 1])
        else:
            observation = self._program.observation(np.asarray(self._words))
        state = self._program.state(self._words, np.uint32(self._time))
        render = self.task.render_text if self.render_mode == "ansi" else self.task.render_image
        return render(jax.device_get(state), observation)

    def _reopen(self) -> tuple[Any, dict[str, Any]]:
        """Opens another episode of the running trial."""
        if self._noise is None:
            raise UserError(f"{NEW_TRIAL}=False needs a trial: call reset without it first")
        self._seed = int(self._noise.integers(SEEDS))
        call = _on_processor(np.array((self._seed, self._time), np.uint32))
        self._words = self._program.next_in_trial(call, self._first)
        return self._opened()

    def _opened(self) -> tuple[Any, dict[str, Any]]:
        self._time, self._running = 0, True
        words = np.asarray(self._words)
        self._ahead = self._program.ahead(words)
        return self._program.observation(words), self._info([0.0] * len(self._flags))

    def _info(self, metrics: Sequence[float]) -> dict[str, Any]:
        info: dict[str, Any] = dict(self._drawn)
        for name, is_flag, value in zip(self.task.metric_names, self._flags, metrics, strict=True):
            info[name] = value != 0 if is_flag else value
        for name in self._arrays:
            info[name] = info[name].copy()
        if self._masks:
            mask = self._program.action_mask(self._words, np.uint32(self._time))
            info[MASK] = np.array(mask, np.int8)
        return info


def _made(task: str | Environment, options: dict[str, Any]) -> Environment:
    """A task by its name, or as it is given."""
    if isinstance(task, Environment):
        if options:
            raise UserError(f"a task that is already made takes no options, got {options}")
        return task
    if task not in ENVS:
        raise unknown_name("task", task, ENVS)
    check_call(task, ENVS[task], **options)
    return ENVS[task](**options)


def _on_processor(call: np.ndarray) -> Any:
    """Puts a call on the CPU, where a single step is cheapest."""
    if jax.default_backend() == "cpu":
        return call
    return jax.device_put(call, jax.local_devices(backend="cpu")[0])


def require_unforked(used: set[int], what: str) -> None:
    """Refuses to use threads (JAX's, Mesa's) after a fork: the child would wait for them forever.

    Args:
        used: the processes that have used them; adds this one.
        what: the start of the message, "... in a process forked from one that has ...".

    Raises:
        UserError: if the parent of this process has used them.
    """
    here = os.getpid()
    if used - {here}:
        raise UserError(
            f"{what}: start it with 'spawn' or 'forkserver' (in Gymnasium, "
            "vector_kwargs={'context': 'spawn'})"
        )
    used.add(here)


@functools.lru_cache(1024)
def _shortest(number: float) -> float:
    """The shortest decimal of a float32: -0.1 for the float32 nearest to it."""
    return float(str(np.float32(number)))


def require_render_mode(mode: Any, modes: list[str] = RENDER_MODES) -> None:
    """Raises `UserError` unless `mode` is None or one of `modes`."""
    if mode not in (None, *modes):
        raise unknown_name("render_mode", mode, modes)


def require_running(running: bool) -> None:
    """Raises `ResetNeeded` unless an episode is running."""
    if not running:
        raise ResetNeeded("the episode has not begun or has ended: call reset() before step()")


def require_action(env: gymnasium.Env, action: Any, meanings: str = "") -> int:
    """The action as an integer; raises `UserError` unless it is one of `env`'s."""
    space = env.action_space
    assert isinstance(space, Discrete)
    if not space.contains(action):
        raise UserError(
            f"action must be an integer from 0 to {space.n - 1} ({meanings or space}), got "
            f"{action!r}"
        )
    return int(action)


def require_numbers(space: Space[Any], action: Any) -> np.ndarray:
    """The action as an array; raises `UserError` unless its shape and kind of numbers fit a space
    that is not Discrete. The task clips numbers outside the limits."""
    array, floats = as_array(action), np.issubdtype(space.dtype, np.floating)
    kinds = "biuf" if floats else "biu"
    fits = array.size == np.prod(space.shape or (), dtype=int) and array.dtype.kind in kinds
    if not fits or not np.isfinite(array).all():
        raise UserError(
            f"action must have {'finite' if floats else 'whole'} numbers, shape "
            f"{list(space.shape or ())} ({space}), got {action!r}"
        )
    return array


def known_options(
    options: dict[str, Any] | None, task: str, names: Iterable[str]
) -> dict[str, Any]:
    """The options given to `reset`; raises `UserError` for any that is not in `names`."""
    options = {} if options is None else options
    for name in options:
        if name not in names:
            raise unknown_name(f"reset option of {task}", name, names)
    return {name: value for name, value in options.items() if value is not None}


def task_ids() -> dict[str, str]:
    """The Gymnasium ids of all tasks in `ENVS`, with the tasks' names."""
    return {f"clew/{kind.__name__}-v0": name for name, kind in ENVS.items()}


def register() -> None:
    """Registers the tasks for `gymnasium.make`; calling it again changes nothing.

    There is no `max_episode_steps`: Gymnasium's own limit would override the task's rules.
    """
    for env_id, name in task_ids().items():
        if env_id not in gymnasium.registry:
            entry_point = "clew.envs.gymnasium_api:JaxTaskEnv"
            gymnasium.register(env_id, entry_point=entry_point, kwargs={"task": name})
