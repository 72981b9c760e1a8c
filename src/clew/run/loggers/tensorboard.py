"""Rows as TensorBoard's event files, in `tensorboard/` of the run's folder."""

import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.run.loggers.base import scalars

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

FOLDER = "tensorboard"


class TensorBoard:
    """Writes event files with environment steps (of one seed) as TensorBoard's step.

    A resumed run writes another file into the same folder. It begins with the mark of a new start
    at the first step that is computed again, from which on TensorBoard drops what earlier files
    have. A new folder gets all rows from the first.

    tensorboardX's `SummaryWriter` writes from a thread, which a full disk ends, and then waits for
    it for ever; so its parts are used, and errors are raised where they can be reported.
    """

    def __init__(self) -> None:
        self._writer: Any = None
        self._events: Any = None
        self._summary: Any = None
        self._first_seed = 0

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        """Opens a new event file."""
        writer = importlib.import_module("tensorboardX.event_file_writer")
        self._events = importlib.import_module("tensorboardX.proto.event_pb2")
        self._summary = importlib.import_module("tensorboardX.summary")
        folder = path / FOLDER
        old = folder.is_dir() and any(folder.iterdir())
        folder.mkdir(exist_ok=True)
        self._first_seed = config.seed
        # Files are read in the order of their names, which have the second only of their own.
        self._writer = writer.EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        if old:
            again = rows[-1]["steps"] + 1 if rows else 0
            log = self._events.SessionLog
            self._write(step=again, session_log=log(status=log.START))
            return
        settings = json.dumps(config.to_json(), indent=2)
        self._write(step=0, summary=self._summary.text("config", f"```\n{settings}\n```"))
        for row in rows:
            self.row(row)

    def row(self, row: dict[str, Any]) -> None:
        """Writes the row's numbers, and has the disk take them."""
        for name, value in scalars(row, self._first_seed).items():
            self._write(step=row["steps"], summary=self._summary.scalar(name, value))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, **content: Any) -> None:
        self._writer.write_event(self._events.Event(wall_time=time.time(), **content))
