"""Our numbers against published ones, cell by cell and over many cells."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from clew.lab.studies.report.edition import Edition
from clew.stats import Comparison, Spread, holm, welch_from_spreads
from clew.stats.comparisons import critical_value, two_sided_p

ALPHA = 0.05
DIFFERS, PERHAPS, SPLIT = "●", "○", "◇"
"""Marks: differs after Holm's correction; only without it; equal seeds on both sides that differ
from each other, which no test can judge."""
LEGEND = (
    f"{DIFFERS} differs by more than noise: Welch's test, p at most {ALPHA} after Holm's "
    f"correction over the table. {PERHAPS} p at most {ALPHA} for this cell alone, which one cell "
    f"in twenty has by chance. {SPLIT} all seeds agree on both sides but not with each other: "
    "without any spread no test can tell (three against three cannot get below p = 0.1)."
)


class Compared(NamedTuple):
    """One cell beside its published one."""

    test: Comparison
    corrected: float
    mark: str


class Difference(NamedTuple):
    """A difference of means over the same settings, with the ends of its 95% interval."""

    difference: float
    low: float
    high: float
    p: float


def beside_published(edition: Edition, settings: Sequence[str]) -> dict[tuple[str, str], Compared]:
    """Welch's test of every cell of a table that is published and has two seeds or more.

    Args:
        edition: ours.
        settings: of the table; Holm's correction is over all its tests.
    """
    tests = {}
    for model in edition.models:
        for setting in settings:
            ours, theirs = edition.spread(model, setting), edition.published.get((model, setting))
            if ours is not None and theirs is not None:
                tests[model, setting] = welch_from_spreads(ours, theirs)
    if not tests:
        return {}
    corrected = holm([test.p for test in tests.values()])
    return {
        pair: Compared(test, float(p), _mark(test, float(p)))
        for (pair, test), p in zip(tests.items(), corrected, strict=True)
    }


def _mark(test: Comparison, corrected: float) -> str:
    if test.method == "permutation":
        return SPLIT if test.p < 1 else ""
    if corrected <= ALPHA:
        return DIFFERS
    return PERHAPS if test.p <= ALPHA else ""


def mean_difference(ours: Sequence[Spread], theirs: Sequence[Spread]) -> Difference | None:
    """Whether two means over the same settings differ; None where nothing has any spread.

    With the variances v = s^2 / (n S^2) of all 2 S cells, each with n seeds:

        t = (mean_ours - mean_theirs) / sqrt(sum v),   degrees = (sum v)^2 / sum(v^2 / (n - 1))

    which is Welch's test for a sum of more than two means.

    Source:
        Welch (1947), section 2, for the degrees of freedom.
    """
    count = len(ours)
    difference = sum(a.mean - b.mean for a, b in zip(ours, theirs, strict=True)) / count
    cells = [*ours, *theirs]
    parts = [cell.deviation**2 / cell.seeds / count**2 for cell in cells]
    total = sum(parts)
    if total == 0:
        return None
    degrees = total**2 / sum(v**2 / (c.seeds - 1) for v, c in zip(parts, cells, strict=True))
    error = math.sqrt(total)
    reach = critical_value(ALPHA, degrees) * error
    p = two_sided_p(difference / error, degrees)
    return Difference(difference, difference - reach, difference + reach, p)


def signed(value: float) -> str:
    """A difference with its sign, in two decimals."""
    text = f"{value:+.2f}"
    return "0.00" if text[1:] == "0.00" else text


def interval_text(low: float, high: float) -> str:
    """The ends of an interval of differences; empty where there is none."""
    return "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"


def p_text(p: float) -> str:
    """A p-value, as precise as anybody needs it."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
