"""Libraries in their own processes and environment, controlled by lines of JSON."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from clew.errors import UserError
from comparison.families import WORKERS

WORKERS_FOLDER = Path(__file__).resolve().parents[1]
"""The folder of the programs that run libraries."""
ROOT = WORKERS_FOLDER.parents[1]
FOLDER = ".venv-peers"
"""The other libraries' virtual environment in the repository, built from a lock file."""

ENVIRONMENT = {
    # The comparison is between processors, even if one side could use a GPU.
    "JAX_PLATFORMS": "cpu",
    # Memory freed in threads' own arenas is never returned to the system, so a call could reuse it
    # and its growth would not be measured.
    "MALLOC_ARENA_MAX": "1",
}


class WorkerFailed(Exception):
    """A worker ended, or could not answer a request."""


class Endpoint(Protocol):
    """An object that answers the requests that `serve` lists."""

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer.

        Raises:
            WorkerFailed: with the reason.
        """
        ...


class Library(Protocol):
    """A place where subjects run."""

    def of(self, subject: str) -> Endpoint:
        """The object that answers for a subject."""
        ...


def peers_python() -> Path:
    """The interpreter of the other libraries' environment, which is built if it is missing.

    Raises:
        UserError: if it cannot be built; the reason was printed.
    """
    folder = ROOT / FOLDER
    if not (folder / ".installed").exists():
        print(f"building {FOLDER}, once: about 2 minutes and 2 GB", file=sys.stderr)
        command = ["sh", "tools/make_peers.sh", FOLDER, sys.executable]
        if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode:
            raise UserError(
                f"the other libraries could not be installed into {FOLDER}; the reason is above. "
                "`make bench-peers` tries again"
            )
    return folder / "bin" / "python"


class Worker:
    """One process that runs a command, from its first request until it is closed."""

    def __init__(self, command: list[str]):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # Without the large pages that clew's commands ask for: other libraries' programs do not
            # use them, and memory would be measured in steps of 2 MB.
            env={n: v for n, v in os.environ.items() if n != "GLIBC_TUNABLES"} | ENVIRONMENT,
        )

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            WorkerFailed: if it reports an error, or has ended.
        """
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerFailed(f"ended with code {self._process.wait()}: {self._last_line()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin and self._process.stdout
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self._process.wait()
        self._log.close()

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "no output"


class Workers:
    """All libraries, each in its own process, which is started by the first request to it.

    PyTorch's number of threads belongs to a process, and each of its subjects chooses its own.
    """

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

    def of(self, subject: str) -> Endpoint:
        """The process that runs a subject, "library.kind"."""
        library = subject.split(".")[0]
        if library not in self._running:
            python = Path(sys.executable) if library == "clew" else peers_python()
            program = WORKERS_FOLDER / WORKERS[library]
            self._running[library] = Worker([str(python), str(program)])
        return self._running[library]
