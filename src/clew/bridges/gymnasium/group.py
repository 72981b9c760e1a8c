"""Several environments in one process, stepped in order; each has a row in one table."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.build import EnvBuilder
from clew.bridges.gymnasium.faults import AnswerError
from clew.bridges.gymnasium.processes import (
    CLOSE_SECONDS,
    close_quietly,
    end_forks,
    end_with_parent,
    is_ctrl_c,
    leave_stopping_to_parent,
)
from clew.bridges.gymnasium.spaces import (
    Array,
    ObservationAdapter,
    adapt_observation,
    answered,
    exact_types,
    flag,
    mask_of_info,
    number,
    numbers_of_info,
    require_exact,
)
from clew.bridges.gymnasium.trials import ENDED
from clew.errors import UserError, last_line, own_traceback

NUMBERS = (float, int, np.floating, np.integer)
FLAGS = (bool, np.bool_)
RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
NOBODY = -1


@dataclass(frozen=True)
class Failure:
    """An exception in an environment, in the form that a worker process sends."""

    index: int
    """Index of the environment among those of all processes."""
    call: str
    """ "reset" or "step"; building an environment belongs to its first reset. For an `AnswerError`
    its field."""
    episode_step: int
    """Steps of the episode before the call."""
    text: str
    """The error on one line."""
    trace: str = ""
    """The environment's traceback, if it raised."""


@dataclass(frozen=True)
class GroupPlan:
    """Everything that is needed to make a group, to be sent to its process."""

    builder: EnvBuilder
    adapter: ObservationAdapter
    action_space: spaces.Space
    """The environments' own action space, the same for all of them."""
    first: int
    """Index of the group's first environment among all."""
    count: int
    mask: int = 0
    """Size of the action mask in `info`; 0 for none."""
    metrics: tuple[str, ...] = ()
    """Names of the numbers in an episode's last `info` that are metrics."""

    @property
    def trials(self) -> bool:
        """Whether the environments' episodes may belong to trials."""
        return self.builder.trial_episodes > 1

    @property
    def row(self) -> np.dtype:
        """The fields of an environment's row; the observation's leaves are numbered, not named."""
        leaves = [(str(k), leaf.dtype, leaf.shape) for k, leaf in enumerate(self.adapter.leaves)]
        numbers = [("reward", np.float64), ("terminated", np.bool_), ("truncated", np.bool_)]
        trial, mask = ("trial_goes_on", np.bool_), ("mask", np.uint8, (self.mask,))
        metrics = ("metrics", np.float64, (len(self.metrics),))
        return np.dtype([("observation", leaves), *numbers, trial, mask, metrics], align=True)


class EnvGroup:
    """`count` environments, stepped one after the other, with next-step autoreset.

    After the end of an episode the next step resets the environment; it ignores the action, and its
    reward is 0. The results of each environment are written to its row of a table.

    The environments are built by the first `reset`, so that a parent process, which needs only the
    spaces, never builds them. An exception in one of them is reported as a `Failure`, and the next
    `reset` builds that environment again.

    Args:
        rows: [count] of `GroupPlan.row`, which may be in shared memory.
        progress: int32 [1] for the index of the environment that is being stepped, so that one that
            hangs or dies can be named.
    """

    def __init__(self, plan: GroupPlan, rows: Array, progress: Array):
        self.plan, self.progress, self._rows = plan, progress, rows
        self._envs: list[gymnasium.Env | None] = [None] * plan.count
        self._slots = [
            (leaf, array, leaf.raw_shape, leaf.raw_shape != leaf.shape, exact_types(leaf.dtype))
            for k, leaf in enumerate(plan.adapter.leaves)
            for array in [rows["observation"][str(k)]]
        ]
        self._rewards, self._masks, self._goes_on, self._metrics = (
            rows[name] for name in ("reward", "mask", "trial_goes_on", "metrics")
        )
        self._terminated, self._truncated = rows["terminated"], rows["truncated"]
        self._masks[:] = 1
        self._ended = np.zeros(plan.count, np.bool_)
        self._trials, self._mask = plan.trials, plan.mask
        self._steps = [0] * plan.count
        self._failures: list[Failure] = []
        self.numbers: list[dict[str, float]] = []
        """The numbers in `info` of every environment whose episode the last step ended."""

    def reset(self, seeds: Sequence[int] | None) -> list[Failure]:
        """Opens an episode in every environment; builds missing ones.

        Args:
            seeds: one for each environment; None to continue the present random streams.
        """
        self._failures = []
        self.numbers = [{} for _ in self._envs]
        self._rewards[:] = 0.0
        self._terminated[:] = self._truncated[:] = False
        self._ended[:] = self._goes_on[:] = False
        for i in range(self.plan.count):
            self._begin(i)
            try:
                self._open(i, self._built(i), None if seeds is None else int(seeds[i]))
            except BaseException as error:  # includes those that end a process, such as sys.exit
                self._fail(i, "reset", error)
        self.progress[0] = NOBODY
        return self._failures

    def step(self, actions: Array) -> list[Failure]:
        """Takes an action [count, ...] in every environment, or opens its next episode."""
        self._failures = []
        self.numbers = [{} for _ in self._envs]
        self._rewards[:] = 0.0
        self._terminated[:] = self._truncated[:] = self._goes_on[:] = False
        for i, env in enumerate(self._envs):
            if env is None:
                continue  # it has failed; its reset builds it again
            self._begin(i)
            call = "reset" if self._ended[i] else "step"
            try:
                if self._ended[i]:
                    self._open(i, env, None)
                else:
                    self._step(i, *answered("step", env.step(actions[i]), STEP))
            except BaseException as error:
                self._fail(i, call, error)
        self._ended = self._terminated | self._truncated
        self.progress[0] = NOBODY
        return self._failures

    def close(self) -> None:
        """Closes every environment, even if others fail to close."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for env in self._envs:
            if env is not None:
                close_quietly(env, max(0.1, deadline - time.monotonic()))
        self._envs = [None] * self.plan.count

    def _built(self, i: int) -> gymnasium.Env:
        env = self._envs[i]
        if env is None:
            env = self.plan.builder(self.plan.first + i)
            seen = adapt_observation(env.observation_space)
            same = seen.form == self.plan.adapter.form
            if not same or env.action_space != self.plan.action_space:
                raise ValueError(
                    f"its spaces are {seen.space} and {env.action_space}, but another one's were "
                    f"{self.plan.adapter.space} and {self.plan.action_space}"
                )
            self._envs[i] = env
        return env

    def _open(self, i: int, env: gymnasium.Env, seed: int | None) -> None:
        self._steps[i] = 0
        try:
            answer = env.reset() if seed is None else env.reset(seed=seed)
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise AnswerError(
                "reset takes no seed; expected reset(self, *, seed=None, options=None)"
            ) from error
        observation, info = answered("reset", answer, RESET)
        self._write(i, observation)
        if self._mask:
            self._masks[i] = mask_of_info(info, self._mask, False)

    def _step(
        self, i: int, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> None:
        """Writes the results of a step; the usual types take a fast path."""
        known = isinstance(reward, NUMBERS)
        self._rewards[i] = reward if known else number("reward", reward)
        known = isinstance(terminated, FLAGS)
        self._terminated[i] = terminated if known else flag("terminated", terminated)
        known = isinstance(truncated, FLAGS)
        self._truncated[i] = truncated if known else flag("truncated", truncated)
        self._write(i, observation)
        if self._trials:
            self._goes_on[i] = info.get(ENDED, False)
        ended = bool(self._terminated[i] or self._truncated[i])
        if self._mask:
            self._masks[i] = mask_of_info(info, self._mask, ended)
        if ended:
            self.numbers[i] = numbers_of_info(info, self.plan.metrics)
            self._metrics[i] = [self.numbers[i][name] for name in self.plan.metrics]
        self._steps[i] += 1

    def _write(self, i: int, observation: Any) -> None:
        for leaf, array, raw_shape, flat, exact in self._slots:
            value = leaf.pick(observation)
            if value.shape != raw_shape or value.dtype == object:
                raise leaf.misfit(value)
            if exact and value.dtype.char not in exact:
                require_exact(leaf, value)
            array[i] = value.ravel() if flat else value
            if leaf.offset is not None:
                array[i] -= leaf.offset

    def _begin(self, i: int) -> None:
        self.progress[0] = self.plan.first + i

    def _fail(self, i: int, call: str, error: BaseException) -> None:
        if is_ctrl_c(error):
            raise error
        index = self.plan.first + i
        known = isinstance(error, UserError)
        text, trace = (str(error), "") if known else (last_line(error), own_traceback(error))
        call = error.field if isinstance(error, AnswerError) else call
        self._failures.append(Failure(index, call, self._steps[i], text, trace))
        env, self._envs[i] = self._envs[i], None
        if env is not None:
            close_quietly(env)


def table(plan: GroupPlan, memory: Any) -> Array:
    """The rows of a group's environments in the memory of the rows of all groups."""
    return np.frombuffer(memory, plan.row)[plan.first : plan.first + plan.count]


def serve(sent: Any, place: int, rows: Any, progress: Any, pipe: Connection) -> None:
    """The main function of a worker process: serves its parent until the parent hangs up.

    Args:
        sent: a `CloudpickleWrapper` of the `GroupPlan`, which plain pickle may not be able to send.
        place: index of the group among all, and of its entry in `progress`.
        rows: shared memory of the rows of all groups.
        progress: shared memory of their progress.
        pipe: to the parent, which sends "reset" with seeds, "step" with actions, or None.
    """
    leave_stopping_to_parent()
    end_with_parent()
    pipe.send(None)  # tells the waiting parent that the process has started
    plan, indices = sent.fn, np.frombuffer(progress, np.int32)
    group = EnvGroup(plan, table(plan, rows), indices[place : place + 1])
    with contextlib.suppress(EOFError, ConnectionError):
        while (asked := pipe.recv()) is not None:
            call, what = asked
            pipe.send(group.reset(what) if call == "reset" else group.step(what))
    group.close()
    end_forks()
