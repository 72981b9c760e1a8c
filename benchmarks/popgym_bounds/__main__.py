"""The best returns in POPGym's tasks, and what is earned without a memory, as far as known.

    python -m benchmarks.popgym_bounds --output results/popgym-bounds

A best return is computed, or it is between what a policy with memory earns and what nobody can. It
takes a few minutes of one core, and no agent. The package has the numbers in
`src/clew/lab/studies/popgym/best_known_returns.csv` and `best_possible_returns.csv`.
"""

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measured import publish
from benchmarks.options import described
from benchmarks.popgym_bounds import boards, cards, control, mazes
from benchmarks.popgym_bounds.bracket import Bracket, Estimate, exact

from clew import make_env
from clew.cli.tables import log
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import git_commit

BRACKETS: dict[str, Callable[[Any], Bracket]] = {
    **dict.fromkeys(
        ("autoencode", "count_recall", "repeat_first", "repeat_previous"),
        lambda env: exact(1.0, "perfect memory"),
    ),
    "battleship": boards.battleship,
    "concentration": cards.concentration,
    "higher_lower": cards.higher_lower,
    "labyrinth_escape": mazes.labyrinth_escape,
    "labyrinth_explore": mazes.labyrinth_explore,
    "mine_sweeper": boards.mine_sweeper,
    "multiarmed_bandit": cards.multiarmed_bandit,
    "noisy_position_only_cartpole": control.cartpole,
    "noisy_position_only_pendulum": control.pendulum,
    "position_only_cartpole": control.cartpole,
    "position_only_pendulum": control.pendulum,
    "velocity_only_cartpole": control.cartpole,
}
FLOORS: dict[tuple[str, bool, str], Callable[[Any], Estimate]] = {
    ("multiarmed_bandit", False, "one arm after a payment, else any other"): (
        cards.one_arm_after_a_payment
    ),
    ("multiarmed_bandit", True, "the same arm after a payment, else the next"): cards.win_stay,
    ("battleship", True, "square after square"): boards.swept,
    ("labyrinth_escape", False, "along the wall"): mazes.escaped_along_the_wall,
    ("labyrinth_explore", False, "along the wall"): mazes.explored_along_the_wall,
}
"""By task, whether the policy sees its previous action, and the policy. The labyrinths show the
last action to everybody."""


def best(task: str, difficulty: str) -> dict[str, Any]:
    """A row of what the best return is."""
    bracket = BRACKETS[task](make_env(task, difficulty=difficulty))
    log(f"{task}, {difficulty}: {bracket.low.value:.4f} to {bracket.high.value:.4f}")
    return {
        "task": task,
        "difficulty": difficulty,
        "low": bracket.low.value,
        "low_error": bracket.low.error,
        "high": bracket.high.value,
        "high_error": bracket.high.error,
        "policy": bracket.policy,
        "reason": bracket.reason,
    }


def floor(task: str, sees_action: bool, policy: str, difficulty: str) -> dict[str, Any]:
    """A row of what a policy without a memory earns."""
    earned = FLOORS[task, sees_action, policy](make_env(task, difficulty=difficulty))
    log(f"{task}, {difficulty}, {policy}: {earned.value:.4f}")
    return {
        "task": task,
        "difficulty": difficulty,
        "return": earned.value,
        "error": earned.error,
        "sees_previous_action": sees_action,
        "policy": policy,
    }


def main() -> None:
    """Computes, prints and writes."""
    parser = described(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(BRACKETS), choices=BRACKETS)
    parser.add_argument("--difficulties", nargs="+", default=DIFFICULTIES, choices=DIFFICULTIES)
    parser.add_argument("--output")
    given = parser.parse_args()
    sys.setrecursionlimit(10_000)  # concentration, a few calls for every turn
    bests = [best(task, difficulty) for task in given.tasks for difficulty in given.difficulties]
    floors = [
        floor(*key, difficulty)
        for key in FLOORS
        if key[0] in given.tasks
        for difficulty in given.difficulties
    ]
    data = {"about": {"commit": git_commit()}, "best": bests, "without_memory": floors}
    publish(Measured("bounds", data, [_table(bests)]), given.output)


def _table(rows: list[dict[str, Any]]) -> Table:
    lines = [
        [row["task"], row["difficulty"], f"{row['low']:.3f}", f"{row['high']:.3f}"]
        + [row["policy"], row["reason"]]
        for row in rows
    ]
    columns = ("task", "difficulty", "earned", "at most", "by", "because")
    return tabulate("bounds", "Best returns", columns, lines)


if __name__ == "__main__":
    main()
