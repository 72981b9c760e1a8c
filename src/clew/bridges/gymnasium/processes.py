"""Worker processes: how they are made, which signals they ignore, and when they end."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import connection, resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from clew.errors import StoppedAtOnce

CLOSE_SECONDS = 5.0
"""How long environments and their processes may take to close."""
LOST = (EOFError, OSError)
"""Exceptions of a pipe whose other end is gone."""
FORK_SERVER = "clew.bridges.gymnasium.fork_server"


class Closeable(Protocol):
    """An environment, or a vector environment."""

    def close(self) -> None:
        """Closes it."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an exception in an environment is the user's Ctrl-C, and not its own fault.

    If a command or a training handles the signal, and in a worker, which ignores it, Ctrl-C raises
    only `StoppedAtOnce`, so any other KeyboardInterrupt comes from the environment.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return isinstance(error, KeyboardInterrupt)
    return isinstance(error, StoppedAtOnce)


@contextlib.contextmanager
def os_exit_raises() -> Iterator[None]:
    """Makes `os._exit` raise SystemExit in this process, as `sys.exit` does.

    Otherwise an environment that ends its process would end the command, perhaps with exit code 0
    as after success. Processes that are forked meanwhile end as usual.
    """
    here, leave = os.getpid(), os._exit

    def stay(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        raise SystemExit(status)

    os._exit = stay
    try:
        yield
    finally:
        os._exit = leave


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in code that takes longer, also in code that waits forever.

    This works on the main thread of Unix, but not elsewhere or within compiled code.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def close_quietly(env: Closeable, seconds: float = CLOSE_SECONDS) -> None:
    """Closes an environment that is no longer needed, and ignores its errors."""
    try:
        with time_limit(seconds), os_exit_raises():
            env.close()
    except BaseException as error:
        if is_ctrl_c(error):
            raise


def end_processes(
    processes: Sequence[Any], pipes: Sequence[Any], patience: float, goodbye: Any = None
) -> None:
    """Ends processes within little more than `patience` seconds, and closes the pipes to them.

    Pipes that are already closed are None; `goodbye` is the message that asks a process to end.
    """
    deadline = time.monotonic() + patience
    for pipe in pipes if patience else ():
        with contextlib.suppress(*LOST, AttributeError):
            pipe.send(goodbye)
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
    for process in late:
        process.join(1.0)
    for pipe in pipes:
        if pipe is not None:
            pipe.close()


def end_forks() -> int:
    """Ends forks of this process that an environment left running, and returns their number.

    A fork keeps the files of this process open, so a reader of its output would wait forever.
    Other programs that were started are left alone. Without /proc nothing is found.
    """
    pids = [child.pid or 0 for child in multiprocessing.active_children() if not child.daemon]
    own = _command_line(os.getpid())
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            forked = [int(pid) for pid in task.read_text().split() if int(pid) not in pids]
            pids += [pid for pid in forked if own and _command_line(pid) == own]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def stopping_signals() -> list[signal.Signals]:
    """The signals that stop a training: Ctrl-C, from a scheduler, from a terminal that closes.

    SIGHUP is left out if it is ignored, as with `nohup`, or does not exist (Windows).
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    known = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    ignored = known[2:] and signal.getsignal(known[2]) is signal.SIG_IGN
    return known[:2] if ignored else known


def leave_stopping_to_parent() -> None:
    """Makes this process ignore the signals that stop a training.

    A terminal, a scheduler (Slurm) or a container sends them to every process of a group; the
    learner's process decides what to do, and ends its workers after it has saved.
    """
    for number in stopping_signals():
        signal.signal(number, signal.SIG_IGN)


def end_with_parent() -> None:
    """Makes this process end with the one that it works for, however that ends.

    This works even while an environment hangs: on Linux the kernel ends it, without Python.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import fcntl  # optional: Windows does not have it

        # The end of the parent closes a pipe, and its reader gets SIGKILL, which needs no Python.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
        if connection.wait([parent.sentinel], 0):
            os._exit(1)  # the parent has already ended
        return
    threading.Thread(target=_wait_for_end, args=(parent.sentinel,), daemon=True).start()


def _wait_for_end(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def require_descriptors(processes: int) -> None:
    """Checks that enough file descriptors are left to start this number of worker processes.

    If they run out in the middle of a request for a process, the fork server ends, and later
    requests fail too. A worker takes three of its parent's descriptors; the fork server and the
    shared memory take about ten.

    Raises:
        OSError: too many files are open.
    """
    taken: list[int] = []
    try:
        for _ in range(2 * processes + 8):
            taken.extend(os.pipe())
    finally:
        for number in taken:
            os.close(number)


def start_method(preload: Sequence[str] = ("clew.bridges.gymnasium.group",)) -> str:
    """How worker processes are made: "forkserver" on Linux, elsewhere "spawn".

    Never "fork": JAX runs threads, and a process forked while one of them holds a lock (for example
    of the allocator) waits forever for a thread that it has no copy of. A fork server is a fresh
    process without JAX threads. It imports this package once and its forks share that memory, so a
    worker starts in milliseconds, while a spawned one imports everything again. Windows has no fork
    server, and on macOS a fork of any kind may crash in the system's libraries, on which
    jaxlib and whatever draws rely; Python's own default there is "spawn".

    Args:
        preload: modules that the fork server imports; no effect once it runs.
    """
    if os.name == "posix":
        _start_tracker()
    if sys.platform != "linux":
        return "spawn"
    multiprocessing.set_forkserver_preload([FORK_SERVER, *preload])
    return "forkserver"


def _start_tracker() -> None:
    """Starts multiprocessing's tracker of semaphores and shared memory, if it is not running.

    It survives SIGINT and SIGTERM to a whole group by itself, and SIGHUP because that is blocked
    during the start. Without it, or with a restarted one, tracebacks would be shown.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
