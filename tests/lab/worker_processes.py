"""The worker processes of a study, found by their command lines."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.lab.grid import Standing
from small_study import Watch


def workers_of(parent: int) -> list[int]:
    """The workers of a study's process."""
    found = []
    for process, above, command in processes():
        if above == parent and "clew.lab.grid.worker" in command:
            found.append(process)
    return found


class KillWorkers(Watch):
    """Kills the workers, once, when nearly half of a training is done."""

    def __init__(self) -> None:
        super().__init__()
        self.killed: list[int] = []
        self.after: list[float] = []
        """The progress of trainings from then on."""

    def report(self, standing: Standing) -> None:
        """Kills."""
        shares = list(standing.working.values())
        if self.killed:
            self.after += shares
        elif shares and max(shares) > 0.4:
            self.killed += workers_of(os.getpid())
            for process in self.killed:
                os.kill(process, signal.SIGKILL)


def with_paths(**more: str) -> dict[str, str]:
    """The environment of a script that can import the same modules as this process."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | more


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and command line of every existing process; skips a test without /proc."""
    if not Path("/proc").exists():
        pytest.skip("needs /proc")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            yield int(path.name), parent, (path / "cmdline").read_text()
        except OSError:
            continue
