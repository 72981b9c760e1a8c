"""What is earned in POPGym's tasks without a memory: by chance, and by who reads a step alone.

Where actions change nothing of what is seen, the best policy of a step's observation alone is
known, and so is its return: the mean over observations of the answer that is most often right. All
cards of some decks are dealt, so that what is seen says a little about what was.
"""

import csv
import math
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np

from clew.envs.popgym import POPGYM
from clew.envs.popgym.cards import KINDS, SUITS

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
    file = resources.files("clew.lab.studies.popgym") / "random_returns.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["task"]: float(row[difficulty]) for row in rows}


def memoryless_returns(difficulty: str) -> dict[str, float]:
    """The best returns of policies that read the observation of a step alone, where known."""
    made: dict[str, Any] = {task: POPGYM[task] for task in _MEMORYLESS}
    return {
        task: float(best(made[task](difficulty=difficulty))) for task, best in _MEMORYLESS.items()
    }


def _repeat_first(env: Any) -> float:
    """The suit that is seen: at the first step it is the one that is asked for.

    Later it is a little less likely than the others, but not by as much as that.
    """
    n, steps = env.num_cards, env.longest
    another = (n / len(SUITS) - 1) / (n - 1)
    same = (1 + (steps - 1) * another) / steps
    different = (steps - 1) / steps * (n / len(SUITS)) / (n - 1)
    return _return(max(same, different))


def _repeat_previous(env: Any) -> float:
    """Any suit but the one that is seen, of which there is a card less."""
    n = env.num_cards
    return _return(1.0 if env.k == 1 else n / len(SUITS) / (n - 1))


def _autoencode(env: Any) -> float:
    """The last card, which is seen as it is to be recited; then always one suit, the one that is
    shown from then on, of which a quarter of the cards is."""
    n, suits = env.num_cards, len(SUITS)
    return _return((n / suits + 1 - 1 / suits) / n)


def _count_recall(env: Any) -> float:
    """The count that is most often right for who sees which two cards these are, but not when.

    After t + 1 cards, of which the last is seen, those of a kind among the t before follow a
    hypergeometric distribution.
    """
    kinds, n = len(KINDS[env.kind]), env.num_cards
    most = n // kinds
    right = 0.0
    for same in (True, False):
        counts, there = np.zeros(most + 1), most - same
        for before in range(env.longest):
            for dealt in range(min(there, before) + 1):
                ways = math.comb(there, dealt) * math.comb(n - 1 - there, before - dealt)
                counts[dealt + same] += ways / math.comb(n - 1, before) / env.longest
        right += (1 / kinds if same else 1 - 1 / kinds) * counts[: env.num_actions].max()
    return _return(right)


def _higher_lower(env: Any) -> float:
    """What is likelier after a rank; equal ranks earn nothing, and a step in n less than 1."""
    ranks = len(KINDS["ranks"])
    each = env.num_cards // ranks
    higher = np.arange(ranks)[::-1]
    gain = np.abs(higher - higher[::-1]) * each / (env.num_cards - 1)
    return float(gain.mean() * env.longest / env.num_cards)


_MEMORYLESS: dict[str, Callable[[Any], float]] = {
    "repeat_first": _repeat_first,
    "repeat_previous": _repeat_previous,
    "autoencode": _autoencode,
    "count_recall": _count_recall,
    "higher_lower": _higher_lower,
}


def _return(right: float) -> float:
    """Of answers of which so many are right, each worth as much as a wrong one costs."""
    return 2 * right - 1
