"""Workers on a running Ray cluster: one task per pack, one CPU per task."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clew.errors import UserError
from clew.lab.grid.jobs import Job
from clew.lab.grid.packs import Pack
from clew.lab.grid.worker import ProgressActor, run_task
from clew.lab.grid.workers import WORK, Event, Workers, one_thread
from clew.run import cluster


@dataclass
class _Task:
    """A pack that the cluster runs."""

    key: int
    pack: Pack
    worker: str = "a process of the cluster"


class RayWorkers(Workers):
    """The CPUs of a Ray cluster, each for one pack at a time with one compute thread.

    Ray retries nothing: the study decides what to do with a pack whose process or node has died.
    `size` follows nodes that join or leave.

    Args:
        address: as `clew.run.cluster.join` takes it.
        work: as `WORK`.

    Raises:
        UserError: if Ray is not installed, or no cluster answers at the address.
    """

    saves = False

    def __init__(self, address: str = "auto", work: str = WORK):
        self._ray, self._connected = cluster.join(address)
        self._work = work
        self._keys = itertools.count()
        self._running: dict[Any, _Task] = {}
        self._reports: dict[int, tuple[str, float]] = {}
        self._open = True
        environment = {"env_vars": cluster.environment(**one_thread())}
        self._task = self._ray.remote(num_cpus=1, max_retries=0, runtime_env=environment)(run_task)
        # It may be restarted on another node: what it forgets is not needed.
        actor = self._ray.remote(num_cpus=0, max_restarts=-1, runtime_env=environment)(
            ProgressActor
        )
        self._progress = actor.remote()
        self._reading = self._progress.read.remote()
        self._count()

    def submit(self, pack: Pack, job: Job) -> None:
        task = _Task(next(self._keys), pack)
        with _answering():
            ref = self._task.remote(self._work, json.dumps(job), task.key, self._progress)
        self._running[ref] = task

    def next(self, timeout: float) -> Event | None:
        tasks = {task.key: task for task in self._running.values()}
        while self._reports:
            key, (worker, share) = self._reports.popitem()
            if key in tasks:  # otherwise it ended before this was read
                tasks[key].worker = worker
                return Event("progress", tasks[key].pack, worker, share=share)
        with _answering():
            ready, _ = self._ray.wait([*self._running, self._reading], timeout=timeout)
            if ready and ready[0] != self._reading:
                return self._ended(ready[0])
            if ready:
                self._read(timeout)
        return None

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if not self._ray.is_initialized():
            return  # the connection was lost, and any call would wait for a new one
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._ray.kill(self._progress)
        if self._connected:
            self._ray.shutdown()

    def _ended(self, ref: Any) -> Event:
        task = self._running.pop(ref)
        exceptions = self._ray.exceptions
        try:
            message = json.loads(self._ray.get(ref))
        except (exceptions.RayTaskError, exceptions.RuntimeEnvSetupError) as error:
            why = str(error).strip().splitlines()[-1]
            raise UserError(f"{task.worker} could not start: {why}") from error
        except exceptions.RayError as error:
            why = str(error).strip().partition("\n")[0].partition(". ")[0]
            return Event("died", task.pack, task.worker, error=f"{task.worker} died ({why})")
        return Event(pack=task.pack, worker=task.worker, **message)

    def _read(self, timeout: float) -> None:
        """Reads the progress of all tasks, and requests it again."""
        try:
            self._reports |= self._ray.get(self._reading)
        except self._ray.exceptions.RayError:
            time.sleep(timeout)  # its node has died; it will be restarted
        self._reading = self._progress.read.remote()
        self._count()

    def _count(self) -> None:
        """Counts the CPUs; if there are none, one pack waits in the cluster until there are."""
        self.size = max(1, int(self._ray.cluster_resources().get("CPU", 0)))


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise UserError(
            f"the connection to the Ray cluster is lost ({error}); finished runs are saved; run "
            "the same command again when there is a cluster"
        ) from error
