"""`clew bench`: the speed of every memory, beside that of the machine."""

from dataclasses import dataclass

from clew.cli.parse import parse
from clew.cli.tables import log, show
from clew.errors import UserError, require_at_least
from clew.output import say
from clew.report.document import NothingMeasured

ABOUT = """Measures how fast each memory acts, learns and trains on this machine, at the sizes of
Pramanik (2023), Table A.2, with 8 environments x 256 steps, and what fraction of the machine's
matmul peak it reaches. The laws are checked first: if a memory breaks one, nothing is reported.
Run nothing else on the machine meanwhile."""


@dataclass(frozen=True)
class BenchCommand:
    """The options of `clew bench`."""

    memories: tuple[str, ...] = ()
    """Measure only these, by their names in the table, or by module:Class for your own."""
    repeats: int = 5
    """Timed calls of each program; the table has their median."""
    quick: bool = False
    """Short chunks and 2 repeats: a test that it works, not numbers to quote."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Measures, and prints tables; exits with 1 if a law is broken."""
    command = parse(BenchCommand, args, command="bench", about=ABOUT)
    require_at_least("repeats", command.repeats, 1)
    if command.quick and command.repeats != BenchCommand.repeats:
        raise UserError("--quick sets the repeats itself: leave out --repeats")
    from clew.lab.bench import speed  # start: JAX takes 0.5 s
    from clew.run.sharding import open_devices  # start: JAX takes 0.5 s

    open_devices()
    plan = speed.QUICK if command.quick else speed.SpeedPlan(repeats=command.repeats)
    try:
        document = speed.report(command.memories, plan, log)
    except NothingMeasured as failed:
        say(f"no figures: {failed}")
        return 1
    show(document, as_json=command.json, note=speed.QUICK_NOTE if command.quick else "")
    return 0
