"""Loggers as listeners of a run, each on a thread of its own."""

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.run.loggers import make_logger
from clew.run.loggers.base import Logger
from clew.run.progress import Progress, Report
from clew.run.record import read_metrics

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a logger, which may have much to send."""


class Background:
    """A logger on a thread of its own, so that the run never waits for it.

    After its first failure a logger is left alone. A thread rather than a call, because a network
    that is down costs minutes, and a file system that hangs everything.

    Args:
        name: for messages.
        logger: receives the rows.
    """

    def __init__(self, name: str, logger: Logger):
        self.name = name
        self._logger = logger
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failure = ""
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)
        self._thread.start()

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        """As `Logger.start`, some time from now."""
        self._calls.put(lambda: self._logger.start(path, config, rows))

    def row(self, row: dict[str, Any]) -> None:
        """As `Logger.row`, some time from now."""
        self._calls.put(lambda: self._logger.row(row))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Waits until everything is logged, `seconds` at most."""
        self._calls.put(self._logger.close)
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive() and not self._failure:
            self._failure = f"has not finished within {seconds:.0f} s"

    def failure(self) -> str:
        """What went wrong, once; empty if nothing did, or it was returned before."""
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


class Logged:
    """A listener that passes everything on to another one, and every row to loggers.

    They start when training does: then metrics.jsonl has been cut back to the checkpoint.

    Args:
        listener: receives everything, and a message about a logger that fails.
        loggers: by name.
    """

    def __init__(self, listener: Progress, loggers: dict[str, Logger]):
        self._listener = listener
        self._loggers = loggers
        self._running: list[Background] = []
        self._run: tuple[Path, Any] | None = None

    def start(self, path: Path, config: "TrainConfig") -> None:
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
        """Passes it on."""
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
                    f"warning: the logger {logger.name} {failure}; the run goes on without it, and "
                    "metrics.jsonl has every row"
                )


def with_loggers(listener: Progress, config: "TrainConfig") -> Progress:
    """The listener, and with it the loggers that the settings name."""
    if not config.loggers:
        return listener
    return Logged(listener, {name: make_logger(name) for name in config.loggers})
