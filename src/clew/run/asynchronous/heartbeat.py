"""The heartbeat of an actor, and what detects that it hangs."""

import contextlib
import time
from collections.abc import Iterator

import numpy as np

STARTING, ACTING, AT_ENVIRONMENTS, WAITING = range(4)
NOBODY = -1
SIGNS_BYTES = 40
NETWORK_SECONDS = 300.0
"""How long an actor may take, besides its environments, until its first rollout: it compiles."""


class Heartbeat:
    """What an actor is at, and a counter of its doings, and whether it shall stop.

    Args:
        memory: SIGNS_BYTES bytes, uint8, all of which but the last 8 the actor alone writes.
    """

    def __init__(self, memory: np.ndarray):
        self._doings = np.frombuffer(memory, np.int64, 1)
        self._at = np.frombuffer(memory, np.int64, 1, 8)
        self._rollouts = np.frombuffer(memory, np.int64, 1, 16)
        self.progress = np.frombuffer(memory, np.int32, 1, 24)
        """Index of the environment that is at work, NOBODY for none."""
        self._stop = np.frombuffer(memory, np.int64, 1, 32)

    def stop(self) -> None:
        """Tells the actor to end."""
        self._stop[0] = 1

    def begin(self) -> None:
        """Writes the first sign."""
        self.progress[0] = NOBODY
        self._give(STARTING)

    @contextlib.contextmanager
    def at_environments(self) -> Iterator[None]:
        """The environments are at work."""
        self._give(AT_ENVIRONMENTS)
        yield
        self._give(ACTING)

    def waiting(self) -> None:
        """There is nothing to do until the learner answers."""
        self._give(WAITING)

    def acting(self) -> None:
        """There is."""
        self._give(ACTING)

    def gathered(self) -> None:
        """A rollout is complete: everything is compiled."""
        self._rollouts[0] += 1
        self._give(ACTING)

    def seen(self) -> tuple[int, int, int]:
        """Doings, what it is at, and complete rollouts."""
        return int(self._doings[0]), int(self._at[0]), int(self._rollouts[0])

    def _give(self, at: int) -> None:
        if self._stop[0]:
            raise SystemExit
        self._at[0] = at
        self._doings[0] += 1


class HangDetector:
    """Tells whether an actor hangs: no sign for longer than it may take.

    Args:
        signs: the actor's.
        timeout: seconds that a step, or a reset, of its environments may take, and after its
            first rollout anything else.
    """

    def __init__(self, signs: Heartbeat, timeout: float):
        self._signs, self._timeout = signs, timeout
        self._last, self._since = signs.seen(), time.monotonic()
        self._answered: tuple[int, int, int] | None = None

    def answering(self) -> None:
        """The learner is about to tell the actor something: one that waits will have to go on."""
        self._answered = self._signs.seen()
        if self._answered[1] == WAITING:
            self._last, self._since = self._answered, time.monotonic()

    def hung(self) -> str:
        """What hangs, as the end of a sentence; empty if nothing does."""
        seen = self._signs.seen()
        if seen != self._last:
            self._last, self._since = seen, time.monotonic()
            return ""
        _, at, rollouts = seen
        if at == WAITING and seen != self._answered:
            return ""
        compiling = at != AT_ENVIRONMENTS and not rollouts
        patience = max(self._timeout, NETWORK_SECONDS) if compiling else self._timeout
        if time.monotonic() - self._since < patience:
            return ""
        busy = int(self._signs.progress[0])
        where = f"its environment {busy}" if busy != NOBODY else "it"
        return f"{where} gave no sign of life within {patience:g} s"
