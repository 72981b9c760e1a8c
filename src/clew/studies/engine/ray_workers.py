"""Workers on a Ray cluster that is there already: one task a pack, one CPU a task."""

import contextlib
import importlib
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clew.errors import UserError
from clew.studies.engine.packs import Pack
from clew.studies.engine.ray_task import Notebook, work_off
from clew.studies.engine.work import Job
from clew.studies.engine.workers import WORK, Event, one_thread

CONNECT_SECONDS = 20.0
"""How long a cluster has to answer."""
HOW_TO_START = "`ray start --head` starts a cluster on this machine"


@dataclass
class _Task:
    """A pack that the cluster has been given."""

    key: int
    pack: Pack
    worker: str = "a process of the cluster"


class RayWorkers:
    """The CPUs of a Ray cluster, each for one pack at a time with one thread of computation.

    Ray tries nothing again: what becomes of a pack whose process or node has died is for the
    study to decide. `size` follows nodes that join or leave.

    Args:
        address: "auto" for the cluster of this machine or of RAY_ADDRESS, "host:port" from a
            machine of the cluster, "ray://host:port" from any other. A process that is connected
            to Ray already needs "auto", and stays connected in the end.
        work: what makes rows of a job, "package.module:function" as `clew.studies.engine.work`'s
            `run_job`.

    Raises:
        UserError: if Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, address: str = "auto", work: str = WORK):
        self._ray = _import_ray()
        self._work = work
        self._keys = itertools.count()
        self._running: dict[Any, _Task] = {}
        self._news: dict[int, tuple[str, float]] = {}
        self._open = True
        self._connected = not self._ray.is_initialized()
        if self._connected:
            _connect(self._ray, address)
        elif address != "auto":
            raise UserError(
                f"this process is connected to Ray already: take 'auto', not {address!r}, or call "
                "ray.shutdown() before"
            )
        environment = {"env_vars": _environment()}
        self._task = self._ray.remote(num_cpus=1, max_retries=0, runtime_env=environment)(work_off)
        # It may be begun again on another node, because nobody misses what it forgets.
        notebook = self._ray.remote(num_cpus=0, max_restarts=-1, runtime_env=environment)(Notebook)
        self._notebook = notebook.remote()
        self._reading = self._notebook.read.remote()
        self._count()

    def submit(self, pack: Pack, job: Job) -> None:
        """Hands the pack to the cluster, which runs it where a CPU is free."""
        task = _Task(next(self._keys), pack)
        with _answering():
            ref = self._task.remote(self._work, json.dumps(job), task.key, self._notebook)
        self._running[ref] = task

    def next(self, timeout: float) -> Event | None:
        """The next event of any task."""
        tasks = {task.key: task for task in self._running.values()}
        while self._news:
            key, (worker, share) = self._news.popitem()
            if key in tasks:  # else it has ended, before this could be told
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
        """Kills what is running, and disconnects if it was this that connected."""
        if not self._open:
            return
        self._open = False
        if not self._ray.is_initialized():
            return  # the connection was lost, and any call would wait for another
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._ray.kill(self._notebook)
        if self._connected:
            self._ray.shutdown()

    def _ended(self, ref: Any) -> Event:
        task = self._running.pop(ref)
        exceptions = self._ray.exceptions
        try:
            told = json.loads(self._ray.get(ref))
        except (exceptions.RayTaskError, exceptions.RuntimeEnvSetupError) as error:
            why = str(error).strip().splitlines()[-1]
            raise UserError(f"{task.worker} could not start: {why}") from error
        except exceptions.RayError as error:
            why = str(error).strip().partition("\n")[0].partition(". ")[0]
            return Event("died", task.pack, task.worker, error=f"{task.worker} died ({why})")
        if told["event"] == "rows":
            return Event("rows", task.pack, task.worker, rows=tuple(told["rows"]))
        return Event(
            "failed", task.pack, task.worker, error=told["error"], diverged=told["diverged"]
        )

    def _read(self, timeout: float) -> None:
        """Takes what the notebook has to tell, and asks it again."""
        try:
            self._news |= self._ray.get(self._reading)
        except self._ray.exceptions.RayError:
            time.sleep(timeout)  # its node has died; it will be there again
        self._reading = self._notebook.read.remote()
        self._count()

    def _count(self) -> None:
        """Counts the CPUs; without any, one pack waits in the cluster until there are."""
        self.size = max(1, int(self._ray.cluster_resources().get("CPU", 0)))


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise UserError(
            f"the connection to the Ray cluster is lost ({error}); finished cells are saved, start "
            "the same again when there is a cluster"
        ) from error


def _import_ray() -> Any:
    # Before the import, which reads it. What a study does is nobody else's business.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UserError(
            "a study on a cluster needs Ray, which is not installed: pip install 'clew[ray]'"
        ) from error


# Ray may try for minutes, ending the process when it gives up, so that another one goes ahead.
_TRY = """
import logging, sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
except Exception as error:
    sys.exit(print(" ".join(str(error).split())) or 1)
"""


def _connect(ray: Any, address: str) -> None:
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if address != "auto":
        _knock(address)
    try:
        run = subprocess.run(
            [sys.executable, "-c", _TRY, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=CONNECT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        why = f"no answer within {CONNECT_SECONDS:.0f} seconds"
        raise _not_found(address, why) from error
    if run.returncode:
        raise _not_found(address, run.stdout.strip() or f"exit code {run.returncode}")
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)


def _knock(address: str) -> None:
    """Finds out at once whether anybody listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16) or "/" in host:
        raise UserError(f"expected auto, HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise _not_found(address, str(error)) from error


def _not_found(address: str, why: str) -> UserError:
    return UserError(f"no Ray cluster at {address!r}: {why} ({HOW_TO_START})")


def _environment() -> dict[str, str]:
    """A task's variables: this process's settings of JAX, one thread, its places to import from."""
    settings = {k: v for k, v in os.environ.items() if k.startswith(("JAX_", "XLA_", "CLEW_"))}
    # A node has a Python and packages of its own, at the same places perhaps.
    own = tuple(os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix))
    here = [path for path in map(os.path.abspath, sys.path) if not path.startswith(own)]
    return {
        **settings,
        **one_thread(),
        # A task has no core to itself, so JAX is told that there is one.
        "NPROC": "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*here, os.getcwd()])),
    }
