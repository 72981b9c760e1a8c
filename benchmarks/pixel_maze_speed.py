"""Frames per second of the pixel maze beside Memory Maze's, random actions, by turns on one core.

    make test-memory-maze  # or pip install 'clew[memory-maze]'
    taskset -c 0 python -m benchmarks.pixel_maze_speed --output results/pixel-maze-speed

clew steps 64 mazes side by side in one compiled program, Memory Maze one environment in a process:
its steps per second are those of 64 of them one after the other. Both are measured with the
openings of episodes that fall into a measurement.
"""

import argparse
from pathlib import Path

import gymnasium
from benchmarks.stepping import beside, compiled_rate, gymnasium_rate

from clew import make_env
from clew.cli.tables import log, show
from clew.envs.pixel_maze import SIZES
from clew.lab.bench.machine import device
from clew.report.document import Measured, tabulate
from clew.report.files import write_measured
from clew.run.machine import git_commit

ENVS, STEPS, THEIR_STEPS = 64, 100, 300


def measure(sizes: list[int], turns: int) -> Measured:
    """Both mazes in every size."""
    rows, lines = [], []
    for size in sizes:
        theirs = gymnasium.make(f"clew:clew/MemoryMaze-{size}x{size}-v0")
        sides = {
            "pixel maze": compiled_rate(make_env("pixel_maze", size=size), ENVS, STEPS),
            "Memory Maze": gymnasium_rate(theirs, THEIR_STEPS),
        }
        rates, times = beside(sides, turns)
        theirs.close()
        rows.append({"size": size, "times": times} | rates)
        per_second = [f"{rates[side]:,.0f}" for side in sides]
        lines.append([f"{size} x {size}", *per_second, f"{times:,.0f}"])
        log(f"{size} x {size}: {times:,.0f} times")
    columns = ["size", "pixel maze, frames/s", "Memory Maze, frames/s", "times"]
    table = tabulate("speed", "Frames per second with random actions", columns, lines)
    facts = {"machine": device() | {"commit": git_commit()}, "turns": turns, "rows": rows}
    return Measured("speed", facts, [table])


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--repeats", type=int, default=6, help="turns that count")
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    given = parser.parse_args()
    found = measure(given.sizes, given.repeats)
    if given.output:
        write_measured(found, given.output)
    show(found, as_json=False)


if __name__ == "__main__":
    main()
