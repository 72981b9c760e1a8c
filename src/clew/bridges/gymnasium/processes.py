"""Environments side by side in worker processes, as one vector environment."""

import contextlib
import dataclasses
import os
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.group import NOBODY, EnvGroup, Failure, GroupPlan, split_evenly
from clew.bridges.gymnasium.spaces import Array, Arrays
from clew.bridges.gymnasium.workers import CLOSE_SECONDS, LOST, close_workers, poller, start_method

Answer = tuple[Any, Any, Any, Any, Any]
"""Observations, rewards, terminated, truncated, info."""


class GroupedVectorEnv(VectorEnv):
    """`num_envs` environments in groups, a process for each group, or all in this process.

    Gymnasium's `AsyncVectorEnv` has one process for every environment. Here each of its
    "environments" is a group of them (`EnvGroup`), so that the cost of a message is shared and
    processes need not outnumber the cores. Its own autoreset, which knows one flag for each
    process, is therefore off, and the groups do the same: the next step resets.

    Observations are those that the agent sees (`GroupPlan.adapter`), as copies.

    Args:
        plan: of the first group; `count` and `first` are set for each of them.
        num_envs: environments in all.
        processes: worker processes, which must divide num_envs; 0 for none.
    """

    def __init__(self, plan: GroupPlan, num_envs: int, processes: int):
        self.num_envs, self.processes = num_envs, processes
        self.name = plan.builder.name
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = plan.adapter.space
        self.single_action_space = plan.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._progress_file = ""
        self._forget: Any = None
        self._stuck = False
        self._local: EnvGroup | None = None
        self._workers: AsyncVectorEnv | None = None
        self._pollers: list[Any] = []
        if processes:
            self._start(plan)
        else:
            self._local = dataclasses.replace(plan, first=0, count=num_envs)()

    def _start(self, plan: GroupPlan) -> None:
        handle, self._progress_file = tempfile.mkstemp(prefix="clew-progress-")
        os.close(handle)
        self._forget = weakref.finalize(self, _remove, self._progress_file)
        self._progress = np.memmap(self._progress_file, np.int32, "w+", shape=(self.processes,))
        self._progress[:] = NOBODY
        plans = [
            dataclasses.replace(
                plan, first=r.start, count=len(r), place=place, progress=self._progress_file
            )
            for place, r in enumerate(split_evenly(self.num_envs, self.processes))
        ]
        try:
            self._workers = AsyncVectorEnv(
                plans,
                shared_memory=True,
                copy=False,
                context=start_method(),
                autoreset_mode=AutoresetMode.DISABLED,
            )
        except LOST as error:
            raise EnvironmentFault(
                f"{self.name}: a worker process ended while it started ({error!r}); a script that "
                "starts processes keeps its work under `if __name__ == '__main__':`",
                env=self.name,
                field="worker",
                lost=True,
            ) from error
        self._pollers = [poller(pipe) for pipe in self._workers.parent_pipes]

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None, timeout: Any = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Opens an episode in every environment.

        Args:
            seed: a list of num_envs integers, or None to go on with the random streams there are.
            options: not used.
            timeout: seconds to wait for worker processes, None for ever.

        Raises:
            EnvironmentHung: no answer in time.
            EnvironmentFault: a worker process ended.
        """
        seeds = None if seed is None else np.reshape(seed, (max(1, self.processes), -1))
        if self._local is not None:
            observations, info = self._local.reset(options={"seeds": seeds})
            return self._batch(observations), info
        workers = self._running()
        with self._losses():
            workers.reset_async(options={"seeds": seeds})
            self._await(workers, timeout)
            observations, info = workers.reset_wait()
        return self._batch(observations), _flat(info)

    def step_async(self, actions: Array) -> None:
        """Sends actions [num_envs, ...] to the workers; without workers, keeps them."""
        if self._local is not None:
            self._actions = actions
            return
        groups = actions.reshape(self.processes, -1, *actions.shape[1:])
        with self._losses():
            self._running().step_async(groups)

    def step_wait(self, timeout: float | None = None) -> Answer:
        """The answer to `step_async`.

        Raises:
            EnvironmentHung: no answer within `timeout` seconds (never without workers).
            EnvironmentFault: a worker process ended.
        """
        if self._local is not None:
            observations, rewards, terminated, truncated, info = self._local.step(self._actions)
            return self._batch(observations), rewards, terminated, truncated, info
        workers = self._running()
        with self._losses():
            self._await(workers, timeout)
            observations, rewards, terminated, truncated, info = workers.step_wait()
        rewards, terminated, truncated = (
            array.reshape(self.num_envs) for array in (rewards, terminated, truncated)
        )
        return self._batch(observations), rewards, terminated, truncated, _flat(info)

    def step(self, actions: Array) -> Answer:
        """`step_async` and `step_wait`."""
        self.step_async(actions)
        return self.step_wait()

    def tell_progress(self, progress: np.ndarray) -> None:
        """Without workers: has the environment at work written into `progress`, int32 [1]."""
        assert self._local is not None
        self._local.tell_progress(progress)

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the workers: asks them, and after 5 seconds, or if one hung, makes them."""
        if self._local is not None:
            self._local.close()
        if self._workers is not None and not self._workers.closed:
            close_workers(self._workers, 0.0 if self._stuck else CLOSE_SECONDS)
        if self._forget is not None:
            self._forget()

    def _batch(self, observations: Any) -> Any:
        if isinstance(observations, dict):
            return {name: self._batch(array) for name, array in observations.items()}
        inner = observations.shape[2:] if self.processes else observations.shape[1:]
        return observations.reshape(self.num_envs, *inner).copy()

    def _running(self) -> AsyncVectorEnv:
        if self._workers is None or self._stuck:
            raise EnvironmentFault(
                f"{self.name}: its worker processes are gone; open another stream",
                env=self.name,
                field="worker",
                lost=True,
            )
        return self._workers

    def _await(self, workers: AsyncVectorEnv, timeout: float | None) -> None:
        if timeout is None:
            return
        deadline = time.monotonic() + timeout
        late = [p for p, ready in enumerate(self._pollers) if not ready(deadline)]
        if late:
            self._stuck = True
            indices = [self._busy(p) for p in late]
            some = "environment" if len(indices) == 1 else "environments"
            raise EnvironmentHung(
                f"{self.name}: {some} {', '.join(map(str, indices))} gave no answer within "
                f"{timeout:g} s",
                env=self.name,
                indices=indices,
            )

    def _busy(self, place: int) -> int:
        """The environment that a group is at work on; its first one if it is at none."""
        running = int(self._progress[place])
        return running if running != NOBODY else place * (self.num_envs // self.processes)

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """Turns the breaking of a pipe into the error that names who broke it."""
        try:
            yield
        except EnvironmentFault:
            raise
        except LOST as error:
            raise self._lost() from error

    def _lost(self) -> EnvironmentFault:
        self._stuck = True
        workers = self._workers
        assert workers is not None
        # The pipe breaks a moment before the process is known to be gone.
        connection.wait([process.sentinel for process in workers.processes], 1.0)
        gone = [p for p, process in enumerate(workers.processes) if not process.is_alive()]
        index = None
        where = "a worker process"
        if gone:
            index = self._busy(gone[0])
            where = f"the worker process of environment {index}"
        codes = ", ".join(str(workers.processes[p].exitcode) for p in gone) or "unknown"
        return EnvironmentFault(
            f"{self.name}: {where} ended (exit code {codes})",
            env=self.name,
            index=index,
            field="worker",
            lost=True,
        )


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _flat(info: dict[str, Any]) -> dict[str, Any]:
    """The failures of all groups in one list."""
    if "failures" not in info:
        return info
    found: Sequence[list[Failure] | None] = info["failures"]
    return {"failures": [failure for group in found if group for failure in group]}
