"""Where the rows of a run go besides its metrics.jsonl: TensorBoard, Weights & Biases.

A logger is whoever has `start`, `row` and `close`. It is called on a thread of its own, and what it
raises costs its pictures and not the run: metrics.jsonl is the truth, and errors in writing that do
end a run, which is why its writer, `clew.run.record.MetricsFile`, is none of these.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clew.errors import UserError, require_choice, unknown_name

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
    """Somebody who keeps rows of metrics."""

    def start(self, path: Path, config: "TrainConfig", rows: Sequence[dict[str, Any]]) -> None:
        """Opens what it writes to.

        Args:
            path: the run's folder.
            config: its settings.
            rows: those that metrics.jsonl has already, oldest first. Of a resumed run they may be
                fewer than this logger has seen: the work after the last checkpoint is made again,
                and so are its rows.
        """

    def row(self, row: dict[str, Any]) -> None:
        """Keeps a row, as `clew.run.record.make_row` makes it."""

    def close(self) -> None:
        """Closes it, whether the run ended well or not."""


class Package(NamedTuple):
    """What a logger needs."""

    module: str
    """The module of this package that has `make()`."""
    needs: str
    """The module of somebody else that it imports."""
    extra: str
    """The extra of clew that installs it."""


LOGGERS = {
    "tensorboard": Package("tensorboard", "tensorboardX", "tensorboard"),
    "wandb": Package("weights_biases", "wandb", "wandb"),
}
"""Every logger by its name."""


def check_loggers(names: Sequence[str], wandb: WandbConfig) -> None:
    """Refuses loggers that cannot work, before anything is compiled.

    Raises:
        UserError: for an unknown name or one given twice, an impossible setting, a package that
            is not installed, with the command that installs it, or a W&B without a key.
    """
    wandb.validate()
    for index, name in enumerate(names):
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
        if name in names[:index]:
            raise UserError(f"loggers has {name} twice")
        package = LOGGERS[name]
        if package.needs not in sys.modules and importlib.util.find_spec(package.needs) is None:
            raise UserError(
                f"the logger {name} needs {package.needs}, which is not installed: "
                f'pip install "clew[{package.extra}]"'
            )
    if "wandb" in names:
        from clew.run.loggers.weights_biases import log_in

        log_in(wandb)


def make_logger(name: str) -> Logger:
    """Builds a logger of `LOGGERS`."""
    return importlib.import_module(f"clew.run.loggers.{LOGGERS[name].module}").make()


def scalars(row: dict[str, Any], first_seed: int = 0) -> dict[str, float]:
    """The numbers of a row by name, for those who know nothing of seeds.

    A metric of one seed has its own name. One of several seeds has their mean under its name and
    each of them as name/seed-number. What is not known is left out, as are "update" and "steps",
    which say when it was.

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
