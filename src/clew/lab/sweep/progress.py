"""The progress of a sweep: its batches of trials shown as one study."""

import time
from collections.abc import Mapping
from pathlib import Path

from clew.lab.grid import Standing, Study, StudyLines, StudyProgress


class SweepProgress(StudyProgress):
    """Counts the agents of all trials of every memory, and estimates when the last one will end."""

    def __init__(self, listener: StudyProgress | None, path: Path):
        self._listener = listener or StudyLines()
        self._path = path
        self._parts: Mapping[str, tuple[int, int]] = {}
        self._opened = False
        self._began = time.monotonic()
        self._first = 0

    def enter(self, parts: Mapping[str, tuple[int, int]]) -> None:
        """Called when a batch of trials, or training with fresh seeds, begins.

        Parts are finished agents and all agents, by memory or by what is trained with fresh seeds.
        """
        if parts.keys() != self._parts.keys():
            self._began, self._first = time.monotonic(), sum(ended for ended, _ in parts.values())
        self._parts = parts

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        if not self._opened:
            self._opened = True
            self._listener.start(self._path, study, self._whole(standing))

    def report(self, standing: Standing) -> None:
        self._listener.report(self._whole(standing))

    def message(self, text: str) -> None:
        self._listener.message(text)

    def close(self) -> None:
        """Does nothing: another batch may follow."""

    def leave(self) -> None:
        """Called at the end of the sweep."""
        self._listener.close()

    def _whole(self, standing: Standing) -> Standing:
        ended, total = (sum(numbers) for numbers in zip(*self._parts.values(), strict=True))
        seconds, working = time.monotonic() - self._began, sum(standing.working.values())
        finished = ended + standing.finished
        made = finished - self._first + working
        return standing._replace(
            finished=finished,
            total=total,
            models=standing.models if self._parts.keys() == standing.models.keys() else self._parts,
            seconds=seconds,
            seconds_left=(total - finished - working) * seconds / made if made > 0 else None,
        )
