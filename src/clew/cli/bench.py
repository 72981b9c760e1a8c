"""`clew bench`: speed of every memory, beside the machine's own."""

import sys
from dataclasses import dataclass

from clew.cli.parse import parse
from clew.cli.tables import log, show
from clew.errors import UserError, require_at_least
from clew.report.document import Measured, NothingMeasured

ABOUT = """Measures how fast each memory acts, learns and trains on this machine, at the sizes of
Pramanik (2023), Table A.2, with 8 environments x 256 steps, and the fraction reached of the
machine's own rate of matrix products. The laws are run first: if a memory breaks one, nothing is
reported. Or measures, with --lengths, how time and memory of learning grow with the length of
chunks; with --start, how long `clew train` takes to its first step, cold and warm; with
--memory-maze, the learner of Pramanik's Memory Maze study (Figure 5.6). Leave the machine alone
meanwhile."""


@dataclass(frozen=True)
class BenchCommand:
    """The options of `clew bench`."""

    memories: tuple[str, ...] = ()
    """Measure only these, by their names in the table."""
    lengths: bool = False
    """Measure ReLiT and AReLiT, in every form that computes a chunk of theirs, and the linear
    transformer on chunks of 256 to 8,192 steps instead; --memories chooses memories."""
    start: bool = False
    """Measure the seconds to the first training step of `clew train` and of the thesis's agents
    instead, with an empty cache of compiled programs and with a filled one; 15 minutes."""
    memory_maze: bool = False
    """Measure frames per second and peak memory of the learner of the Memory Maze agents instead,
    at the sizes of Table A.4 on pictures of noise; --memories chooses agents."""
    sequences: int | None = None
    """With --memory-maze: sequences of 100 frames in a timed gradient step, an even number, 32
    unless given; memory is always reported for Table A.3's 32."""
    repeats: int | None = None
    """Timed calls of each program, 5, or turns: with --start 5, with --lengths and --memory-maze 6;
    the table has their median."""
    quick: bool = False
    """Short chunks and 2 repeats: to see that it works, not to quote."""
    output: str = ""
    """Write tables, a picture and JSON into this folder; with --lengths, --start or
    --memory-maze."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Measures, and prints tables; exits with 1 if a law is broken."""
    command = parse(BenchCommand, args, command="bench", about=ABOUT)
    _validate(command)
    try:
        document, quick_note = _measure(command)
    except NothingMeasured as failed:
        print(f"no figures: {failed}", file=sys.stderr)
        return 1
    if command.output:
        from clew.report.files import write_measured  # start: matplotlib takes 0.4 s

        write_measured(document, command.output)
    show(document, as_json=command.json, note=quick_note if command.quick else "")
    return 0


def _validate(command: BenchCommand) -> None:
    """Raises `UserError` for options that contradict each other."""
    if command.repeats is not None:
        require_at_least("repeats", command.repeats, 1)
    others = command.lengths + command.start + command.memory_maze
    if others > 1:
        raise UserError("give one of --lengths, --start and --memory-maze")
    if command.output and not others:
        raise UserError("--output needs --lengths, --start or --memory-maze")
    if command.sequences is not None:
        require_at_least("sequences", command.sequences, 2)
        if not command.memory_maze:
            raise UserError("--sequences is for --memory-maze")


def _measure(command: BenchCommand) -> tuple[Measured, str]:
    """The figures of the command, and the line that --quick prints below them."""
    quick, rounds = command.quick, command.repeats or 6
    if command.lengths:
        from clew.lab.bench import lengths  # start: JAX takes 0.5 s

        plan = lengths.QUICK if quick else lengths.LengthsPlan(rounds=rounds)
        plan = lengths.of_memories(plan, command.memories)
        return lengths.report(plan, 1 if quick else 5, log), lengths.QUICK_NOTE
    if command.start:
        from clew.lab.bench import start  # start: JAX takes 0.5 s

        plan = start.QUICK if quick else start.StartPlan(command.repeats or 5)
        return start.report(command.memories, plan, log), start.QUICK_NOTE
    if command.memory_maze:
        from clew.lab.bench import learner  # start: JAX takes 0.5 s

        models = command.memories or learner.models()
        plan = learner.LearnerPlan(models, command.sequences or 32, rounds=rounds)
        if quick:
            plan = learner.QUICK._replace(models=command.memories or learner.QUICK.models)
        return learner.report(plan, log), learner.QUICK_NOTE
    from clew.lab.bench import speed  # start: JAX takes 0.5 s
    from clew.run.sharding import open_devices  # start: JAX takes 0.5 s

    open_devices()
    plan = speed.QUICK if quick else speed.SpeedPlan(repeats=command.repeats or 5)
    return speed.report(command.memories, plan, log), speed.QUICK_NOTE
