"""What every logger is, the settings of Weights & Biases, and a row as numbers by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clew.errors import UserError, require_choice

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

WANDB_MODES = ("online", "offline")


@dataclass(frozen=True)
class WandbConfig:
    """Where Weights & Biases keeps the run."""

    project: str = "clew"
    """Project of the run."""
    entity: str = ""
    """User or team; empty is the account's own default."""
    mode: str = "online"
    """online, or offline: into the run's folder, for `wandb sync` to send later."""

    def validate(self) -> None:
        """Refuses an unknown mode and an empty project.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
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
            rows: those that metrics.jsonl has already, oldest first. Of a resumed run they may be
                fewer than this logger has seen: updates after the last checkpoint are computed
                again, and so are their rows.
        """

    def row(self, row: dict[str, Any]) -> None:
        """Keeps a row, as `clew.run.record.make_row` makes it."""

    def close(self) -> None:
        """Closes it, whether the run ended well or not."""


def scalars(row: dict[str, Any], first_seed: int = 0) -> dict[str, float]:
    """The numbers of a row by name, for loggers that know nothing of seeds.

    A metric of one seed has its own name. One of several seeds has their mean under its name and
    each of them as name/seed-number. None is left out, as are "update" and "steps",
    which are the time axis.

    Args:
        row: as `clew.run.record.make_row` makes it.
        first_seed: number of the run's first seed.
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
