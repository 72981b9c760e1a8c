"""The heartbeat of an actor, and the detector of hanging actors."""

import contextlib
import time
from collections.abc import Iterator

import numpy as np

STARTING, ACTING, AT_ENVIRONMENTS, WAITING = range(4)
NOBODY = -1
HEARTBEAT_BYTES = 40
NETWORK_SECONDS = 300.0
"""How long an actor may take until its first rollout, besides its environments: it compiles."""


class Heartbeat:
    """An actor's activity, a counter of its beats, and whether it has to stop.

    Args:
        memory: HEARTBEAT_BYTES bytes, uint8; the learner writes the last 8, the actor the others.
    """

    def __init__(self, memory: np.ndarray):
        self._beats = np.frombuffer(memory, np.int64, 1)
        self._at = np.frombuffer(memory, np.int64, 1, 8)
        self._rollouts = np.frombuffer(memory, np.int64, 1, 16)
        self.progress = np.frombuffer(memory, np.int32, 1, 24)
        """Index of the environment that is stepping, or NOBODY."""
        self._stop = np.frombuffer(memory, np.int64, 1, 32)

    def stop(self) -> None:
        """Tells the actor to end."""
        self._stop[0] = 1

    def begin(self) -> None:
        """The first beat."""
        self.progress[0] = NOBODY
        self._beat(STARTING)

    @contextlib.contextmanager
    def at_environments(self) -> Iterator[None]:
        """The environments are stepping."""
        self._beat(AT_ENVIRONMENTS)
        yield
        self._beat(ACTING)

    def waiting(self) -> None:
        """The actor waits for the learner."""
        self._beat(WAITING)

    def acting(self) -> None:
        """The actor acts again."""
        self._beat(ACTING)

    def gathered(self) -> None:
        """A rollout is complete: everything is compiled."""
        self._rollouts[0] += 1
        self._beat(ACTING)

    def seen(self) -> tuple[int, int, int]:
        """Number of beats, the actor's activity, and number of complete rollouts."""
        return int(self._beats[0]), int(self._at[0]), int(self._rollouts[0])

    def _beat(self, at: int) -> None:
        if self._stop[0]:
            raise SystemExit
        self._at[0] = at
        self._beats[0] += 1


class HangDetector:
    """Detects that an actor hangs, by a heartbeat that stays away for too long.

    Args:
        timeout: seconds that a step or a reset of its environments may take; after its first
            rollout also the limit for everything else.
    """

    def __init__(self, heartbeat: Heartbeat, timeout: float):
        self._heartbeat, self._timeout = heartbeat, timeout
        self._last, self._since = heartbeat.seen(), time.monotonic()
        self._answered: tuple[int, int, int] | None = None

    def answering(self) -> None:
        """The learner is about to send a message, after which a waiting actor has to continue."""
        self._answered = self._heartbeat.seen()
        if self._answered[1] == WAITING:
            self._last, self._since = self._answered, time.monotonic()

    def hung(self) -> str:
        """What hangs, as the end of a sentence; empty if nothing hangs."""
        seen = self._heartbeat.seen()
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
        busy = int(self._heartbeat.progress[0])
        where = f"its environment {busy}" if busy != NOBODY else "it"
        return f"{where} gave no sign of life within {patience:g} s"
