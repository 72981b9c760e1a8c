"""The best returns in POPGym's tasks of policies that see only the present step, as formulas.

If actions change nothing that is observed, the best policy of a step's observation alone is known,
and so is its return: the mean over observations of the answer that is most often right. All cards
of some decks are dealt, so that an observation says a little about earlier ones.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from clew.envs.popgym.cards import KINDS, SUITS


def _repeat_first(env: Any) -> float:
    """The suit that is seen: at the first step it is the answer.

    Later it is slightly less likely than the others, but not by as much as it gains.
    """
    n, steps = env.num_cards, env.longest
    another = (n / len(SUITS) - 1) / (n - 1)
    same = (1 + (steps - 1) * another) / steps
    different = (steps - 1) / steps * (n / len(SUITS)) / (n - 1)
    return _return(max(same, different))


def _repeat_previous(env: Any) -> float:
    """Any suit but the one that is seen, of which one card less is left."""
    n = env.num_cards
    return _return(1.0 if env.k == 1 else n / len(SUITS) / (n - 1))


def _autoencode(env: Any) -> float:
    """The last card, which is visible when it has to be recited; then always one suit, the one that
    is shown from then on, a quarter of the cards."""
    n, suits = env.num_cards, len(SUITS)
    return _return((n / suits + 1 - 1 / suits) / n)


def _count_recall(env: Any) -> float:
    """The count that is most often right if the two cards are seen, but not the time.

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
    """The likelier answer after a rank; equal ranks earn nothing, and a step in n less than 1."""
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
    """The return if this fraction of answers is right; a wrong one costs what a right one earns."""
    return 2 * right - 1
