"""The best returns in POPGym's tasks of policies that see only the present step, as formulas.

If actions change nothing that is observed, the best policy of a step's observation alone is known,
and so is its return: the mean over observations of the answer that is most often right. All cards
of some decks are dealt, so that an observation says a little about earlier ones. The best policy
that sees the number of the step as well gives the answer that is most often right at that step.
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


def _repeat_first_with_step(env: Any) -> float:
    """The suit that is seen at the first step, later another one, which is a little likelier."""
    n, steps = env.num_cards, env.longest
    return _return((1 + (steps - 1) * (n / len(SUITS)) / (n - 1)) / steps)


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
    """The count that is most often right if the two cards are seen, but not the time."""
    return _return(sum(share * chances.mean(axis=0).max() for share, chances in _counts(env)))


def _count_recall_with_step(env: Any) -> float:
    """The count that is most often right at a step if the two cards are seen."""
    return _return(sum(share * chances.max(axis=1).mean() for share, chances in _counts(env)))


def _counts(env: Any) -> list[tuple[float, np.ndarray]]:
    """How often the two cards are of one kind, and how often of two, each with the probabilities of
    the answers then [steps, actions].

    After t + 1 cards, of which the last is seen, those of a kind among the t before follow a
    hypergeometric distribution.
    """
    kinds, n = len(KINDS[env.kind]), env.num_cards
    most, found = n // kinds, []
    for same in (True, False):
        chances, there = np.zeros((env.longest, most + 1)), most - same
        for before in range(env.longest):
            for dealt in range(min(there, before) + 1):
                ways = math.comb(there, dealt) * math.comb(n - 1 - there, before - dealt)
                chances[before, dealt + same] = ways / math.comb(n - 1, before)
        found.append((1 / kinds if same else 1 - 1 / kinds, chances[:, : env.num_actions]))
    return found


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
"""Of the best policy that sees a step's observation."""

COUNTED_WITH_STEP = {
    **COUNTED,
    "repeat_first": _repeat_first_with_step,
    "count_recall": _count_recall_with_step,
}
"""Of the best policy that sees a step's observation and its number.

In the other three the number is worth nothing. Cards are in random order, so that what one says
about the next, or about an earlier one, is the same at every step. In Autoencode the last card is
recited while it is seen, and of the others a quarter is right with any suit.
"""


def _return(right: float) -> float:
    """The return if this fraction of answers is right; a wrong one costs what a right one earns."""
    return 2 * right - 1
