"""`clew cost`: the cost of each memory, counted, compiled and measured."""

from dataclasses import dataclass, field
from typing import Any

from clew.cli.parse import parse
from clew.cli.tables import log, show
from clew.errors import require_at_least, unknown_name
from clew.names import is_reference

ABOUT = """Shows the cost of each memory: parameters, state size, and multiply-adds per observation.
They are counted from its program, which takes seconds. GTrXL is counted with its key/value cache
and without it, when it projects its whole memory at every step. On request it adds XLA's cost
analysis of the compiled step and chunk, and the time that they take."""


@dataclass(frozen=True)
class CostCommand:
    """The options of `clew cost`."""

    memories: tuple[str, ...] = ()
    """Only these: names in the table of `clew bench`, names of `clew models` at default sizes, or
    module:Class for your own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Sizes, for example hidden_size=64 window=512; each applies to the memories that have it."""
    input_size: int = 16
    """Size of one observation; the T-Maze's is 16."""
    batch: int = 8
    """Environments side by side, if programs are compiled or measured."""
    length: int = 256
    """Steps of a chunk, if programs are compiled or measured."""
    compiled: bool = False
    """Compile each step and chunk, and add XLA's cost analysis."""
    measure: bool = False
    """Also time acting and reading a chunk; run nothing else on the machine meanwhile."""
    repeats: int = 15
    """Timed calls of each program; the table has their median and its 95% interval."""
    output: str = ""
    """Write the table and the numbers as JSON into this folder."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Counts, and prints tables or writes them."""
    command = parse(CostCommand, args, command="cost", about=ABOUT)
    for name in ("input_size", "batch", "length", "repeats"):
        require_at_least(name, getattr(command, name), 1)
    from clew.lab.costs.account import CostPlan  # start: JAX takes 0.5 s
    from clew.lab.costs.tables import measure_memories  # start: JAX takes 0.5 s

    repeats = command.repeats if command.measure else 0
    plan = CostPlan(command.batch, command.length, command.compiled, repeats)
    document = measure_memories(_cases(command), command.input_size, plan, log)
    if command.output:
        from clew.report.files import write_measured  # start: matplotlib takes 0.4 s

        write_measured(document, command.output)
    show(document, as_json=command.json)
    return 0


def _cases(command: CostCommand) -> dict[str, tuple[str, dict[str, Any]]]:
    """The memories and sizes of the command."""
    from clew.lab.bench.speed import cases  # start: JAX takes 0.5 s
    from clew.lab.costs.account import sized  # start: JAX takes 0.5 s
    from clew.memory import MEMORIES  # start: JAX takes 0.5 s

    known = {name: (name, {}) for name in MEMORIES} | cases()
    known |= {name: (name, {}) for name in filter(is_reference, command.memories)}
    for name in command.memories:
        if name not in known:
            raise unknown_name("memory", name, known)
    return sized({name: known[name] for name in command.memories or cases()}, command.options)
