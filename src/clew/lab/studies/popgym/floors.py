"""What is earned in POPGym's tasks without a memory: by chance, and by who reads a step alone.

Where actions change nothing of what is seen, the best policy of a step's observation alone is
known, and so is its return: the mean over observations of the answer that is most often right.
"""

import csv
from importlib import resources

RANDOM, MEMORYLESS, CARRIED = "random", "memoryless", "carried"


def floors(difficulty: str) -> dict[str, dict[str, float]]:
    """Floors of every task that an agent has which sees its previous action.

    Returns:
        By task: "random", what random actions earn. "memoryless", the best return of a policy that
        reads the observation of this step alone, where it is known. "carried", what is earned by
        who writes into an action what the next step has to know: in RepeatFirst the first answer,
        again and again, is all there is to remember.
    """
    found = {task: {RANDOM: value} for task, value in random_returns(difficulty).items()}
    for task, value in memoryless_returns(difficulty).items():
        found[task][MEMORYLESS] = value
    found["repeat_first"][CARRIED] = 1.0
    return found


def random_returns(difficulty: str) -> dict[str, float]:
    """What random actions earn in popgym's own tasks, by the task's name here.

    Source: `results/popgym-exactness`, 100,000 steps of popgym 1.0.7 each.
    """
    return _returns(RANDOM, difficulty)


def memoryless_returns(difficulty: str) -> dict[str, float]:
    """The best returns of policies that read the observation of a step alone, where known.

    Source: exact counts of the cards, which the tests make.
    """
    return _returns(MEMORYLESS, difficulty)


def _returns(policy: str, difficulty: str) -> dict[str, float]:
    file = resources.files("clew.lab.studies.popgym") / f"{policy}_returns.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["task"]: float(row[difficulty]) for row in rows}
