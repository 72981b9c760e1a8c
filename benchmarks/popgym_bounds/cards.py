"""HigherLower and Concentration: optimal returns, computed exactly."""

import functools
import math
from collections import Counter

import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, exact
from scipy.special import binom

from clew.envs.popgym import Concentration, HigherLower
from clew.envs.popgym.cards import KINDS, RANKS

Kind = tuple[int, int]
"""How many cards of a kind lie at known places, and how many at others."""
State = tuple[Kind, ...]
"""The state of Concentration: every kind, sorted, since kinds are interchangeable."""


def higher_lower(env: HigherLower) -> Bounds:
    """A player who counts cards always knows whether more of the rest are higher or lower.

    With `left` cards to come, of which H are higher and L lower than the present one, a step is
    worth |H - L| / left; H and L are drawn without replacement.
    """
    each, total = env.num_cards // len(RANKS), 0.0
    for left in range(1, env.num_cards):
        for rank in range(len(RANKS)):
            above, below = (len(RANKS) - 1 - rank) * each, rank * each
            higher, lower = np.ogrid[: above + 1, : below + 1]
            ways = binom(above, higher) * binom(below, lower)
            ways = ways * binom(each - 1, left - higher - lower)
            total += (ways * np.abs(higher - lower)).sum() / binom(env.num_cards - 1, left) / left
    return exact(total / len(RANKS) / env.num_cards, "counting the cards")


def concentration(env: Concentration) -> Bounds:
    """All pairs earn 1, and two cards that differ cost 2 of the time limit.

    The time limit does not matter: an optimal policy has at most as many turns without a pair as
    there are pairs, which fits within the limit.
    """
    kinds = len(KINDS[env.kind])
    lost = expected_mismatches(((0, env.num_actions // kinds),) * kinds)
    return exact(1.0 - 2.0 / env.time_limit * lost, "perfect memory")


@functools.cache
def expected_mismatches(state: State) -> float:
    """The least expected number of turns without a pair, by dynamic programming over turns.

    The actions are a known pair, or a first card that is known or unknown. Turning a card that
    already lies face up costs as much as a turn and shows nothing.
    """
    kinds, unknown = _counted(state)
    if not unknown:
        return 0.0
    values = [expected_mismatches(_after(state, kind, -2, 0)) for kind in kinds if kind[0] >= 2]
    values += [_second_unknown(state, kind) for kind in kinds if kind[0]]
    shown = {kind: kind[1] * many / unknown for kind, many in kinds.items() if kind[1]}
    return min([*values, sum(p * _first_unknown(state, kind) for kind, p in shown.items())])


def _first_unknown(state: State, kind: Kind) -> float:
    """After an unknown first card of this kind; the second is known, unknown, or makes a pair."""
    known = _after(state, kind, 1, -1)
    values = [1.0 + expected_mismatches(known)]
    values.append(_second_unknown(known, _paired_if_known(kind[0] + 1, kind[1] - 1)))
    if kind[0]:
        values.append(expected_mismatches(_after(state, kind, -1, -1)))
    return min(values)


def _second_unknown(state: State, first: Kind) -> float:
    """After a first card of a kind, whose place is known, an unknown one."""
    kinds, unknown = _counted(state)
    if not unknown:
        return math.inf
    total = first[1] * expected_mismatches(_after(state, first, -1, -1)) if first[1] else 0.0
    for kind, many in kinds.items():
        others = many - (kind == first)
        if kind[1] and others:
            total += others * kind[1] * (1.0 + expected_mismatches(_after(state, kind, 1, -1)))
    return total / unknown


def _counted(state: State) -> tuple[Counter[Kind], int]:
    """The number of kinds of each form, and the number of cards at unknown places."""
    kinds = Counter(state)
    return kinds, sum(kind[1] * many for kind, many in kinds.items())


def _after(state: State, kind: Kind, known: int, unknown: int) -> State:
    """A kind with this many more cards at known and at unknown places."""
    others = list(state)
    others.remove(kind)
    return tuple(sorted([*others, _paired_if_known(kind[0] + known, kind[1] + unknown)]))


def _paired_if_known(known: int, unknown: int) -> Kind:
    """A kind, without its cards if all its places are known: its pairs are certain."""
    return (known, unknown) if unknown else (0, 0)
