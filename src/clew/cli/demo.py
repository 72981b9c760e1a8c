"""`clew demo`: shows on a short T-Maze that memory matters."""

import time
from dataclasses import dataclass

from clew.cli.parse import parse
from clew.errors import counted, require_at_least

ABOUT = """Trains agents with a memory (AReLiT) and agents without one on a short T-Maze, evaluates
both on fresh episodes and plots their learning curves. After Ctrl-C the same command resumes."""

INTRODUCTION = """A T-Maze: at the start a cue says up or down; 19 steps of corridor later the agent
must turn that way. It never sees the cue again, so without memory it can only guess.
"""


@dataclass(frozen=True)
class DemoCommand:
    """Options of `clew demo`."""

    run_dir: str = "runs/demo"
    """Folder for the two runs and the picture."""
    seeds: int = 2
    """Agents of each kind."""
    episodes: int = 500
    """Fresh episodes that each agent is evaluated on."""


def main(args: list[str]) -> int:
    """Runs the demonstration and prints what it showed."""
    command = parse(DemoCommand, args, command="demo", about=ABOUT)
    require_at_least("seeds", command.seeds, 1)
    require_at_least("episodes", command.episodes, 1)
    began = time.monotonic()
    print(INTRODUCTION, flush=True)
    from clew.cli.live import listener  # start: rich takes 0.1 s
    from clew.lab.demo import LABELS, run  # start: JAX takes a second
    from clew.run.progress import format_seconds  # start: JAX takes a second
    from clew.run.sharding import open_devices  # start: JAX takes a second

    open_devices()
    success, picture = run(
        command.run_dir, seeds=command.seeds, episodes=command.episodes, progress=listener
    )
    agents = counted(command.seeds, "agent")
    episodes = f"{command.seeds * command.episodes:,} fresh episodes of {agents}"
    print(f"\ncorrect turns in {episodes}, 95% interval over these, not over seeds:")
    width = max(map(len, LABELS.values()))
    for memory, rate in success.items():
        print(f"  {LABELS[memory]:<{width}}  {rate:.3f}")
    print(f"\npicture: {picture}   ({format_seconds(time.monotonic() - began)} in all)")
    print("next: clew train --memory gru --seeds 2, or clew models to list all memories")
    return 0
