"""A library in a process of its own, asked by lines of JSON."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from clew.lab.bench.peers.environment import peers_python, workers_folder
from clew.lab.bench.peers.families import WORKERS

ENVIRONMENT = {
    # The comparison is one of processors, also where one side could have more.
    "JAX_PLATFORMS": "cpu",
    # What threads' own arenas have freed is never handed back, and so would not be asked for again
    # when a call's memory is measured.
    "MALLOC_ARENA_MAX": "1",
}


class WorkerFailed(Exception):
    """A worker ended, or could not do what it was asked for."""


class Asked(Protocol):
    """Whoever answers the questions of `benchmarks/peers/serve.py`."""

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer.

        Raises:
            WorkerFailed: with the reason.
        """
        ...


class Worker:
    """One process, from its first question until it is closed.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: list[str]):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # Not the large pages that clew's commands ask for: other libraries' programs do not,
            # and memory would be measured in steps of 2 MB.
            env={n: v for n, v in os.environ.items() if n != "GLIBC_TUNABLES"} | ENVIRONMENT,
        )

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            WorkerFailed: if it says that it cannot, or has ended.
        """
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerFailed(f"ended with code {self._process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def close(self) -> None:
        """Lets the process end."""
        assert self._process.stdin and self._process.stdout
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self._process.wait()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Workers:
    """All libraries; a process is started by the first question to it."""

    def __init__(self) -> None:
        self._running: dict[str, Worker] = {}

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._running.values():
            worker.close()

    def of(self, subject: str) -> Asked:
        """Whoever runs a subject, "library.kind"."""
        library = subject.split(".")[0]
        program = WORKERS[library]
        if program not in self._running:
            python = Path(sys.executable) if library == "clew" else peers_python()
            self._running[program] = Worker([str(python), str(workers_folder() / program)])
        return self._running[program]
