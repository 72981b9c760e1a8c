"""Rows as a run of Weights & Biases."""

import importlib
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import UserError
from clew.run.files import read_json
from clew.run.loggers.base import WandbConfig, scalars

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

STATE = "wandb.json"
"""In the run's folder: the id at W&B, and the last update that was logged."""


class WeightsAndBiases:
    """Logs rows with environment steps (of one seed) as W&B's step.

    A resumed run is the same run there: `wandb.json` has its id. W&B takes nothing back, so
    rows up to the last one logged are not logged again; they would be the same ones, because a
    resumed run is the uninterrupted one. Rows that W&B has missed, because it was chosen late or
    could not be reached, are logged when the run is resumed.
    """

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
        # Not waiting for the disk at every row: what a power cut takes is one row logged twice.
        temporary = self._place.with_name(f".{STATE}.{os.getpid()}.writing")
        temporary.write_text(json.dumps({"id": self._id, "update": self._last}) + "\n")
        os.replace(temporary, self._place)


def read_state(place: Path) -> tuple[str, int]:
    """The id at W&B and the last update logged; a new id if there is none."""
    try:
        found = read_json(place)
        return str(found["id"]), int(found["update"])
    except (OSError, ValueError, KeyError, TypeError):
        return uuid.uuid4().hex[:12], 0


def log_in(config: WandbConfig) -> None:
    """Logs in to W&B, on the thread that may ask the user.

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
