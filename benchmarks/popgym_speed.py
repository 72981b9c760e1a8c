"""Steps per second of POPGym's tasks with random actions, clew's beside popgym's, by turns.

    pip install 'popgym[navigation]==1.0.7'
    taskset -c 0 python -m benchmarks.popgym_speed --output results/popgym-exactness

clew steps 64 environments side by side in one compiled program, popgym one environment: its steps
per second are those of 64 of them one after the other. Episodes are opened as they end, by both.
"""

from collections.abc import Iterator
from typing import Any

from benchmarks.popgym_exactness import their_task
from benchmarks.stepping import compiled_rate, gymnasium_rate, run

from clew import make_env
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES

ENVS, STEPS, THEIR_STEPS = 64, 1000, 1000
COLUMNS = ["task", "difficulty", "clew, steps/s", "popgym, steps/s", "times"]


def cases(names: list[str]) -> Iterator[Any]:
    """Tasks in all difficulties."""
    for name in names:
        for difficulty in DIFFICULTIES:
            sides = {
                "clew": compiled_rate(make_env(name, difficulty=difficulty), ENVS, STEPS),
                "popgym": gymnasium_rate(their_task(name, difficulty), THEIR_STEPS),
            }
            yield {"task": name, "difficulty": difficulty}, [name, difficulty], sides


if __name__ == "__main__":
    title = "Steps per second with random actions"
    run(__doc__, title, COLUMNS, cases, POPGYM, lambda rate: f"{rate.middle:,.0f}")
