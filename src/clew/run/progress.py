"""Listeners of a run while it trains: lines on a terminal, and loggers."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from clew.output import FailSafeOutput
from clew.run.config import TrainConfig
from clew.run.loggers import Logger, make_logger
from clew.run.metrics import read_metrics
from clew.run.names import EVALUATED

LINE_SECONDS = 5.0
"""Least seconds between two lines about the progress."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a logger, which may have many rows to send."""


class Report(NamedTuple):
    """The progress of a run."""

    steps: int
    """Environment steps made by each seed."""
    total_steps: int
    """Environment steps that each seed will make."""
    rate: float
    """Recent environment steps per second, over all seeds."""
    seconds: float
    """Seconds of training, including those before a resumption."""
    seconds_left: float
    """Seconds to the end at this rate."""
    row: dict[str, Any] | None
    """The row of metrics that was just written; None between rows."""


Callback = Callable[[Report], bool | None]
"""A function for `clew.train(callbacks=[...])`, called after every call of the compiled program,
about once a second, on the training thread. If it returns True, the run ends after this call, saved
and with a summary; it can be resumed from there."""


class Progress(Protocol):
    """A listener of a run. Every method is called on the training thread."""

    def start(self, path: Path, config: TrainConfig) -> None:
        """Called first, with the run's folder and settings."""

    def phase(self, name: str) -> None:
        """Called when a phase begins: "compiling", "training", "evaluating" or "saving"."""

    def report(self, report: Report) -> None:
        """Called after every call of the compiled program, about once a second."""

    def message(self, text: str) -> None:
        """Called with a text for the user."""

    def close(self) -> None:
        """Called last, also if the run failed."""


class Quiet(Progress):
    """A listener that does nothing: it has the empty methods of `Progress`."""


class Lines(Progress):
    """A line on standard error every few seconds, on a terminal or not.

    Args:
        every: least seconds between two lines; the first one comes with the first updates.
        stream: the stream to write to, by default standard error.
    """

    def __init__(self, every: float = LINE_SECONDS, stream: TextIO | None = None):
        self._every = every
        self._stream = stream
        self._next = 0.0
        self._row: dict[str, Any] = {}
        self._compiling = CompileTimer()

    def start(self, path: Path, config: TrainConfig) -> None:
        seeds = f", {config.seeds} seeds" if config.seeds > 1 else ""
        self.message(f"{path}: {config.memory} on {config.env}{seeds}, {config.steps} steps")

    def phase(self, name: str) -> None:
        """Prints that the program is being compiled, and afterwards how long that took."""
        if said := self._compiling.enter(name):
            self.message(said)

    def report(self, report: Report) -> None:
        """Prints a line if it is due, and always the last one."""
        self._row |= report.row or {}
        finished = report.steps >= report.total_steps
        if time.monotonic() < self._next and not finished:
            return
        self._next = time.monotonic() + self._every
        words = [
            f"{report.steps}/{report.total_steps} steps ({report.steps / report.total_steps:.0%})",
            f"{report.rate:,.0f} steps/s",
            f"{format_seconds(report.seconds_left)} left",
        ]
        self.message("  ".join(words + format_scores(self._row)))

    def message(self, text: str) -> None:
        print(text, file=FailSafeOutput(self._stream or sys.stderr), flush=True)


def format_scores(row: dict[str, Any]) -> list[str]:
    """Return and success in a row of metrics, also of its evaluation, as means over seeds."""
    words = []
    for name in ("return", "success", f"{EVALUATED}return", f"{EVALUATED}success"):
        known = [value for value in row.get(name, []) if value is not None]
        if known:
            words.append(f"{name.replace('.', ' ')} {sum(known) / len(known):.2f}")
    return words


class EpisodeLines:
    """A line every few seconds about episodes: how many were played, their rate, the time left."""

    def __init__(self, total: int, log: Callable[[str], None]):
        self._total, self._log = total, log
        self._ended, self._began = 0, time.monotonic()
        self._next = self._began + LINE_SECONDS

    def __call__(self, count: int) -> None:
        """Adds `count` finished episodes; environments side by side may play a few too many."""
        self._ended = min(self._ended + count, self._total)
        now = time.monotonic()
        if now < self._next or self._ended == self._total:
            return
        self._next, rate = now + LINE_SECONDS, self._ended / (now - self._began)
        left = format_seconds((self._total - self._ended) / rate)
        share = f"{self._ended:,}/{self._total:,} episodes ({self._ended / self._total:.0%})"
        self._log(f"{share}  {rate:,.1f} episodes/s  {left} left")


class CompileTimer:
    """Texts about the beginning and the duration of compiling."""

    def __init__(self) -> None:
        self._since: float | None = None

    def enter(self, phase: str) -> str:
        """The text to print when a phase begins, or ""."""
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


class Background:
    """A logger on its own thread, so that the run never waits for it.

    After its first failure a logger is no longer called. It has a thread because a network that is
    down would cost minutes, and a file system that hangs would stop the run.
    """

    def __init__(self, name: str, logger: Logger):
        self.name = name
        self._logger = logger
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failure = ""
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)
        self._thread.start()

    def start(self, path: Path, config: TrainConfig, rows: Sequence[dict[str, Any]]) -> None:
        """As `Logger.start`, but asynchronously."""
        self._calls.put(lambda: self._logger.start(path, config, rows))

    def row(self, row: dict[str, Any]) -> None:
        """As `Logger.row`, but asynchronously."""
        self._calls.put(lambda: self._logger.row(row))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Waits until everything is logged, for at most `seconds`."""
        self._calls.put(self._logger.close)
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive() and not self._failure:
            self._failure = f"has not finished within {seconds:.0f} s"

    def failure(self) -> str:
        """The failure, returned only once; empty if there is none."""
        failure, self._failure = self._failure, ""
        return failure

    def _work(self) -> None:
        failed = False
        while (call := self._calls.get()) is not None:
            if failed and call != self._logger.close:
                continue
            try:
                call()
            except Exception as error:
                if not failed:
                    said = " ".join(str(error).split()) or "no reason given"
                    self._failure = f"failed: {type(error).__name__}: {said}"
                failed = True


class Logged(Progress):
    """A listener that passes everything on to another one, and every row to loggers.

    Loggers start with the training, after metrics.jsonl was cut back to the checkpoint. The other
    listener gets a message about each that fails.
    """

    def __init__(self, listener: Progress, loggers: dict[str, Logger]):
        self._listener = listener
        self._loggers = loggers
        self._running: list[Background] = []
        self._run: tuple[Path, Any] | None = None

    def start(self, path: Path, config: TrainConfig) -> None:
        """Keeps folder and settings for the loggers."""
        self._run = (path.absolute(), config)
        self._listener.start(path, config)

    def phase(self, name: str) -> None:
        """Starts the loggers when training starts."""
        if name == "training" and self._run is not None:
            (path, config), self._run = self._run, None
            rows = read_metrics(path)
            for logger in self._loggers.items():
                self._running.append(Background(*logger))
                self._running[-1].start(path, config, rows)
        self._listener.phase(name)

    def report(self, report: Report) -> None:
        """Passes the row on, if there is one."""
        if report.row is not None:
            for logger in self._running:
                logger.row(report.row)
        self._report_failures()
        self._listener.report(report)

    def message(self, text: str) -> None:
        self._listener.message(text)

    def close(self) -> None:
        """Closes the loggers, then the listener."""
        for logger in self._running:
            logger.close()
        self._report_failures()
        self._listener.close()

    def _report_failures(self) -> None:
        for logger in self._running:
            failure = logger.failure()
            if failure:
                self._listener.message(
                    f"warning: the logger {logger.name} {failure}; the run continues without it, "
                    "and metrics.jsonl has every row"
                )


def with_loggers(listener: Progress, config: TrainConfig) -> Progress:
    """The listener together with the loggers that the settings name."""
    if not config.loggers:
        return listener
    return Logged(listener, {name: make_logger(name) for name in config.loggers})
