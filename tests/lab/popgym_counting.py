"""The best returns in POPGym's tasks of who reads a step alone, as formulas.

Where actions change nothing of what is seen, the best policy of a step's observation alone is
known, and so is its return: the mean over observations of the answer that is most often right. All
cards of some decks are dealt, so that what is seen says a little about what was.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from clew.envs.popgym.cards import KINDS, SUITS


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


COUNTED: dict[str, Callable[[Any], float]] = {
    "repeat_first": _repeat_first,
    "repeat_previous": _repeat_previous,
    "autoencode": _autoencode,
    "count_recall": _count_recall,
    "higher_lower": _higher_lower,
}


def _return(right: float) -> float:
    """Of answers of which so many are right, each worth as much as a wrong one costs."""
    return 2 * right - 1
