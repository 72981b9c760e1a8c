"""Tables A.3 and A.4 of Pramanik (2023) beside the settings of the Memory Maze study here."""

import csv
from importlib import resources
from typing import NamedTuple

from clew.memory import options_of
from clew.run.config import TrainConfig

NOT_APPLICABLE = "N/A"


class Entry(NamedTuple):
    """One value of the thesis, and whether the study has it."""

    table: str
    """The table's or section's number."""
    quantity: str
    model: str
    """An agent's name, or "all"."""
    published: str
    """A number, several between spaces where they were searched or run, or "N/A"."""
    setting: str
    """Where the study has it, see `value_of`; nothing if nowhere."""
    follows: str
    """"yes", "swept" (ours is one of those that were searched) or "no"."""
    why: str


def published_settings() -> list[Entry]:
    """Tables A.3 and A.4 and what else section 5.2 and appendix A.2 say in numbers."""
    file = resources.files("clew.lab.studies.memory_maze") / "published.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return [Entry(**row) for row in rows]


def value_of(setting: str, config: TrainConfig) -> str:
    """A setting of a run as the tables write it.

    Args:
        setting: a field of `TrainConfig` by its dotted name, "batch" (steps of a gradient step) or
            "environments per actor". An option that a memory does not have is "N/A", as is one
            that is None.
        config: of the run.
    """
    if setting == "batch":
        value = config.steps_per_update // config.ppo.minibatches
    elif setting == "environments per actor":
        value = config.ppo.num_envs // config.asynchronous.actors
    elif setting.startswith("memory_options."):
        name = setting.partition(".")[2]
        defaults = options_of(config.memory)
        value = config.memory_options.get(name, defaults.get(name))
    else:
        value = config
        for part in setting.split("."):
            value = getattr(value, part)
    return NOT_APPLICABLE if value is None else f"{value:g}"
