"""Bounds on the optimal returns of POPGym's tasks, and returns without a memory.

    python -m benchmarks.popgym_bounds --output results/popgym-bounds

An optimal return is computed exactly, or lies between the return of a policy with memory and that
of a relaxation. It takes a few minutes of one core, and no trained agent. The numbers are in
`src/clew/lab/studies/popgym/best_known_returns.csv` and `best_possible_returns.csv`.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

from benchmarks.measured import publish, redrawn
from benchmarks.options import described
from benchmarks.plans import ending_as_commands
from benchmarks.popgym_bounds import (
    bandit,
    battleship,
    cards,
    cartpole,
    labyrinth,
    mine_sweeper,
    pendulum,
)
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, exact

from clew import make_env
from clew.cli.tables import log
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import git_commit

BOUNDS: dict[str, Callable[[Any], Bounds]] = {
    **dict.fromkeys(
        ("autoencode", "count_recall", "repeat_first", "repeat_previous"),
        lambda env: exact(1.0, "perfect memory"),
    ),
    "battleship": battleship.battleship,
    "concentration": cards.concentration,
    "higher_lower": cards.higher_lower,
    "labyrinth_escape": labyrinth.labyrinth_escape,
    "labyrinth_explore": labyrinth.labyrinth_explore,
    "mine_sweeper": mine_sweeper.mine_sweeper,
    "multiarmed_bandit": bandit.multiarmed_bandit,
    "noisy_position_only_cartpole": cartpole.cartpole,
    "noisy_position_only_pendulum": pendulum.pendulum,
    "position_only_cartpole": cartpole.cartpole,
    "position_only_pendulum": pendulum.pendulum,
    "velocity_only_cartpole": cartpole.cartpole,
}


class Policy(NamedTuple):
    """A policy without a memory."""

    task: str
    sees_previous_action: bool
    """The labyrinths show the previous action to every policy."""
    name: str
    earns: Callable[[Any], Estimate]


MEMORYLESS = (
    Policy("multiarmed_bandit", False, "one arm after a payment, else any other", bandit.one_arm),
    Policy(
        "multiarmed_bandit", True, "the same arm after a payment, else the next", bandit.win_stay
    ),
    Policy("battleship", True, "square after square", battleship.shots_in_order),
    Policy("labyrinth_escape", False, "along the wall", labyrinth.escape_along_the_wall),
    Policy("labyrinth_explore", False, "along the wall", labyrinth.explore_along_the_wall),
)


Row = dict[str, Any]


def bounds_row(task: str, difficulty: str) -> Row:
    """The known bounds on the optimal return."""
    found = BOUNDS[task](make_env(task, difficulty=difficulty))
    log(f"{task}, {difficulty}: {found.lower.mean:.4f} to {found.upper.mean:.4f}")
    return {
        "task": task,
        "difficulty": difficulty,
        "low": found.lower.mean,
        "low_error": found.lower.standard_error,
        "high": found.upper.mean,
        "high_error": found.upper.standard_error,
        "policy": found.policy,
        "reason": found.reason,
    }


def memoryless_row(policy: Policy, difficulty: str) -> Row:
    """The return of a policy without a memory."""
    earned = policy.earns(make_env(policy.task, difficulty=difficulty))
    log(f"{policy.task}, {difficulty}, {policy.name}: {earned.mean:.4f}")
    return {
        "task": policy.task,
        "difficulty": difficulty,
        "return": earned.mean,
        "error": earned.standard_error,
        "sees_previous_action": policy.sees_previous_action,
        "policy": policy.name,
    }


def compute(tasks: Sequence[str], difficulties: Sequence[str]) -> Measured:
    """The bounds of these tasks, and the returns of policies without a memory."""
    bests = [bounds_row(task, difficulty) for task, difficulty in product(tasks, difficulties)]
    without = [
        memoryless_row(policy, difficulty)
        for policy in MEMORYLESS
        for difficulty in difficulties
        if policy.task in tasks
    ]
    return document({"commit": git_commit()}, bests, without)


def document(about: Row, best: Sequence[Row], without_memory: Sequence[Row]) -> Measured:
    """The rows, as `bounds.json` and `bounds.md`."""
    data = {"about": about, "best": best, "without_memory": without_memory}
    return Measured("bounds", data, [_table(best)])


def main() -> None:
    """Computes, prints and writes."""
    parser = described(__doc__, draws=True)
    parser.add_argument("--tasks", nargs="+", default=list(BOUNDS), choices=BOUNDS)
    parser.add_argument("--difficulties", nargs="+", default=DIFFICULTIES, choices=DIFFICULTIES)
    parser.add_argument("--output")
    given = parser.parse_args()
    sys.setrecursionlimit(10_000)  # for concentration: a few calls for every turn
    with ending_as_commands():
        if given.redraw:
            found = redrawn(document, given.output, "bounds")
        else:
            found = compute(given.tasks, given.difficulties)
        publish(found, given.output)


def _table(rows: Sequence[Row]) -> Table:
    lines = [
        [row["task"], row["difficulty"], f"{row['low']:.3f}", f"{row['high']:.3f}"]
        + [row["policy"], row["reason"]]
        for row in rows
    ]
    columns = ("task", "difficulty", "at least", "at most", "policy", "upper bound")
    return tabulate("bounds", "Bounds on the optimal returns", columns, lines)


if __name__ == "__main__":
    main()
