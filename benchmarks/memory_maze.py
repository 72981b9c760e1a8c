"""How fast Memory Maze steps: as shipped and as clew builds it, in one process and in two.

    python -m benchmarks.memory_maze --size 9 --turns 3 --seconds 10 --json results.json

Needs `pip install 'clew[memory-maze]'`. Every figure comes from fresh processes that step at the
same time once all of them are ready. Each uses one thread of Mesa's renderer and random actions
that mostly go forward, from the first step of an episode on; the cases take turns. Rates depend on
the load of the machine; processor time per step hardly depends on other programs. `reset` is the
time to open a next episode; its second number is the time to build a task anew, as with a seed.
"""

import argparse
import json
import os
import platform
import resource
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.options import described
from benchmarks.processes import await_start, side_by_side

from clew.lab.bench.timing import by_turns, estimate

CASES = [(patched, processes) for patched in (True, False) for processes in (1, 2)]


def work(size: int, patched: bool, seconds: float, seed: int) -> None:
    """Steps one environment for this long, at the same time as others; prints its figures."""
    from clew.bridges.memory_maze import MemoryMazeEnv

    env = MemoryMazeEnv(size, patched=patched)
    env.reset(seed=seed)
    resets = {}
    for name, again in {"next": None, "anew": seed}.items():
        began = time.process_time()
        env.reset(seed=again)
        resets[name] = time.process_time() - began
    rng = np.random.default_rng(seed)
    env.step(1)
    await_start()
    steps, began, worked = 0, time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - began) < seconds:
        *_, truncated, _ = env.step(rng.choice([1, 1, 4, 5]))
        steps += 1
        if truncated:
            break
    worked = time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak /= 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    figures = {"rate": steps / passed, "cpu_ms": 1e3 * worked / steps, "peak_mib": peak}
    print(json.dumps(figures | {f"{name}_s": value for name, value in resets.items()}))
    env.close()


def measure(size: int, patched: bool, processes: int, seconds: float) -> list[dict[str, float]]:
    """The figures of several processes that step at the same time."""
    words = ["-m", "benchmarks.memory_maze", "--size", str(size), "--seconds", str(seconds)]
    words += ["--work", "patched" if patched else "shipped"]
    programs = [[*words, "--seed", str(seed)] for seed in range(processes)]
    return side_by_side(programs, {"LP_NUM_THREADS": "1", "MUJOCO_GL": "egl"})


def summary(turns: list[list[dict[str, float]]]) -> dict[str, float]:
    """Medians over the turns: the rate of all processes together, the others of one of them."""
    rates = [sum(figures["rate"] for figures in turn) for turn in turns]
    row = {"rate": estimate(rates).middle, "least": min(rates), "most": max(rates)}
    for name in ("cpu_ms", "peak_mib", "next_s", "anew_s"):
        row[name] = estimate([figures[name] for turn in turns for figures in turn]).middle
    return row


def main() -> None:
    """Measures the cases by turns, and prints a table."""
    parser = described(__doc__)
    parser.add_argument("--size", type=int, default=9)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most an episode")
    parser.add_argument("--json", type=Path, help="write all figures here as well")
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--work", choices=["patched", "shipped"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.size, given.work == "patched", given.seconds, given.seed)
        return
    loads: list[float] = []

    def log(turn: str) -> None:
        loads.append(os.getloadavg()[0])
        print(turn, file=sys.stderr)

    measures = {case: partial(measure, given.size, *case, given.seconds) for case in CASES}
    turns = by_turns(measures, given.turns, log=log)
    loads.append(os.getloadavg()[0])
    rows = [
        {"patched": patched, "processes": processes, **summary(found)}
        for (patched, processes), found in turns.items()
    ]
    for row in rows:
        print(
            f"{given.size}x{given.size} {'patched' if row['patched'] else 'as shipped':10} "
            f"{row['processes']} process(es): {row['rate']:.0f} steps/s ({row['least']:.0f} to "
            f"{row['most']:.0f}), {row['cpu_ms']:.1f} CPU ms a step, reset {row['next_s']:.2f} / "
            f"{row['anew_s']:.2f} CPU s, peak {row['peak_mib']:.0f} MiB"
        )
    if given.json:
        machine = {"cores": os.cpu_count(), "machine": platform.machine(), "loads": loads}
        machine |= {"python": platform.python_version(), "command": " ".join(sys.argv)}
        report = {"size": given.size, "machine": machine, "rows": rows}
        report["turns"] = [
            {"patched": patched, "processes": processes, "found": found}
            for (patched, processes), found in turns.items()
        ]
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
