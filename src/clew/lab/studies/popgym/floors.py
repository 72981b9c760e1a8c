"""Returns in POPGym's tasks without a memory, and the best possible returns.

If actions do not change the observations, the best policy that reads only the current observation
is known, and so is its return: for each observation it gives the answer that is most often right.
So is the best policy that sees the number of the step as well.
"""

import csv
from importlib import resources


def floors(difficulty: str) -> dict[str, dict[str, float]]:
    """Floors of every task for an agent that sees its previous action.

    Returns:
        By task: "random", the return of random actions. "memoryless", the best return of a policy
        that reads only the current observation, where it is known. "step number", that of one that
        also sees the number of the step; an agent that does not see it has to count. "carried", the
        return of a policy that writes into an action what the next step needs: in RepeatFirst,
        repeating the first answer is all there is to remember.
    """
    found: dict[str, dict[str, float]] = {}
    for policy in ("random", "memoryless", "step_number"):
        for task, value in returns(policy, difficulty).items():
            found.setdefault(task, {})[policy.replace("_", " ")] = value
    found["repeat_first"]["carried"] = 1.0
    return found


def returns(policy: str, difficulty: str) -> dict[str, float]:
    """The returns of a policy, by the task's name here.

    Args:
        policy: "random", or "memoryless" or "step_number", which are known only for some tasks, or
            the bounds of `best_returns`.
        difficulty: of the tasks.

    Source: for random actions `results/popgym-exactness`, 100,000 steps of popgym 1.0.7 each; for
    the best without a memory, with the number of the step and without it, exact counts of the
    cards, made by the tests.
    """
    file = resources.files("clew.lab.studies.popgym") / f"{policy}_returns.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["task"]: float(row[difficulty]) for row in rows}


def best_returns(difficulty: str) -> dict[str, tuple[float, float]]:
    """Bounds on the best return of every task: from below, which a policy earns, and from above.

    If both are the same, this is the best return.

    Source: `results/popgym-bounds`.
    """
    known, possible = returns("best_known", difficulty), returns("best_possible", difficulty)
    return {task: (known[task], possible[task]) for task in known}
