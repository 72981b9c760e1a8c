"""Several environments in one process, stepped in order, as one environment of batches."""

import multiprocessing
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.build import EnvBuilder
from clew.bridges.gymnasium.faults import MaskError
from clew.bridges.gymnasium.processes import (
    CLOSE_SECONDS,
    close_quietly,
    end_with_parent,
    is_ctrl_c,
    leave_stopping_to_parent,
)
from clew.bridges.gymnasium.spaces import (
    Array,
    Arrays,
    ObservationAdapter,
    adapt_observation,
    exact_types,
    flag,
    mask_of_info,
    require_exact,
)
from clew.bridges.gymnasium.trials import ENDED
from clew.errors import UserError
from clew.names import MASK

NUMBERS = (float, int, np.floating, np.integer)
FLAGS = (bool, np.bool_)
NOBODY = -1


@dataclass(frozen=True)
class Failure:
    """An exception in an environment, as it crosses from a worker process."""

    index: int
    """Which environment, counted over all processes."""
    call: str
    """ "reset" or "step"; building an environment belongs to its first reset. "action_mask" where
    nothing but that was wrong."""
    episode_step: int
    """Steps of the episode before the call."""
    text: str
    """The traceback; of a `UserError`, its message."""


@dataclass(frozen=True)
class GroupPlan:
    """What a group is made from, to be sent to its process."""

    builder: EnvBuilder
    adapter: ObservationAdapter
    action_space: spaces.Space
    """The environments' own; every one of them must have it."""
    first: int
    """Index of the group's first environment among all."""
    count: int
    mask: int = 0
    """Numbers of the action mask in `info`; 0 for none."""
    place: int = 0
    """Which group this is: its entry in `progress`."""
    progress: str = ""
    """File of int32 in which each group writes the index of the environment that it is at work
    on, so that one that hangs or dies can be named; empty for none."""

    @property
    def observation_space(self) -> spaces.Space:
        """What is observed of one environment: the agent's part and the mask in `info`."""
        if not self.mask:
            return self.adapter.space
        leaves = [leaf.space for leaf in self.adapter.leaves]
        named = dict(zip(self.adapter.names, leaves, strict=True))
        return spaces.Dict({**named, MASK: spaces.Box(0, 1, (self.mask,), np.uint8)})

    def __call__(self) -> "EnvGroup":
        """The group, its environments yet to be built."""
        return EnvGroup(self)


class EnvGroup(gymnasium.Env):
    """`count` environments, stepped one after the other; the next-step autoreset.

    The environment after an episode's end is reset by the next step, which ignores its action
    and earns nothing. Rewards and the two flags are arrays [count]; observations are adapted
    already, with the environments as first axis.

    The environments are built by the first `reset`, so that a parent process, which needs to
    know the spaces only, never builds them. An exception in one of them is reported in
    `info["failures"]`, a list of `Failure`, and the environment is built again by the next
    `reset`; Gymnasium's worker would end the process, and its parent would wait for ever for an
    exception that cannot be pickled.
    """

    def __init__(self, plan: GroupPlan):
        self.plan = plan
        self._leaves = plan.adapter.leaves
        self.observation_space = _batch_space(plan)
        shape = (plan.count, *(plan.action_space.shape or ()))
        self.action_space = _any_numbers(shape, np.dtype(plan.action_space.dtype))
        self._envs: list[gymnasium.Env | None] = [None] * plan.count
        self._fresh = [np.zeros((plan.count, *leaf.shape), leaf.dtype) for leaf in self._leaves]
        self._slots = [
            (leaf, array, leaf.raw_shape, leaf.raw_shape != leaf.shape, exact_types(leaf.dtype))
            for leaf, array in zip(self._leaves, self._fresh, strict=True)
        ]
        self._masks = np.ones((plan.count, plan.mask), np.uint8)
        self._ended = np.zeros(plan.count, np.bool_)
        self._goes_on = np.zeros(plan.count, np.bool_)
        self._trials = plan.builder.trial_episodes > 1
        self._steps = [0] * plan.count
        self._failures: list[Failure] = []
        self._progress: Any = None

    def tell_progress(self, progress: np.ndarray) -> None:
        """Has the index of the environment at work written into an array [1] of int32."""
        self._progress = progress

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode in every environment; builds those that are not there.

        Args:
            seed: not used: seeds are in `options["seeds"]`, one a group and environment.
            options: "seeds", [groups, count] integers or None.
        """
        self._prepare_process()
        seeds = (options or {}).get("seeds")
        self._failures = []
        self._ended[:] = self._goes_on[:] = False
        for i in range(self.plan.count):
            self._begin(i)
            try:
                env = self._built(i)
                own = None if seeds is None else int(seeds[self.plan.place][i])
                self._open(i, env, own)
            except BaseException as error:  # also what ends a process, as sys.exit
                self._fail(i, "reset", error)
        return self._answer()

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes an action [count, ...] in every environment, or opens its next episode."""
        count = self.plan.count
        rewards = np.zeros(count, np.float64)
        terminated, truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self._failures = []
        if self._trials:
            self._goes_on = np.zeros(count, np.bool_)
        for i, env in enumerate(self._envs):
            if env is None:
                continue  # failed before; its reset builds it again
            self._begin(i)
            call = "reset" if self._ended[i] else "step"
            try:
                if self._ended[i]:
                    self._open(i, env, None)
                else:
                    observation, reward, ends, cut, said = env.step(action[i])
                    rewards[i] = reward if isinstance(reward, NUMBERS) else _number(reward)
                    terminated[i] = ends if isinstance(ends, FLAGS) else flag("terminated", ends)
                    truncated[i] = cut if isinstance(cut, FLAGS) else flag("truncated", cut)
                    self._write(i, observation)
                    if self._trials:
                        self._goes_on[i] = said.get(ENDED, False)
                    if self.plan.mask:
                        over = bool(terminated[i] or truncated[i])
                        self._masks[i] = mask_of_info(said, self.plan.mask, over)
                    self._steps[i] += 1
            except BaseException as error:
                self._fail(i, call, error)
        self._ended = terminated | truncated
        observations, info = self._answer()
        return observations, rewards, terminated, truncated, info

    def close(self) -> None:
        """Closes every environment, whatever the others say to it."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for env in self._envs:
            if env is not None:
                close_quietly(env, max(0.1, deadline - time.monotonic()))
        self._envs = [None] * self.plan.count

    def _prepare_process(self) -> None:
        if self._progress is None and self.plan.progress:
            self._progress = np.memmap(self.plan.progress, np.int32, "r+")
            if multiprocessing.parent_process() is not None:
                leave_stopping_to_parent()
                end_with_parent()

    def _built(self, i: int) -> gymnasium.Env:
        env = self._envs[i]
        if env is None:
            env = self.plan.builder(self.plan.first + i)
            seen = adapt_observation(env.observation_space)
            same = seen.form == self.plan.adapter.form
            if not same or env.action_space != self.plan.action_space:
                raise ValueError(
                    f"its spaces are {seen.space} and {env.action_space}, another one's were "
                    f"{self.plan.adapter.space} and {self.plan.action_space}"
                )
            self._envs[i] = env
        return env

    def _open(self, i: int, env: gymnasium.Env, seed: int | None) -> None:
        self._steps[i] = 0
        observation, said = env.reset() if seed is None else env.reset(seed=seed)
        self._write(i, observation)
        if self.plan.mask:
            self._masks[i] = mask_of_info(said, self.plan.mask, False)

    def _write(self, i: int, observation: Any) -> None:
        for leaf, array, raw_shape, flat, exact in self._slots:
            value = leaf.pick(observation)
            if value.shape != raw_shape:
                raise ValueError(
                    f"observation {leaf.name} has shape {value.shape}, its space says {raw_shape}"
                )
            if exact and value.dtype.char not in exact:
                require_exact(leaf, value)
            array[i] = value.ravel() if flat else value
            if leaf.offset is not None:
                array[i] -= leaf.offset

    def _answer(self) -> tuple[Arrays, dict[str, Any]]:
        self._begin(NOBODY)
        info: dict[str, Any] = {"failures": self._failures} if self._failures else {}
        if self._trials:
            info[ENDED] = self._goes_on
        if not isinstance(self.observation_space, spaces.Dict):
            return self._fresh[0], info
        named = dict(zip(self.plan.adapter.names, self._fresh, strict=True))
        return (named | {MASK: self._masks} if self.plan.mask else named), info

    def _begin(self, i: int) -> None:
        if self._progress is not None:
            self._progress[self.plan.place] = NOBODY if i == NOBODY else self.plan.first + i

    def _fail(self, i: int, call: str, error: BaseException) -> None:
        if is_ctrl_c(error):
            raise error
        index = self.plan.first + i
        text = str(error) if isinstance(error, UserError) else traceback.format_exc()
        call = MASK if isinstance(error, MaskError) else call
        self._failures.append(Failure(index, call, self._steps[i], text))
        env, self._envs[i] = self._envs[i], None
        if env is not None:
            close_quietly(env)


def _number(reward: Any) -> float:
    return float(np.asarray(reward, np.float64).item())


def _batch_space(plan: GroupPlan) -> spaces.Space:
    """Boxes of the leaves' types, [count, ...]: what shared memory can hold of any space."""
    leaves = [((plan.count, *leaf.shape), leaf.dtype) for leaf in plan.adapter.leaves]
    boxes: list[spaces.Space] = [_any_numbers(shape, dtype) for shape, dtype in leaves]
    if not isinstance(plan.observation_space, spaces.Dict):
        return boxes[0]
    named = dict(zip(plan.adapter.names, boxes, strict=True))
    if plan.mask:
        named[MASK] = _any_numbers((plan.count, plan.mask), np.dtype(np.uint8))
    return spaces.Dict(named)


def _any_numbers(shape: tuple[int, ...], dtype: np.dtype) -> spaces.Box:
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return spaces.Box(limits.min, limits.max, shape, dtype.type)


def split_evenly(num_envs: int, processes: int) -> Sequence[range]:
    """The environments of each process: `processes` ranges of equal length."""
    count = num_envs // processes
    return [range(place * count, (place + 1) * count) for place in range(processes)]
