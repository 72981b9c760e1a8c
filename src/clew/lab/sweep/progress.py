"""The progress of a sweep: its rounds of trials as one study."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from clew.lab.grid import Standing, Study, StudyLines, StudyProgress
from clew.lab.sweep.storage import Search
from clew.run.config import TrainConfig


class _Round(NamedTuple):
    """What was over when it began, and what there is in all, in agents."""

    before: int
    total: int
    parts: Mapping[str, tuple[int, int]]
    """The same by memory, or by what is trained with fresh seeds."""


class SweepProgress:
    """Counts the agents of all trials, of every memory, and guesses when the last has ended.

    Args:
        listener: who is told; by default lines on standard error.
        path: the sweep's folder.
    """

    def __init__(self, listener: StudyProgress | None, path: Path):
        self._listener = listener or StudyLines()
        self._path = path
        self._round = _Round(0, 0, {})
        self._opened = False
        self._began = time.monotonic()
        self._first: int | None = None

    def round(self, searches: Mapping[str, Search], configs: Mapping[int, TrainConfig]) -> None:
        """A round of trials begins."""
        seeds = next(iter(configs.values())).seeds
        ended = {
            memory: sum(trial.state in ("complete", "failed") for trial in search.tried())
            for memory, search in searches.items()
        }
        parts = {m: (ended[m] * seeds, search.trials * seeds) for m, search in searches.items()}
        total = sum(every for _, every in parts.values())
        self._enter(_Round(sum(ended.values()) * seeds, total, parts))

    def final(self, models: Mapping[str, TrainConfig]) -> None:
        """The fresh seeds begin."""
        self._first = None
        self._began = time.monotonic()
        parts = {model: (0, config.seeds) for model, config in models.items()}
        self._enter(_Round(0, sum(seeds for _, seeds in parts.values()), parts))

    def _enter(self, entered: _Round) -> None:
        self._round = entered
        if self._first is None:
            self._first = entered.before

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        """Says once what runs where."""
        if not self._opened:
            self._opened = True
            self._listener.start(self._path, study, self._whole(standing))

    def report(self, standing: Standing) -> None:
        """The standing of the whole sweep."""
        self._listener.report(self._whole(standing))

    def message(self, text: str) -> None:
        """Passes it on."""
        self._listener.message(text)

    def close(self) -> None:
        """Does nothing: another round may come."""

    def leave(self) -> None:
        """Nothing more will come."""
        self._listener.close()

    def _whole(self, standing: Standing) -> Standing:
        seconds = time.monotonic() - self._began
        finished = self._round.before + standing.finished
        made = finished - (self._first or 0) + sum(standing.working.values())
        left = self._round.total - finished - sum(standing.working.values())
        return standing._replace(
            finished=finished,
            total=self._round.total,
            models=standing.models
            if self._round.parts.keys() == standing.models.keys()
            else self._round.parts,
            seconds=seconds,
            seconds_left=left * seconds / made if made > 0 else None,
        )
