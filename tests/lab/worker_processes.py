"""The worker processes of a study, found by what they run."""

from collections.abc import Iterator
from pathlib import Path


def workers_of(parent: int) -> list[int]:
    """The workers of a study's process."""
    found = []
    for process, above, command in processes():
        if above == parent and "clew.lab.grid.worker" in command:
            found.append(process)
    return found


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and command line of every process that is there."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            yield int(path.name), parent, (path / "cmdline").read_text()
        except OSError:
            continue
