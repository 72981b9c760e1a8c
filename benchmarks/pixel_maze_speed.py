"""Frames per second of the pixel maze beside Memory Maze's, random actions, by turns on one core.

    make test-memory-maze  # or pip install 'clew[memory-maze]'
    taskset -c 0 python -m benchmarks.pixel_maze_speed --output results/pixel-maze-speed

clew steps 64 mazes at once in one compiled program; Memory Maze steps one environment in a process,
so its steps per second are those of 64 of them one after another. Both rates include the episode
resets that fall into a measurement.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import gymnasium
from benchmarks.options import described
from benchmarks.stepping import compiled_rate, gymnasium_rate, run

from clew import make_env
from clew.envs.pixel_maze import SIZES

ENVS, STEPS, THEIR_STEPS = 64, 100, 300


def cases(given: argparse.Namespace) -> Iterator[Any]:
    """Both mazes in every size."""
    for size in given.sizes:
        theirs = gymnasium.make(f"clew:clew/MemoryMaze-{size}x{size}-v0")
        sides = {
            "pixel maze": compiled_rate(make_env("pixel_maze", size=size), ENVS, STEPS),
            "Memory Maze": gymnasium_rate(theirs, THEIR_STEPS),
        }
        yield {"size": size}, [f"{size} x {size}"], sides
        theirs.close()


if __name__ == "__main__":
    title = "Frames per second with random actions"
    run(described(__doc__), title, "frames/s", cases, ("--sizes", SIZES))
