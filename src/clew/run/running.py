"""A run in progress: where it stands, how it is saved, and how it ends before its time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.run import checkpoint, folder, machine, record
from clew.run.compiled import RunState
from clew.run.config import TrainConfig
from clew.run.progress import Progress, Report
from clew.run.stop import EnvironmentFailed, TrainingDiverged, TrainingInterrupted


@dataclass
class Running:
    """A run in progress."""

    path: Path
    config: TrainConfig
    progress: Progress
    state: RunState
    update: int = 0
    seconds: float = 0.0
    saved: int = -1
    saved_at: float = 0.0
    row_at: tuple[int, float] = (0, 0.0)
    """Update and seconds of the last row of metrics, or of the beginning."""

    def begin(self) -> None:
        """Begins to count, where the run stands."""
        self.saved_at, self.row_at = self.seconds, (self.update, self.seconds)

    def report(self, rate: float, row: record.Row | None) -> Report:
        """Where the run stands, at a rate of environment steps of all seeds per second."""
        config, per_update = self.config, self.config.steps_per_update
        left = (config.updates - self.update) * per_update * config.seeds / rate
        made, whole = self.update * per_update, config.updates * per_update
        return Report(made, whole, rate, self.seconds, left, row)

    def row(
        self, metrics: record.MetricsFile, measured: Callable[[], dict[str, Any]]
    ) -> record.Row | None:
        """Writes the row of metrics that is due after this update, if any is.

        Args:
            metrics: the file.
            measured: what else goes into the row, since the row before.
        """
        config = self.config
        if self.update % config.log_every and self.update < config.updates:
            return None
        update, seconds = self.row_at
        made = (self.update - update) * config.steps_per_update * config.seeds
        self.row_at = self.update, self.seconds
        rate = made / (self.seconds - seconds)
        sums = self.state.seed.sums
        row = record.make_row(sums, self.update, config, seconds=self.seconds, rate=rate)
        row |= measured()
        metrics.write(row)
        return row

    def save(self, metrics: record.MetricsFile) -> None:
        """Writes a checkpoint, after the rows that belong before it."""
        self.progress.phase("saving")
        metrics.sync()
        meta = {"update": self.update, "seconds": self.seconds}
        checkpoint.save(self.path / folder.CHECKPOINTS, self.state, meta, machine.versions())
        self.saved, self.saved_at = self.update, self.seconds
        self.progress.phase("training")

    def interrupted(self, metrics: record.MetricsFile) -> None:
        """Saves, and ends the run because it was told to stop.

        Raises:
            TrainingInterrupted: always.
        """
        if self.saved < self.update:
            self.save(metrics)
        raise TrainingInterrupted(
            f"stopped after {self._steps} steps, everything is saved; go on with: "
            f"clew train --resume {self.path}"
        )

    def failed(
        self, program: Any, metrics: record.MetricsFile, fault: EnvironmentFault
    ) -> EnvironmentFailed:
        """Saves what there was before an environment failed; the error to raise."""
        self.state = program.state
        self.update = int(self.state.update)
        if self.saved < self.update:
            self.save(metrics)
        return EnvironmentFailed(
            f"{fault}\nThe run is saved after {self._steps} steps; go on with: "
            f"clew train --resume {self.path}"
        )

    def diverged(self, finite: np.ndarray) -> TrainingDiverged:
        """The error for numbers that are not finite, by seed."""
        learning = self.config.learning
        which = "" if finite.size == 1 else f" (seed {self.config.seed + int(np.argmin(finite))})"
        kept = checkpoint.list_checkpoints(self.path / folder.CHECKPOINTS)
        where = f"; the last good checkpoint is {kept[-1]}" if kept else ""
        name = self.config.algorithm
        return TrainingDiverged(
            f"the loss or a parameter is no longer finite at update {self.update}{which}{where}; "
            f"try a smaller {name}.learning_rate (now {learning.learning_rate:g}) or "
            f"{name}.max_grad_norm (now {learning.max_grad_norm})"
        )

    @property
    def _steps(self) -> int:
        return self.update * self.config.steps_per_update
