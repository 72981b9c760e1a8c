"""`clew bench`: speed of every memory, beside the machine's own."""

import os
import platform
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError, require_at_least, unknown_name

if TYPE_CHECKING:
    from clew.lab.bench.speed import Figures, Rate

ABOUT = """Measures how fast each memory acts, learns and trains on this machine, at the sizes of
Pramanik (2023), Table A.2, with 8 environments x 256 steps, and the share reached of the machine's
own matrix products. The laws are run first: if a memory breaks one, nothing is reported. Or, with
--peers, measures other libraries' memories beside ours, by turns; with --lengths, how time and
memory of learning grow with the length of chunks; with --memory-maze, the learner of Pramanik's
Memory Maze study (Figure 5.6). Leave the machine alone meanwhile."""


@dataclass(frozen=True)
class BenchCommand:
    """What `clew bench` may be told."""

    memories: tuple[str, ...] = ()
    """Measure only these, by their names in the table."""
    peers: bool = False
    """Compare with other libraries instead, in an environment of their own that is made if it is
    not there (2 GB, once); 8 minutes."""
    lengths: bool = False
    """Measure ReLiT, AReLiT and the linear transformer on chunks of 256 to 8,192 steps instead."""
    memory_maze: bool = False
    """Measure frames per second and peak memory of the learner of the Memory Maze agents instead,
    at the sizes of Table A.4 on pictures of noise; --memories chooses agents."""
    sequences: int = 32
    """Of 100 frames in a timed gradient step of --memory-maze, an even number; memory is always
    told of Table A.3's 32."""
    repeats: int | None = None
    """Timed calls of each program, 5, or turns with --peers, --lengths and --memory-maze, 6; the
    table has their median."""
    quick: bool = False
    """Short chunks and 2 repeats: to see that it works, not to quote."""
    output: str = ""
    """Write tables, a picture and JSON into this folder; with --peers, --lengths or
    --memory-maze."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Measures, and prints a table; exits with 1 if a law is broken."""
    command = parse(BenchCommand, args, command="bench", about=ABOUT)
    if command.repeats is not None:
        require_at_least("repeats", command.repeats, 1)
    if command.peers or command.lengths or command.memory_maze:
        return _other(command)
    if command.output:
        raise UserError("--output needs --peers, --lengths or --memory-maze")
    from clew.lab.bench.speed import QUICK, Plan, cases, measure
    from clew.memory.laws import LawBroken

    known = cases()
    for name in command.memories:
        if name not in known:
            raise unknown_name("memory to measure", name, known)
    names = command.memories or tuple(known)
    plan = QUICK if command.quick else Plan(repeats=command.repeats or 5)
    figures = []
    for number, name in enumerate(names, 1):
        print(f"measuring {name} ({number} of {len(names)}) ...", file=sys.stderr, flush=True)
        try:
            figures.append(measure(name, *known[name], plan))
        except LawBroken as broken:
            print(f"no figures: {name} breaks a law\n{broken}", file=sys.stderr)
            return 1
    if command.json:
        print_json({"machine": machine(figures), "plan": plan, "figures": figures})
    else:
        _show(figures, quick=command.quick)
    return 0


def _other(command: BenchCommand) -> int:
    """`--peers`, `--lengths` or `--memory-maze`."""
    if command.peers + command.lengths + command.memory_maze > 1:
        raise UserError("give one of --peers, --lengths and --memory-maze")
    if command.memories and not command.memory_maze:
        raise UserError("give one of --memories, --peers and --lengths")
    if command.peers:
        from clew.cli.bench_peers import bench_peers as bench
    elif command.lengths:
        from clew.cli.bench_lengths import bench_lengths as bench
    else:
        from clew.cli.bench_learner import bench_learner

        require_at_least("sequences", command.sequences, 2)
        bench = partial(bench_learner, command.memories, command.sequences)
    rounds = command.repeats or 6
    return bench(command.output, rounds=rounds, quick=command.quick, as_json=command.json)


def machine(figures: "list[Figures]") -> dict[str, Any]:
    """What the figures were measured on, and how fast it was meanwhile."""
    rates = sorted(f.product_rate for f in figures)
    return device() | {"product_rate": rates[len(rates) // 2]}


def device() -> dict[str, Any]:
    """What programs run on here."""
    import jax

    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def _show(figures: "list[Figures]", *, quick: bool) -> None:
    rows = [
        [
            f.name,
            _rate(f.acting),
            _rate(f.learning),
            _rate(f.training),
            " / ".join(
                f"{share:.0%}"
                for share in (f.acting_fraction, f.learning_fraction, f.training_fraction)
            ),
            f"{f.peak_bytes / 2**20:,.0f}",
            f"{f.compile_seconds:.1f}",
        ]
        for f in figures
    ]
    told = machine(figures)
    speed = f"{told['product_rate'] / 1e9:,.0f} GFLOP/s in matrix products"
    print_table(
        f"{told['device']}, {told['cores']} cores, {speed}",
        [
            "",
            "acting/s",
            "learning/s",
            "training/s",
            "of products",
            "peak MiB",
            "compile s",
        ],
        rows,
        "environment steps per second: median of the repeats, and how far the farthest lies from it"
        "\nof products: share of the matrix products' rate in acting / learning / training"
        + ("\nQUICK: rollouts of 32 steps and two repeats, no figures to quote" if quick else ""),
    )


def _rate(rate: "Rate") -> str:
    spread = max(rate.high - rate.median, rate.median - rate.low) / rate.median
    return f"{rate.median:,.0f} ±{spread:.0%}"
