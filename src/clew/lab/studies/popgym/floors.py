"""What is earned in POPGym's tasks without a memory, and what can be earned at all.

Where actions change nothing of what is seen, the best policy of a step's observation alone is
known, and so is its return: the mean over observations of the answer that is most often right.
"""

import csv
from importlib import resources


def floors(difficulty: str) -> dict[str, dict[str, float]]:
    """Floors of every task that an agent has which sees its previous action.

    Returns:
        By task: "random", what random actions earn. "memoryless", the best return of a policy that
        reads the observation of this step alone, where it is known. "carried", what is earned by
        who writes into an action what the next step has to know: in RepeatFirst the first answer,
        again and again, is all there is to remember.
    """
    found: dict[str, dict[str, float]] = {}
    for policy in ("random", "memoryless"):
        for task, value in returns(policy, difficulty).items():
            found.setdefault(task, {})[policy] = value
    found["repeat_first"]["carried"] = 1.0
    return found


def returns(policy: str, difficulty: str) -> dict[str, float]:
    """What a policy earns, by the task's name here.

    Args:
        policy: "random", or "memoryless", which is known of some tasks alone, or the bounds of
            `best_returns`.
        difficulty: of the tasks.

    Source: of random actions `results/popgym-exactness`, 100,000 steps of popgym 1.0.7 each; of
    the best without a memory exact counts of the cards, which the tests make.
    """
    file = resources.files("clew.lab.studies.popgym") / f"{policy}_returns.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["task"]: float(row[difficulty]) for row in rows}


def best_returns(difficulty: str) -> dict[str, tuple[float, float]]:
    """The best return of every task from below, which a policy earns, and from above.

    The same number twice is the best return itself.

    Source: `results/popgym-bounds`.
    """
    known, possible = returns("best_known", difficulty), returns("best_possible", difficulty)
    return {task: (known[task], possible[task]) for task in known}
