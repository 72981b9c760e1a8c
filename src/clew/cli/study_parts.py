"""What of `clew study`'s options is for one part of a study alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clew.errors import UserError

if TYPE_CHECKING:
    from clew.cli.study import StudyCommand
    from clew.lab.grid import Study

TMAZE, MEMORY_MAZE = "tmaze", "memory-maze"
_OWN = {"corridors": TMAZE, "mazes": MEMORY_MAZE, "env": MEMORY_MAZE, "runner": MEMORY_MAZE}
_OWN |= {"actors": MEMORY_MAZE, "environments": MEMORY_MAZE, "rates_from": MEMORY_MAZE}


def grid_of(command: "StudyCommand") -> tuple[Callable[..., "Study"], dict[str, Any]]:
    """What makes the grid that a command asks for, and what its part is told besides.

    Raises:
        UserError: for an option of another part, or a list that is none.
    """
    from clew.lab.studies.presets import GRIDS, SWEEPS

    for option, part in _OWN.items():
        if getattr(command, option) and command.part != part:
            raise UserError(f"--{option.replace('_', '-')} is for --part {part}")
    if command.sweep and command.part not in SWEEPS:
        raise UserError(f"--sweep is for --part {' or '.join(SWEEPS)}")
    if command.mazes and command.env:
        raise UserError("--mazes and --env exclude each other")
    if command.sweep and command.rates_from:
        raise UserError("--sweep and --rates-from exclude each other")
    told = {
        "corridors": whole_numbers("corridors", command.corridors),
        "mazes": whole_numbers("mazes", command.mazes),
        "tasks": names(command.env),
        "runner": command.runner,
        "actors": command.actors,
        "environments": command.environments,
    }
    make = SWEEPS[command.part] if command.sweep else GRIDS[command.name]
    return make, {name: value for name, value in told.items() if value}


def finish_memory_maze(study: "Study", rates_from: str) -> "Study":
    """What depends on the budget, and on what a search has found.

    Raises:
        UserError: if the folder is none of a search.
    """
    from clew.lab.studies.memory_maze import grid as maze

    if rates_from:
        from clew.lab.studies.memory_maze.sweep import best_rates

        found = maze.with_rates(study, best_rates(rates_from))
        study = replace(study, models=found.models)
    return maze.with_last_steps(study)


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers between commas.

    Raises:
        UserError: naming the option and what it was given.
    """
    try:
        return tuple(int(word) for word in names(text) or ())
    except ValueError:
        raise UserError(f"--{option} must be integers between commas, got {text!r}") from None


def names(text: str) -> list[str] | None:
    """Words between commas, None if there are none."""
    return [word.strip() for word in text.split(",") if word.strip()] or None
