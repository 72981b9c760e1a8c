"""Workers of a study: local processes, or anything else with the same interface."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from clew.errors import UserError, require_at_least
from clew.files import open_to_append
from clew.lab.grid.jobs import Job
from clew.lab.grid.packs import Pack
from clew.lab.grid.results import Row
from clew.lab.grid.worker import ACTIVE
from clew.run.machine import THREADS, available_cores

WORK = "clew.lab.grid.jobs:run_job"
"""The function from a job to rows that workers call, by "package.module:function"."""
LOG_TAIL = 600
"""Characters of a dead worker's log that the error quotes."""


class Event(NamedTuple):
    """The progress of a pack, or how it ended."""

    kind: str
    """"progress", "rows", "failed" (it raised an error) or "died" (so did its worker)."""
    pack: Pack
    worker: str
    """Name of the worker."""
    share: float = 0.0
    """Fraction of the training that is complete, if "progress"."""
    rows: Sequence[Row] = ()
    """The results, if "rows"."""
    error: str = ""
    """What went wrong, if "failed" or "died"."""
    begun: bool = False
    """Whether the training had begun, if "failed"."""


class Workers(Protocol):
    """Workers on packs, several at a time. Every method is called on one thread."""

    size: int
    """Number of packs that can run in parallel."""
    saves: bool
    """Whether they see the study's folder, so that a pack can be saved while it is trained."""

    def submit(self, pack: Pack, job: Job) -> None:
        """Starts a pack; never called while `size` packs are running."""

    def next(self, timeout: float) -> Event | None:
        """The next event, None if there was none within `timeout` seconds."""

    def close(self) -> None:
        """Abandons the running packs, and ends the workers."""


@dataclass
class _Process:
    """A worker process and the pack that it runs."""

    name: str
    popen: "subprocess.Popen[str]"
    log: Path
    printed: int
    """Bytes of the log that were written before it started."""
    pack: Pack | None = None
    ready: bool = False
    stdin: IO[str] = field(init=False)

    def __post_init__(self) -> None:
        assert self.popen.stdin is not None
        self.stdin = self.popen.stdin


class LocalWorkers(Workers):
    """Processes on this machine, each with one compute thread.

    A process that has died is replaced when there is work for it. All of them end when this process
    does, even by a kill.

    Args:
        logs: folder for the workers' output.
        size: number of processes; by default the number of cores that this process may use.
        work: as `WORK`.
        whole: every process has all cores, all threads and any accelerator, and there is one
            process unless `size` says otherwise.

    Raises:
        UserError: for an impossible number.
    """

    saves = True

    def __init__(
        self, logs: Path, size: int | None = None, work: str = WORK, *, whole: bool = False
    ):
        self._variables = {ACTIVE: "1"} if whole else one_thread()
        self.size = (1 if whole else available_cores()) if size is None else size
        require_at_least("workers", self.size, 1)
        self._logs = logs
        self._work = work
        self._slots: list[_Process | None] = [None] * self.size
        self._lines: queue.Queue[tuple[_Process, str]] = queue.Queue()
        logs.mkdir(parents=True, exist_ok=True)

    def submit(self, pack: Pack, job: Job) -> None:
        free = (n for n, slot in enumerate(self._slots) if slot is None or slot.pack is None)
        index = next(free)
        slot = self._slots[index]
        if slot is None or slot.popen.poll() is not None:
            slot = self._slots[index] = self._start(index)
        slot.pack = pack
        with contextlib.suppress(OSError):  # it has just died, as the end of its output will show
            slot.stdin.write(json.dumps(job) + "\n")
            slot.stdin.flush()

    def next(self, timeout: float) -> Event | None:
        try:
            process, line = self._lines.get(timeout=timeout)
        except queue.Empty:
            return None
        if not line:
            return self._died(process)
        message = json.loads(line)
        if message["kind"] == "ready":
            process.ready = True
            return None
        assert process.pack is not None
        event = Event(pack=process.pack, worker=process.name, **message)
        if event.kind != "progress":
            process.pack = None
        return event

    def close(self) -> None:
        for slot in self._slots:
            if slot is not None:
                slot.popen.kill()
                slot.popen.wait()
                with contextlib.suppress(OSError):
                    slot.stdin.close()

    def _start(self, index: int) -> _Process:
        log = self._logs / f"worker-{index}.log"
        here = [path or os.getcwd() for path in sys.path]
        python_path = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(here))}
        with open(open_to_append(log), "ab") as file:
            printed = file.tell()
            popen = subprocess.Popen(
                [sys.executable, "-c", _BEGIN, self._work],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
                env=os.environ | self._variables | python_path,
            )
        process = _Process(f"worker {index} (process {popen.pid})", popen, log, printed)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: _Process) -> None:
        assert process.popen.stdout is not None
        with process.popen.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # otherwise a kill cut it short
                    self._lines.put((process, line))
        self._lines.put((process, ""))

    def _died(self, process: _Process) -> Event | None:
        code = process.popen.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        pack, process.pack = process.pack, None
        if pack is None:
            return None
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        tail = process.log.read_bytes()[process.printed :].decode(errors="replace")
        tail = tail[-LOG_TAIL:].strip()
        if not process.ready and code >= 0:
            raise UserError(f"{process.name} could not start ({how}): {tail}")
        last = tail.splitlines()[-1] if tail else ""
        error = f"{process.name} died ({how})" + (f", its last words: {last}" if last else "")
        return Event("died", pack, process.name, error=error)


_BEGIN = """
import sys
from clew.lab.grid.worker import main
main(sys.argv[1])
"""


def one_thread() -> dict[str, str]:
    """Environment variables of every worker, to be set before it imports JAX."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    return {
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu",
        "XLA_FLAGS": flags.strip(),
        "OMP_NUM_THREADS": "1",
        THREADS: "1",
        ACTIVE: "1",
    }
