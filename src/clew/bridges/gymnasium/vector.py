"""Vector environments: clew's own in worker processes, and calls to any that name its faults."""

import contextlib
import dataclasses
import multiprocessing
import os
import select
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, util
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.group import NOBODY, EnvGroup, Failure, GroupPlan, split_evenly
from clew.bridges.gymnasium.processes import (
    CLOSE_SECONDS,
    close_quietly,
    is_ctrl_c,
    start_method,
)
from clew.bridges.gymnasium.spaces import Array, Arrays
from clew.bridges.gymnasium.trials import ENDED
from clew.errors import UserError, system_error
from clew.names import MASK

TERMINATE, KILL = multiprocessing.Process.terminate, multiprocessing.Process.kill
LOST = (EOFError, ConnectionError, OSError)
"""What a pipe raises whose other end is gone."""


def close_workers(
    workers: AsyncVectorEnv,
    patience: float,
    ends: Sequence[Callable[[Any], None]] = (TERMINATE, KILL),
) -> None:
    """Ends the processes of a vector environment within `patience` seconds and a little more.

    Gymnasium's own `close` waits for ever for a worker that hangs.

    Args:
        workers: the vector environment.
        patience: seconds for them to end by themselves.
        ends: what is done to those that have not, one after the other.
    """
    deadline = time.monotonic() + patience
    for pipe in workers.parent_pipes if patience else ():
        with contextlib.suppress(*LOST, AttributeError):
            pipe.send(("close", None))
    for process in workers.processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for end in ends:
        late = [process for process in workers.processes if process.is_alive()]
        for process in late:
            end(process)
        for process in late:
            process.join(1.0)
    for pipe in workers.parent_pipes:
        if pipe is not None:
            pipe.close()
    workers.error_queue.close()
    workers.error_queue.cancel_join_thread()
    workers.closed = True


def poller(pipe: Any) -> Callable[[float], bool]:
    """A function of a deadline that waits for a pipe to be readable and says whether it is.

    `Connection.poll` builds a selector each time, 15 microseconds; this one is built once.
    """
    if not hasattr(select, "poll"):  # Windows
        return lambda deadline: pipe.poll(max(0.0, deadline - time.monotonic()))
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return lambda deadline: bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


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
        self.single_observation_space = plan.observation_space
        self.single_action_space = plan.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._progress_file = ""
        self._closing: Any = None
        self._stuck = False
        self._local: EnvGroup | None = None
        self._workers: AsyncVectorEnv | None = None
        self._pollers: list[Any] = []
        if processes:
            self._start(plan)
        else:
            self._local = dataclasses.replace(plan, first=0, count=num_envs)()

    def _start(self, plan: GroupPlan) -> None:
        try:
            self._workers = self._make_workers(plan)
        except (EOFError, ConnectionError) as error:
            raise EnvironmentFault(
                f"{self.name}: a worker process ended while it started ({error!r}); a script that "
                "starts processes keeps its work under `if __name__ == '__main__':`",
                env=self.name,
                field="worker",
                lost=True,
            ) from error
        except OSError as error:
            raise UserError(
                f"{self.name}: its worker processes cannot be started: {system_error(error)}"
            ) from error
        self._pollers = [poller(pipe) for pipe in self._workers.parent_pipes]
        # If nobody closes them, an ending process would wait for its children for ever.
        ending = (self._workers, self._progress_file)
        self._closing = util.Finalize(self, _close_grouped, ending, exitpriority=10)

    def _make_workers(self, plan: GroupPlan) -> AsyncVectorEnv:
        # In the folder that is removed with this process, however it ends.
        handle, self._progress_file = tempfile.mkstemp("", "clew-progress-", util.get_temp_dir())
        os.close(handle)
        self._progress = np.memmap(self._progress_file, np.int32, "w+", shape=(self.processes,))
        self._progress[:] = NOBODY
        plans = [
            dataclasses.replace(
                plan, first=r.start, count=len(r), place=place, progress=self._progress_file
            )
            for place, r in enumerate(split_evenly(self.num_envs, self.processes))
        ]
        return AsyncVectorEnv(
            plans,
            shared_memory=True,
            copy=False,
            context=start_method(),
            autoreset_mode=AutoresetMode.DISABLED,
        )

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None, timeout: Any = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Opens an episode in every environment.

        Args:
            seed: a list of num_envs integers, or None to continue the present random streams.
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
        if self._workers is not None and self._stuck:
            close_workers(self._workers, 0.0, (KILL,))
        if self._closing is not None:
            self._closing()

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
                field="worker",
                lost=True,
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


def _close_grouped(workers: AsyncVectorEnv, progress_file: str) -> None:
    """Ends workers, which ignore SIGTERM, and removes the file of what they were at."""
    if not workers.closed:
        close_workers(workers, CLOSE_SECONDS, (KILL,))
    with contextlib.suppress(OSError):
        os.unlink(progress_file)


def _flat(info: dict[str, Any]) -> dict[str, Any]:
    """The failures of all groups in one list, and which trials went on in one array."""
    flat = {ENDED: info[ENDED].ravel()} if ENDED in info else {}
    found: Sequence[list[Failure] | None] = info.get("failures", ())
    failures = [failure for group in found if group for failure in group]
    return flat | {"failures": failures} if failures else flat


class VectorCalls:
    """The calls to a vector environment, with its errors as `EnvironmentFault`.

    Args:
        vector: the vector environment.
        name: what the errors call it.
    """

    def __init__(self, vector: VectorEnv, name: str):
        self.vector, self.name = vector, name
        self.grouped = isinstance(vector, GroupedVectorEnv)
        self._sent: Array | None = None
        self._hung = False

    def reset(self, seed: int | None, timeout: float | None) -> tuple[Any, Any]:
        """Observations and info; each environment with a seed of its own, derived from `seed`.

        A step that nobody has waited for is waited for first, and forgotten.
        """
        if self.waiting:
            self.wait(timeout)
        with self._faults_of("reset", timeout):
            if isinstance(self.vector, GroupedVectorEnv):
                answer = self.vector.reset(seed=self._seeds(seed), timeout=timeout)
            elif isinstance(self.vector, AsyncVectorEnv):
                self.vector.reset_async(seed=self._seeds(seed))
                answer = self.vector.reset_wait(timeout)
            else:
                answer = self.vector.reset(seed=self._seeds(seed))
        self._require_no_failures(answer[1])
        return answer

    def send(self, actions: Array) -> None:
        """Sends actions to environments in processes; keeps them for others."""
        self._sent = actions
        if isinstance(self.vector, GroupedVectorEnv | AsyncVectorEnv):
            with self._faults_of("step", None):
                self.vector.step_async(actions)

    def wait(self, timeout: float | None) -> tuple[Any, Any, Any, Any, Any]:
        """The answer to `send`."""
        sent, self._sent = self._sent, None
        with self._faults_of("step", timeout):
            if isinstance(self.vector, GroupedVectorEnv | AsyncVectorEnv):
                answer = self.vector.step_wait(timeout)
            else:
                answer: Any = self.vector.step(sent)
        self._require_no_failures(answer[4])
        return answer

    @property
    def waiting(self) -> bool:
        """Whether actions were sent and not waited for."""
        return self._sent is not None

    def close(self) -> None:
        """Closes the environments and ends their processes, within a few seconds at most."""
        inner = self.vector.unwrapped
        if not isinstance(inner, AsyncVectorEnv):
            close_quietly(self.vector, 2 * CLOSE_SECONDS)  # its own processes take their time
        elif not inner.closed:
            close_workers(inner, 0.0 if self._hung else CLOSE_SECONDS)

    @contextlib.contextmanager
    def _faults_of(self, call: str, timeout: float | None) -> Iterator[None]:
        """Whatever goes wrong in a call, "reset" or "step", as an `EnvironmentFault`."""
        try:
            yield
        except EnvironmentFault:
            raise
        except multiprocessing.TimeoutError as error:
            self._hung = True
            raise unanswered(self.vector, self.name, timeout) from error
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            raise failed(self.vector, self.name, call, traceback.format_exc()) from error

    def _require_no_failures(self, info: Any) -> None:
        if self.grouped and "failures" in info:
            raise failed(self.vector, self.name, "", "", info["failures"])

    def _seeds(self, seed: int | None) -> Any:
        """Gymnasium gives environment i of seed s what environment 0 of seed s + i has."""
        listed = GroupedVectorEnv | SyncVectorEnv | AsyncVectorEnv
        if seed is None or not isinstance(self.vector.unwrapped, listed):
            return seed
        return np.random.SeedSequence(seed).generate_state(self.vector.num_envs).tolist()


def failed(
    vector: VectorEnv, name: str, call: str, text: str, failures: Sequence[Failure] = ()
) -> EnvironmentFault:
    """The error for exceptions in environments.

    Args:
        vector: the vector environment; Gymnasium's own tells which of its workers failed.
        name: of the environment.
        call: "reset" or "step".
        text: the traceback.
        failures: what the groups of environments reported, in place of call and text.
    """
    if failures:
        first = failures[0]
        others = f" (and {len(failures) - 1} others)" if len(failures) > 1 else ""
        index, step, call, text = first.index, first.episode_step, first.call, first.text
        what = "gave no valid action mask" if call == MASK else f"raised in {call}"
        place = f"environment {index}{others} {what}, {step} steps into its episode"
    else:
        index, step = _dead_worker(vector), None
        which = "an environment" if index is None else f"environment {index}"
        place = f"{which} raised in {call}"
    lines = text.strip().splitlines()
    return EnvironmentFault(
        f"{name}: {place}: {lines[-1]}" + (f"\n{text}" if len(lines) > 1 else ""),
        env=name,
        index=index,
        episode_step=step,
        field=call,
        lost=not failures,
    )


def _dead_worker(vector: VectorEnv) -> int | None:
    inner = vector.unwrapped
    if not isinstance(inner, AsyncVectorEnv):
        return None
    gone = [i for i, pipe in enumerate(inner.parent_pipes) if pipe is None]
    gone += [i for i, process in enumerate(inner.processes) if not process.is_alive()]
    return gone[0] if gone else None


def unanswered(vector: VectorEnv, name: str, seconds: Any) -> EnvironmentHung:
    """The error for environments of Gymnasium's own `AsyncVectorEnv` that gave no answer."""
    assert isinstance(vector, AsyncVectorEnv)
    late = [i for i, pipe in enumerate(vector.parent_pipes) if pipe is None or not pipe.poll(0)]
    return EnvironmentHung(
        f"{name}: environments {', '.join(map(str, late))} gave no answer within {seconds:g} s",
        env=name,
        indices=late,
        field="worker",
        lost=True,
    )
