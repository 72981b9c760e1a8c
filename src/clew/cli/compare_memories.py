"""`clew compare --memories`: memories trained side by side on one task, and compared."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import tyro

from clew.cli.live import listener
from clew.cli.parse import parse, value_before_parsing
from clew.cli.tables import log, print_json, print_table
from clew.cli.train import default_command, on_algorithm
from clew.errors import UserError
from clew.lab.comparison import METRICS, compare, settings_of
from clew.run.config import TrainConfig
from clew.run.record import final_text
from clew.run.sharding import open_devices

SEEDS = 5
"""Agents of each memory that are trained, unless --seeds is given."""


@dataclass(frozen=True)
class MemoriesCommand:
    """Options of `clew compare --memories`."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    """Settings of all runs."""
    memories: tuple[str, ...] = ()
    """Memories to train and compare, by name or module:Class."""
    json: bool = False
    """Print JSON instead of tables."""


def compare_memories(args: list[str], about: str) -> int:
    """Trains memories beside each other, and prints what each reached."""
    if value_before_parsing(args, "--memory") is not None:
        raise UserError("--memories has the names of all memories: leave out --memory")
    default = default_command(args).config
    default = MemoriesCommand(replace(default, seeds=SEEDS))
    prefer = f"--{default.config.algorithm}."
    command = parse(
        MemoriesCommand, args, command="compare", about=about, default=default, prefer=prefer
    )
    for line in on_algorithm(args, command.config):
        log(line)
    open_devices(command.config.devices)
    found = compare(settings_of(command.config, command.memories), listener)
    if command.json:
        better = {f"{a} > {b}": interval for (a, b), interval in found.better.items()}
        print_json({"runs": found.summaries, "better": better, "page": str(found.page)})
        return 0
    rows = [
        [m, *(final_text(s["final"].get(n)) for n in METRICS)] for m, s in found.summaries.items()
    ]
    print_table("the last tenth of training", ["memory", *METRICS], rows, "[..] 95%, over seeds")
    if found.better:
        rows = [[f"{a} > {b}", format(p, ".2f")] for (a, b), p in found.better.items()]
        print_table("", [f"a seed's {found.metric} is higher", "probability"], rows)
    print(f"picture: {found.picture}\npage: {found.page}")
    return 0
