"""Worker processes of Gymnasium's vector environments: how they start, wait and end."""

import contextlib
import multiprocessing
import select
import time
from collections.abc import Callable
from typing import Any

from gymnasium.vector import AsyncVectorEnv

CLOSE_SECONDS = 5.0
LOST = (EOFError, ConnectionError, OSError)
"""What a pipe raises whose other end is gone."""


def start_method() -> str:
    """How worker processes are made: "forkserver", or "spawn" where there is none (Windows).

    Never "fork": JAX runs threads, and a process forked while one of them holds a lock (of the
    allocator, say) waits for ever for a thread that it has no copy of. A fork server is a fresh
    process without threads of JAX, started before it could have any; it imports this package once
    and its forks share that memory, so a worker starts in milliseconds where spawning one imports
    everything again.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.set_forkserver_preload(
        ["clew.bridges.gymnasium.group"]
    )  # of no effect once it runs
    return "forkserver"


def close_workers(workers: AsyncVectorEnv, patience: float) -> None:
    """Ends the processes of a vector environment within `patience` seconds and a little more.

    Gymnasium's own `close` waits for ever for a worker that hangs.
    """
    deadline = time.monotonic() + patience
    for pipe in workers.parent_pipes if patience else ():
        with contextlib.suppress(*LOST, AttributeError):
            pipe.send(("close", None))
    for process in workers.processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for end in (multiprocessing.Process.terminate, multiprocessing.Process.kill):
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
