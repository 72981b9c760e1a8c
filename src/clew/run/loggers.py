"""Loggers: TensorBoard and Weights & Biases, besides a run's metrics.jsonl.

A logger has `start`, `row` and `close`. It is called on its own thread, and an exception in it does
not end the run: metrics.jsonl is the authoritative record. Errors in writing that file do end a
run, so its writer, `clew.run.metrics.MetricsFile`, is not a logger.
"""

import importlib
import importlib.util
import json
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clew.errors import Settings, UserError, check_call, require_choice
from clew.files import read_json, write_file
from clew.names import find

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

WANDB_MODES = ("online", "offline")
FOLDER = "tensorboard"
"""Folder of TensorBoard's event files, in the run's folder."""
STATE = "wandb.json"
"""File in the run's folder with the id at W&B and the last logged update."""


@dataclass(frozen=True)
class WandbConfig(Settings):
    """Settings of Weights & Biases."""

    project: str = "clew"
    """Project of the run."""
    entity: str = ""
    """User or team; by default that of the account."""
    mode: str = "online"
    """online, or offline, which writes to the run's folder for a later `wandb sync`."""

    def validate(self) -> None:
        require_choice("wandb.mode", self.mode, WANDB_MODES)
        if not self.project:
            raise UserError("wandb.project must not be empty")


class Logger(Protocol):
    """A destination of rows of metrics."""

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        """Opens the destination.

        Args:
            path: the run's folder.
            config: its settings.
            rows: those that metrics.jsonl already has, oldest first. In a resumed run they may be
                fewer than this logger has logged: updates after the last checkpoint are computed
                again, and their rows come again.
        """

    def row(self, row: dict[str, Any]) -> None:
        """Logs a row, as `clew.run.metrics.make_row` makes it."""

    def close(self) -> None:
        """Closes the destination, also if the run failed."""


def scalars(row: dict[str, Any], first_seed: int = 0) -> dict[str, float]:
    """The numbers of a row of metrics by name, for loggers without a notion of seeds.

    With one seed a metric has its own name. With several seeds, its name has their mean, and
    name/seed-number has the value of each. Values of None are left out, as are "update" and
    "steps", which are the time axis.
    """
    found: dict[str, float] = {}
    for name, value in row.items():
        if name in ("update", "steps"):
            continue
        several = value if isinstance(value, list) else [value]
        known = {i: float(v) for i, v in enumerate(several) if isinstance(v, int | float)}
        if known:
            found[name] = sum(known.values()) / len(known)
        if len(several) > 1:
            found |= {f"{name}/seed-{first_seed + i}": v for i, v in known.items()}
    return found


class TensorBoard(Logger):
    """Writes event files with environment steps (of one seed) as TensorBoard's step.

    A resumed run writes another file into the same folder. It begins with a restart mark at the
    first step that is computed again; TensorBoard drops the data of earlier files from that step
    on. A new folder gets all rows from the first.

    tensorboardX's `SummaryWriter` writes from a thread. A full disk ends that thread, and then the
    writer waits for it forever. So its parts are used here, and errors are raised where they can be
    reported.
    """

    needs = "tensorboardX"
    """The package that it imports when it starts."""

    def __init__(self) -> None:
        self._writer: Any = None
        self._events: Any = None
        self._summary: Any = None
        self._first_seed = 0

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        writer = importlib.import_module("tensorboardX.event_file_writer")
        self._events = importlib.import_module("tensorboardX.proto.event_pb2")
        self._summary = importlib.import_module("tensorboardX.summary")
        folder = path / FOLDER
        old = folder.is_dir() and any(folder.iterdir())
        folder.mkdir(exist_ok=True)
        self._first_seed = config.seed
        # Files are read in the order of their names, whose time stamps are whole seconds.
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
        """Writes the row's numbers and flushes them."""
        for name, value in scalars(row, self._first_seed).items():
            self._write(step=row["steps"], summary=self._summary.scalar(name, value))
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, **content: Any) -> None:
        self._writer.write_event(self._events.Event(wall_time=time.time(), **content))


class WeightsAndBiases(Logger):
    """Logs rows with environment steps (of one seed) as W&B's step.

    A resumed run continues the same W&B run, whose id is in `wandb.json`. W&B cannot remove rows,
    so rows up to the last logged one are not logged again; they would be the same, because a
    resumed run equals an uninterrupted one. Rows that W&B has missed, because it was added late or
    could not be reached, are logged when the run is resumed.
    """

    needs = "wandb"
    """As in `TensorBoard`."""

    def __init__(self) -> None:
        self._run: Any = None
        self._place = Path()
        self._id = ""
        self._last = 0
        self._first_seed = 0

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        """Opens the run at W&B, or resumes it."""
        wandb = importlib.import_module("wandb")
        self._place = path / STATE
        self._first_seed = config.seed
        self._id, self._last = read_state(self._place)
        self._run = wandb.init(
            project=config.wandb.project,
            entity=config.wandb.entity or None,
            mode=config.wandb.mode,
            id=self._id,
            resume="allow",
            name=path.name,
            dir=str(path),
            config=config.to_json(),
            settings=wandb.Settings(console="off", silent=True),
        )
        self._keep()
        for row in rows:
            self.row(row)

    def row(self, row: dict[str, Any]) -> None:
        """Logs a row, unless it was logged before."""
        if row["update"] <= self._last:
            return
        self._run.log(scalars(row, self._first_seed), step=row["steps"])
        self._last = row["update"]
        self._keep()

    def close(self) -> None:
        """Waits until everything is sent."""
        if self._run is not None:
            self._run.finish()

    def _keep(self) -> None:
        text = json.dumps({"id": self._id, "update": self._last}) + "\n"
        # Without a sync at every row: a power cut can at most cause rows to be logged twice.
        write_file(self._place, [text.encode()], durable=False)


def read_state(place: Path) -> tuple[str, int]:
    """The id at W&B and the last update logged; a new id if there is none."""
    try:
        found = read_json(place)
        return str(found["id"]), int(found["update"])
    except (OSError, ValueError, KeyError, TypeError):
        return uuid.uuid4().hex[:12], 0


def log_in(config: WandbConfig) -> None:
    """Logs in to W&B, on a thread that may ask the user.

    Raises:
        UserError: if W&B has no key and cannot ask for one.
    """
    if config.mode != "online":
        return
    wandb = importlib.import_module("wandb")
    try:
        known = wandb.login(verify=False)
    except Exception as error:
        raise UserError(f"wandb: {error} Or choose --wandb.mode offline") from error
    if not known:
        raise UserError("wandb has no key; run `wandb login`, or choose --wandb.mode offline")


LOGGERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
"""Every logger by its name, which is also the name of clew's extra for its package."""


def check_loggers(names: Sequence[str], wandb: WandbConfig) -> None:
    """Refuses loggers that cannot work, before anything is compiled.

    Raises:
        UserError: for an unknown or repeated name, an impossible setting, a package that is not
            installed, with the command to install it, or W&B without a key.
    """
    wandb.validate()
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"loggers has {name} twice")
        logger = find("logger", name, LOGGERS)
        if name not in LOGGERS:
            check_call(name, logger)
            continue
        package = LOGGERS[name].needs
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise UserError(
                f"the logger {name} needs {package}, which is not installed: "
                f'pip install "clew[{name}]"'
            )
    if "wandb" in names:
        log_in(wandb)


def make_logger(name: str) -> Logger:
    """Builds a logger without arguments: one of `LOGGERS`, or one named "module:Class"."""
    return find("logger", name, LOGGERS)()
