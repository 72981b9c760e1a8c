"""Options that commands on a trained run share."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

import tyro

from clew.cli.parse import parse
from clew.errors import UserError


@dataclass(frozen=True)
class PlayOptions:
    """Options of a command that plays with trained agents."""

    checkpoint: str = ""
    """The checkpoint: its file name, the number of its update, or best, which takes for every seed
    the agent with the highest mean return, in an evaluation or else over 100 training episodes. By
    default the newest that is not damaged."""
    seed: int = 0
    """Seed of the episodes and of sampled actions."""
    trust: bool = False
    """Import the code that the run's settings name, even if this machine has not trained it."""


@dataclass(frozen=True)
class RunOptions(PlayOptions):
    """Options of a command on one run."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")] = ""
    """The run's folder, or its name in runs/."""


def shared(command: PlayOptions, kind: Any) -> dict[str, Any]:
    """The options of a command that a dataclass of the library has too."""
    names = [field.name for field in fields(kind)]
    return {name: value for name, value in vars(command).items() if name in names}


Options = TypeVar("Options", bound=RunOptions)


def parse_run(kind: type[Options], args: Sequence[str], *, command: str, about: str) -> Options:
    """Reads the options of a command on a run.

    Raises:
        UserError: as `parse`, and if no run is named.
    """
    parsed = parse(kind, args, command=command, about=about)
    if not parsed.run:
        raise which_run(command)
    return parsed


def which_run(command: str) -> UserError:
    """The error for a command without the run that it needs."""
    return UserError(f"which run? clew {command} RUN; clew runs lists them")
