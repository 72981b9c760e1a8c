"""The progress of a study while it runs."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from clew.errors import counted
from clew.lab.grid.study import Study
from clew.output import FailSafeOutput
from clew.run.progress import format_seconds


class Standing(NamedTuple):
    """The standing of a study."""

    finished: int
    """Cells with a result, including those of earlier sessions."""
    total: int
    """Cells of the study."""
    failed: int
    """Cells that failed in this session."""
    models: Mapping[str, tuple[int, int]]
    """Finished cells and all cells of every model."""
    working: Mapping[str, float]
    """Packs that are running, and the fraction of their training that is complete."""
    rate: float
    """Environment steps per second of this session, over all workers."""
    seconds: float
    """Seconds of this session."""
    seconds_left: float | None
    """Seconds to the end at this rate; None while unknown."""


class StudyProgress(Protocol):
    """A listener of a study. Every method is called on the thread that runs the study."""

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        """The study's folder and its standing, before anything else."""

    def report(self, standing: Standing) -> None:
        """About once a second."""

    def message(self, text: str) -> None:
        """A message for the user."""

    def close(self) -> None:
        """Called at the end, whether the study succeeded or not."""


class QuietStudy(StudyProgress):
    """A listener that does nothing."""


class StudyLines(StudyProgress):
    """Prints a line to standard error from time to time, on a terminal or not.

    Args:
        every: minimum seconds between two lines.
        stream: where to print; standard error by default.
    """

    def __init__(self, every: float = 30.0, stream: TextIO | None = None):
        self._every = every
        self._stream = stream
        self._next = 0.0
        self._last = (-1, -1)

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        parts = {"model": study.models, "setting": study.settings, "seed": study.seeds}
        shape = " x ".join(counted(len(names), noun) for noun, names in parts.items()) + " = "
        whole = len(study.cells()) == standing.total  # a sweep has many studies after each other
        self.message(
            f"{path}: {study.name}, {shape if whole else ''}{counted(standing.total, 'run')}, "
            f"{standing.finished} finished"
        )
        self._next = time.monotonic() + min(self._every, 5.0)

    def report(self, standing: Standing) -> None:
        """Prints a line if it is time for one, and always the last."""
        ended = standing.finished + standing.failed == standing.total
        counts = (standing.finished, standing.failed)
        if time.monotonic() < self._next and not (ended and counts != self._last):
            return
        self._next, self._last = time.monotonic() + self._every, counts
        self.message(format_standing(standing))

    def message(self, text: str) -> None:
        print(text, file=FailSafeOutput(self._stream or sys.stderr), flush=True)


def format_standing(standing: Standing) -> str:
    """One line: runs, failures, rate and time left; the current activity while there is no rate."""
    words = [f"{standing.finished}/{standing.total} runs"]
    if standing.failed:
        words.append(f"{standing.failed} failed")
    if standing.rate:
        words.append(f"{standing.rate:,.0f} steps/s")
    elif standing.working:
        words.append("starting and compiling")
    words.append(f"{format_seconds(standing.seconds)} so far")
    if standing.seconds_left is not None:
        words.append(f"{format_seconds(standing.seconds_left)} left")
    return "  ".join(words)
