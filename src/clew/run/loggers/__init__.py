"""Loggers: TensorBoard and Weights & Biases, beside a run's metrics.jsonl.

A logger has `start`, `row` and `close`. It is called on a thread of its own, and what it raises
costs its pictures and not the run: metrics.jsonl is the truth, and errors in writing that do end a
run, which is why its writer, `clew.run.record.MetricsFile`, is none of these.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from clew.errors import UserError, check_call, unknown_name
from clew.names import is_reference, resolve
from clew.run.loggers.base import Logger, WandbConfig
from clew.run.loggers.tensorboard import TensorBoard
from clew.run.loggers.weights_biases import WeightsAndBiases, log_in


class Package(NamedTuple):
    """A logger and the package that it needs."""

    make: Callable[[], Logger]
    """The logger's class."""
    needs: str
    """The module that it imports when it starts."""
    extra: str
    """The extra of clew that installs it."""


LOGGERS = {
    "tensorboard": Package(TensorBoard, "tensorboardX", "tensorboard"),
    "wandb": Package(WeightsAndBiases, "wandb", "wandb"),
}
"""Every logger by its name."""


def check_loggers(names: Sequence[str], wandb: WandbConfig) -> None:
    """Refuses loggers that cannot work, before anything is compiled.

    Raises:
        UserError: for an unknown name or one given twice, an impossible setting, a package that
            is not installed, with the command that installs it, or a W&B without a key.
    """
    wandb.validate()
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"loggers has {name} twice")
        if is_reference(name):
            check_call(name, resolve(name))
            continue
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
        package = LOGGERS[name]
        if package.needs not in sys.modules and importlib.util.find_spec(package.needs) is None:
            raise UserError(
                f"the logger {name} needs {package.needs}, which is not installed: "
                f'pip install "clew[{package.extra}]"'
            )
    if "wandb" in names:
        log_in(wandb)


def make_logger(name: str) -> Logger:
    """Builds a logger: one of `LOGGERS`, or what "module:Class" names, without arguments."""
    return resolve(name)() if is_reference(name) else LOGGERS[name].make()
