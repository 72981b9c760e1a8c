"""How a run ends early: stopped by a signal, by numbers that are not finite, or by faults."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from clew.bridges.gymnasium.processes import stopping_signals
from clew.errors import StoppedAtOnce, UserError


class TrainingDiverged(UserError):
    """The loss or a parameter became infinite or not a number."""


class EnvironmentFailed(UserError):
    """Gymnasium environments failed more often than the run allows; it has saved itself."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped and saved itself; the message says how to resume."""


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set.

    A second Ctrl-C stops at once, saving nothing. Further signals of other kinds change nothing:
    a terminal that closes and a scheduler send several, and mean one. SIGHUP that is ignored, as
    `nohup` has it, stays ignored.

    On another thread than the main one signals are not touched, and the event is never set.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise StoppedAtOnce
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, handle) for number in stopping_signals()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
