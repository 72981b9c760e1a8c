"""Steps per second of POPGym's tasks with random actions, clew's beside popgym's, by turns.

    pip install 'popgym[navigation]==1.0.7'
    taskset -c 0 python -m benchmarks.popgym_speed --output results/popgym-exactness

clew steps 64 environments side by side in one compiled program, popgym one environment: its steps
per second are those of 64 of them one after the other. Episodes are opened as they end, by both.
"""

import argparse
from pathlib import Path

from benchmarks.popgym_exactness import their_task
from benchmarks.stepping import beside, compiled_rate, gymnasium_rate

from clew import make_env
from clew.cli.tables import log, show
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.lab.bench.machine import device
from clew.report.document import Measured, tabulate
from clew.report.files import write_measured
from clew.run.machine import git_commit

ENVS, STEPS = 64, 1000
THEIR_STEPS = 1000


def measure(names: list[str], turns: int) -> Measured:
    """All tasks in all difficulties."""
    rows, lines = [], []
    for name in names:
        for difficulty in DIFFICULTIES:
            task = make_env(name, difficulty=difficulty)
            sides = {
                "clew": compiled_rate(task, ENVS, STEPS),
                "popgym": gymnasium_rate(their_task(name, difficulty), THEIR_STEPS),
            }
            rates, times = beside(sides, turns)
            rows.append({"task": name, "difficulty": difficulty, "times": times} | rates)
            per_second = [f"{rates[side].middle:,.0f}" for side in sides]
            lines.append([name, difficulty, *per_second, f"{times:,.0f}"])
            log(f"{name}, {difficulty}: {times:,.0f} times")
    columns = ["task", "difficulty", "clew, steps/s", "popgym, steps/s", "times"]
    table = tabulate("speed", "Steps per second with random actions", columns, lines)
    facts = {"machine": device() | {"commit": git_commit()}, "turns": turns, "rows": rows}
    return Measured("speed", facts, [table])


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(POPGYM), choices=POPGYM)
    parser.add_argument("--repeats", type=int, default=6, help="turns that count")
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    given = parser.parse_args()
    found = measure(given.tasks, given.repeats)
    if given.output:
        write_measured(found, given.output)
    show(found, as_json=False)


if __name__ == "__main__":
    main()
