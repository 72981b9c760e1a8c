"""Environments side by side, in groups in worker processes or in this process."""

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import connection, get_context, util
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.group import NOBODY, EnvGroup, Failure, GroupPlan, serve, table
from clew.bridges.gymnasium.processes import (
    CLOSE_SECONDS,
    LOST,
    end_processes,
    require_descriptors,
    start_method,
)
from clew.bridges.gymnasium.spaces import Array
from clew.bridges.gymnasium.vector import Answer, VectorSource, seeds_of
from clew.errors import UserError, system_error


class GroupedEnvs(VectorSource):
    """`num_envs` environments in groups, a process for each group, or all in this process.

    Gymnasium's `AsyncVectorEnv` has one process for every environment. Here a process steps a group
    of them (`EnvGroup`), so that they share the cost of a message and processes need not outnumber
    the cores. Observations pass through shared memory, actions and failures through pipes.

    Args:
        plan: of the first group; `count` and `first` are set for each group.
        num_envs: number of all environments.
        processes: worker processes, which must divide num_envs; 0 for none.

    Raises:
        UserError: the system denies processes or memory.
        EnvironmentFault: a process ended while it started.
    """

    same_step = False

    def __init__(self, plan: GroupPlan, num_envs: int, processes: int):
        self.num_envs, self.name = num_envs, plan.builder.name
        self.observations, self.own_action_space = plan.adapter, plan.action_space
        self.processes: list[Any] = []
        self._pipes: list[connection.Connection] = []
        self._stuck = False
        self._local: EnvGroup | None = None
        self._plan = replace(plan, first=0, count=num_envs)
        if not processes:
            self._rows = np.zeros(num_envs, plan.row)
            self._local = EnvGroup(self._plan, self._rows, np.array([NOBODY], np.int32))
            return
        self._share = num_envs // processes
        # Without this, a process would wait forever for its children at exit if nobody closes them.
        ending = (self.processes, self._pipes, CLOSE_SECONDS)
        self._closing = util.Finalize(self, end_processes, ending, exitpriority=10)
        try:
            self._start(processes)
        except (EOFError, OSError) as error:
            end_processes(self.processes, self._pipes, 0.0)
            raise self._not_started(error) from error
        self._pollers = [poller(pipe) for pipe in self._pipes]

    def _start(self, processes: int) -> None:
        require_descriptors(processes)
        context: Any = get_context(start_method())
        rows = context.RawArray("B", self.num_envs * self._plan.row.itemsize)
        indices = context.RawArray("i", [NOBODY] * processes)
        self._rows, self._progress = table(self._plan, rows), np.frombuffer(indices, np.int32)
        for place in range(processes):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            plan = replace(self._plan, first=place * self._share, count=self._share)
            sent = CloudpickleWrapper(plan)  # pyright: ignore  # it takes anything
            started = (sent, place, rows, indices, theirs)
            process = context.Process(target=serve, args=started, name=f"clew-envs-{place}")
            process.daemon = True
            with clear_mpi_env_vars(), theirs:
                process.start()
            self.processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def _not_started(self, error: EOFError | OSError) -> UserError:
        if isinstance(error, EOFError | ConnectionError):
            return self._gone(
                f"a worker process ended while it started ({error!r}); a script that starts "
                "processes must put its work under `if __name__ == '__main__':`"
            )
        why = system_error(error)
        return UserError(f"{self.name}: its worker processes cannot be started: {why}")

    def reset(self, seed: int | None, timeout: float | None) -> Answer:
        seeds = None if seed is None else seeds_of(seed, self.num_envs)
        if self._local is not None:
            return self._answer(self._local.reset(seeds))
        parts = [None if seeds is None else seeds[own] for own in self._shares()]
        self._send("reset", parts)
        return self._answer(self._await(timeout))

    def send(self, actions: Array) -> None:
        self._actions = actions
        if self._local is None:
            self._send("step", [actions[own] for own in self._shares()])

    def wait(self, timeout: float | None) -> Answer:
        local = self._local
        return self._answer(self._await(timeout) if local is None else local.step(self._actions))

    def show_progress(self, progress: Array) -> None:
        if self._local is not None:
            self._local.progress = progress

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
            return
        for process in self.processes if self._stuck else ():
            process.kill()
        self._closing()

    def _answer(self, failures: Sequence[Failure]) -> Answer:
        """The table of rows as copies; raises for the first of the failures."""
        if failures:
            raise self._failed(failures)
        rows, leaves = self._rows, self._rows["observation"]
        adapted = [leaves[str(k)].copy() for k in range(len(self.observations.leaves))]
        return Answer(
            observations=self.observations.named(adapted),
            masks=rows["mask"].copy() if self._plan.mask else None,
            rewards=rows["reward"].copy(),
            terminated=rows["terminated"].copy(),
            truncated=rows["truncated"].copy(),
            trial_goes_on=rows["trial_goes_on"].copy() if self._plan.trials else None,
            numbers=self._numbers(),
        )

    def _numbers(self) -> list[dict[str, float]]:
        """The numbers in `info` of every environment; worker processes send only metrics.

        Empty if no metrics are wanted, since this is called at every step.
        """
        if self._local is not None:
            return self._local.numbers
        rows, names = self._rows, self._plan.metrics
        if not names:
            return []
        ended = rows["terminated"] | rows["truncated"]
        return [
            dict(zip(names, own, strict=True)) if over else {}
            for own, over in zip(rows["metrics"].tolist(), ended, strict=True)
        ]

    def _failed(self, failures: Sequence[Failure]) -> EnvironmentFault:
        first = failures[0]
        others = f" (and {len(failures) - 1} others)" if len(failures) > 1 else ""
        raised = first.call in ("reset", "step")
        what = f"raised in {first.call}" if raised else f"gave a wrong {first.call}"
        fault = EnvironmentFault(
            f"{self.name}: environment {first.index}{others} {what}, {first.episode_step} steps "
            f"into its episode: {first.text}",
            env=self.name,
            index=first.index,
            episode_step=first.episode_step,
            field=first.call,
            cause=f"{first.call}: {first.text}",
        )
        if first.trace:
            fault.add_note(first.trace)
        return fault

    def _shares(self) -> list[slice]:
        """The environments of each process."""
        return [slice(i, i + self._share) for i in range(0, self.num_envs, self._share)]

    def _send(self, call: str, parts: Sequence[Any]) -> None:
        if self._stuck:
            raise self._gone(
                "its worker processes are gone, or were broken off; open another stream"
            )
        with self._losses():
            for pipe, part in zip(self._pipes, parts, strict=True):
                pipe.send((call, part))

    def _await(self, timeout: float | None) -> list[Failure]:
        """The failures that the groups report, within `timeout` seconds; None waits forever."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._losses():
            if deadline is not None:
                late = [p for p, ready in enumerate(self._pollers) if not ready(deadline)]
                if late:
                    raise EnvironmentHung.after(timeout, self.name, map(self._busy, late))
            return [failure for pipe in self._pipes for failure in pipe.recv()]

    def _busy(self, place: int) -> int:
        """The environment that a group is stepping; its first one if there is none."""
        running = int(self._progress[place])
        return running if running != NOBODY else place * self._share

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """Turns a broken pipe into an error that names the process."""
        # Any interruption here, also Ctrl-C, may leave an answer that would be taken for the next.
        self._stuck = True
        try:
            yield
        except LOST as error:
            # The pipe breaks a moment before the process is known to be gone.
            ended = connection.wait([process.sentinel for process in self.processes], 1.0)
            for process in self.processes:
                if process.sentinel in ended:
                    process.join(1.0)  # a spawned one has an exit code only a moment later
            gone = [p for p, process in enumerate(self.processes) if not process.is_alive()]
            codes = ", ".join(str(self.processes[p].exitcode) for p in gone) or "unknown"
            index = self._busy(gone[0]) if gone else None
            where = f"the worker process of environment {index}" if gone else "a worker process"
            what = f"ended (exit code {codes})"
            raise self._gone(f"{where} {what}", index, what) from error
        self._stuck = False

    def _gone(self, what: str, index: int | None = None, cause: str = "") -> EnvironmentFault:
        return EnvironmentFault(
            f"{self.name}: {what}",
            env=self.name,
            index=index,
            field="worker",
            cause=cause,
            lost=True,
        )


def poller(pipe: Any) -> Callable[[float], bool]:
    """A function of a timeout that waits for a pipe to be readable, and returns whether it is.

    `Connection.poll` builds a selector each time, which takes 15 microseconds; here it is built
    once.
    """
    if not hasattr(select, "poll"):  # Windows
        return lambda deadline: pipe.poll(max(0.0, deadline - time.monotonic()))
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return lambda deadline: bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
