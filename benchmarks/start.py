"""Seconds to the first training step by two checkouts of clew, by turns.

    python benchmarks/start.py BEFORE AFTER --turns 5 --output start.json

Each checkout is the folder that has `src`; both run in this interpreter's environment. Every turn
starts `clew train` (or with --preset an agent of the thesis) cold and then warm by each.
"""

import argparse
import json
import os
import subprocess
from functools import partial
from pathlib import Path

from clew.lab.bench.machine import device
from clew.lab.bench.start import COMMANDS, cold_and_warm
from clew.lab.bench.timing import by_turns, estimate
from clew.memory.kernels import why_not


def starts(checkout: Path, arguments: tuple[str, ...]) -> list[float]:
    """Seconds of a cold and of a warm start by a checkout's code."""
    os.environ["PYTHONPATH"] = str(checkout / "src")
    return cold_and_warm(arguments)


def commit(checkout: Path) -> str:
    """What a checkout holds."""
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measures, and writes every start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--commands", nargs="+", default=["clew train"], choices=COMMANDS)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    why_not()  # builds the kernels
    checkouts = {"before": given.before, "after": given.after}
    measures = {
        (name, which): partial(starts, checkout, COMMANDS[name])
        for name in given.commands
        for which, checkout in checkouts.items()
    }
    found = by_turns(measures, given.turns, log=print)
    rows = []
    for (name, which), seconds in found.items():
        cold, warm = zip(*seconds, strict=True)
        print(f"{name}, {which}: cold {estimate(cold):.1f} s, warm {estimate(warm):.1f} s")
        rows.append({"name": name, "which": which, "cold": cold, "warm": warm})
    commits = {which: commit(checkout) for which, checkout in checkouts.items()}
    data = {"machine": device(), "commits": commits, "starts": rows}
    given.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
