"""`clew compare --memories`: memories trained side by side on one task, and compared."""

from clew.cli.live import listener
from clew.cli.tables import log, print_json, print_table
from clew.cli.train import Memories, on_algorithm, parse_training
from clew.lab.comparison import METRICS, compare, settings_of
from clew.run.record import final_text
from clew.run.sharding import open_devices

SEEDS = 5
"""Agents of each memory that are trained, unless --seeds is given."""


def compare_memories(args: list[str], about: str) -> int:
    """Trains memories beside each other, and prints what each reached."""
    command = parse_training(Memories, args, command="compare", about=about, seeds=SEEDS)
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
