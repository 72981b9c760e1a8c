"""The progress of a training run while it runs."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from clew.run.config import TrainConfig
from clew.run.output import FailSafeOutput


class Report(NamedTuple):
    """Where a run stands."""

    steps: int
    """Environment steps made by each seed."""
    total_steps: int
    """Environment steps that each seed will make."""
    rate: float
    """Environment steps per second, over all seeds, recently."""
    seconds: float
    """Seconds of training, those before a resumption included."""
    seconds_left: float
    """Seconds to the end at this rate."""
    row: dict[str, Any] | None
    """The row of metrics just written, None between rows."""


Callback = Callable[[Report], bool | None]
"""What `clew.train(callbacks=[...])` takes: called after every call of the compiled program, about
once a second, on the thread that trains. True ends the run after this call, saved and with its
summary; a resumed run goes on from there."""


class Progress(Protocol):
    """A listener of a run. Every method is called on the thread that trains."""

    def start(self, path: Path, config: TrainConfig) -> None:
        """The run's folder and settings, before anything else."""

    def phase(self, name: str) -> None:
        """What begins: "compiling", "training" or "saving"."""

    def report(self, report: Report) -> None:
        """After every call of the compiled program, about once a second."""

    def message(self, text: str) -> None:
        """Something that the user should read."""

    def close(self) -> None:
        """Nothing more will come, whether the run ended well or not."""


class Quiet:
    """A listener that does nothing."""

    def start(self, path: Path, config: TrainConfig) -> None:
        """Does nothing."""

    def phase(self, name: str) -> None:
        """Does nothing."""

    def report(self, report: Report) -> None:
        """Does nothing."""

    def message(self, text: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class Lines:
    """A line on standard error every few seconds, on a terminal or not.

    Args:
        every: least seconds between two lines; the first comes with the first updates.
        stream: where to, standard error by default.
    """

    def __init__(self, every: float = 5.0, stream: TextIO | None = None):
        self._every = every
        self._stream = stream
        self._next = 0.0
        self._row: dict[str, Any] = {}
        self._compiling = CompileTimer()

    def start(self, path: Path, config: TrainConfig) -> None:
        """Says what runs where."""
        seeds = f", {config.seeds} seeds" if config.seeds > 1 else ""
        self._print(f"{path}: {config.memory} on {config.env}{seeds}, {config.steps} steps")

    def phase(self, name: str) -> None:
        """Says that the program is being compiled, which takes a while, and then how long."""
        said = self._compiling.enter(name)
        if said:
            self._print(said)

    def report(self, report: Report) -> None:
        """Prints a line if it is time for one, and always the last."""
        self._row = report.row or self._row
        finished = report.steps >= report.total_steps
        if time.monotonic() < self._next and not finished:
            return
        self._next = time.monotonic() + self._every
        self._print(format_report(report, self._row))

    def message(self, text: str) -> None:
        """Prints it."""
        self._print(text)

    def close(self) -> None:
        """Does nothing."""

    def _print(self, text: str) -> None:
        print(text, file=FailSafeOutput(self._stream or sys.stderr), flush=True)


def format_report(report: Report, row: dict[str, Any]) -> str:
    """One line: steps, rate, time left, and return and success as means over seeds."""
    share = report.steps / report.total_steps
    words = [
        f"{report.steps}/{report.total_steps} steps ({share:.0%})",
        f"{report.rate:,.0f} steps/s",
        f"{format_seconds(report.seconds_left)} left",
    ]
    return "  ".join(words + format_scores(row))


def format_scores(row: dict[str, Any]) -> list[str]:
    """Return and success of a row of metrics, where it has them, as means over seeds."""
    words = []
    for name in ("return", "success"):
        known = [value for value in row.get(name, []) if value is not None]
        if known:
            words.append(f"{name} {sum(known) / len(known):.2f}")
    return words


class CompileTimer:
    """Says when compiling begins, and when it is over, how long it took."""

    def __init__(self) -> None:
        self._since: float | None = None

    def enter(self, phase: str) -> str:
        """What a listener says when a phase begins, "" for nothing."""
        now, since = time.monotonic(), self._since
        if phase == "compiling":
            self._since = now if since is None else since
            return "compiling" if since is None else ""
        self._since = None
        return "" if since is None else f"compiled in {format_seconds(now - since)}"


def format_seconds(seconds: float) -> str:
    """Seconds as 42s, 3m05s or 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
