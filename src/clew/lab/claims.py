"""Claims of a publication, checked against results: one type, one vocabulary, one table.

A study states its claims as data: a source, a sentence, and a function from its results to
findings, the comparisons on which the claim rests. The verdicts follow from the numbers by rule and
are never written by hand.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from clew.errors import UserError
from clew.report.document import Cell, Column, Table, counted, tabulate
from clew.stats import Comparison, Interval, seeds_needed

HELD, NOT_HELD, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
VERDICTS = (HELD, NOT_HELD, UNDECIDED, NOT_RUN)
"""All possible verdicts on a claim."""
_TONES = {HELD: "good", NOT_HELD: "bad"}

Results = TypeVar("Results")


@dataclass(frozen=True)
class Finding:
    """One comparison on which a claim rests."""

    comparison: str
    verdict: str
    """One of `VERDICTS`."""
    seeds: str = "–"
    """The number of seeds."""
    seen: str = "–"
    """The estimate with its interval."""
    needed: int | None = None
    """Seeds that would decide it, if means and deviations are as observed."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The numbers, for the CSV file."""


class Judged(NamedTuple):
    """A claim and its findings."""

    source: str
    text: str
    findings: Sequence[Finding]

    @property
    def verdict(self) -> str:
        """The claim holds if every finding does, and does not hold if one does not."""
        return overall(finding.verdict for finding in self.findings)

    @property
    def needed(self) -> int | None:
        """Seeds needed by the finding that is hardest to decide.

        None if the claim is decided, or if the number is unknown for one of the undecided findings.
        """
        needed = [found.needed for found in self.findings if found.verdict == UNDECIDED]
        known = [number for number in needed if number is not None]
        if self.verdict != UNDECIDED or len(known) < len(needed):
            return None
        return max(known, default=None)

    def count(self, verdict: str) -> int:
        """How many findings have a verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)


@dataclass(frozen=True)
class Claim(Generic[Results]):
    """A sentence of a publication that results can support or contradict."""

    source: str
    """Where the claim is made, for example "Figure 5.2"."""
    text: str
    find: Callable[[Results], Sequence[Finding]]
    """The comparisons on which it rests; those that were not run are findings too."""

    def judge(self, results: Results) -> Judged:
        """Judges the claim by the results."""
        return Judged(self.source, self.text, self.find(results))


def within(interval: Interval | Comparison, low: float, high: float = math.inf) -> str:
    """Held if the whole interval is in the range, not held if all of it is outside."""
    if low <= interval.low and interval.high <= high:
        return HELD
    return NOT_HELD if interval.high < low or interval.low > high else UNDECIDED


MOST_SEEDS = 10_000
"""The largest number of seeds that is reported."""


def seeds_that_decide(difference: float, deviation_x: float, deviation_y: float) -> int | None:
    """Seeds per group with which such a difference would be detected with a power of 0.8.

    Returns:
        The number, None if it is above `MOST_SEEDS` or there is no difference.
    """
    try:
        return seeds_needed(difference, deviation_x, deviation_y, most=MOST_SEEDS).seeds
    except UserError:
        return None


def overall(verdicts: Iterable[str]) -> str:
    """The verdict of a claim with several findings.

    It is held if all of them are, and not held if one is not. If none was run, it was not run;
    anything else is undecided.
    """
    different = set(verdicts)
    if NOT_HELD in different:
        return NOT_HELD
    return different.pop() if len(different) == 1 else UNDECIDED


def counts(judged: Sequence[Judged]) -> list[tuple[str, str]]:
    """How many claims have each verdict, for the numbers at the top of a report."""
    verdicts = [claim.verdict for claim in judged]
    first = (str(verdicts.count(HELD)), f"of {len(judged)} claims held")
    return [first, *((str(verdicts.count(v)), v) for v in VERDICTS[1:])]


def sentence(judged: Sequence[Judged]) -> str:
    """The outcome of all claims in one line."""
    first, *others = counts(judged)
    return f"{first[0]} {first[1]}, {', '.join(f'{number} {word}' for number, word in others)}"


def verdict_on(judged: Sequence[Judged], source: str) -> str:
    """The joint verdict on all claims of one source, for the title of its figure."""
    return overall(claim.verdict for claim in judged if claim.source == source)


def verdict_cell(verdict: str, needed: str = "") -> Cell:
    """A table cell with a verdict, and the seeds that would decide it."""
    return Cell(verdict + needed, verdict=_TONES.get(verdict, "open"))


def tables(
    judged: Sequence[Judged], slug: str, title: str, note: str, details: str = ""
) -> list[Table]:
    """Every claim with its verdict, and every comparison behind them.

    Args:
        slug: prefix of the names of the tables' files.
        title: of the first table, before the outcome.
        note: the rule by which a comparison holds.
        details: a note on the comparisons.
    """
    rows = []
    for claim in judged:
        needed = f", {claim.needed:,} seeds would decide" if claim.needed else ""
        found = [Cell(str(claim.count(verdict))) for verdict in VERDICTS]
        below = (claim.source,) if claim.source else ()
        rows.append([Cell(claim.text, below), verdict_cell(claim.verdict, needed), *found])
    columns = ["claim", "verdict", *(Column(verdict, "comparisons") for verdict in VERDICTS)]
    title, note = f"{title}: {sentence(judged)}", f"{note} {RULE}"
    found = tabulate(f"{slug}-claims", title, columns, rows, note)
    return [found, _details(judged, slug, details)]


RULE = (
    "A claim holds if all of its comparisons hold; one comparison that does not hold refutes it. "
    "The verdicts are computed from the numbers."
)


def _details(judged: Sequence[Judged], slug: str, note: str) -> Table:
    rows, records = [], []
    for claim in judged:
        for one in claim.findings:
            needed = f", {counted(one.needed, 'seed')}" if one.needed else ""
            cell = verdict_cell(one.verdict, needed)
            rows.append([claim.text, one.comparison, one.seeds, one.seen, cell])
            record = {"source": claim.source, "claim": claim.text, "comparison": one.comparison}
            record |= {"seeds": one.seeds, "seen": one.seen, **one.record}
            records.append(record | {"verdict": one.verdict, "seeds_needed": one.needed})
    columns = ("claim", "comparison", "seeds", "seen", "verdict")
    title = "Every comparison behind the verdicts"
    return tabulate(f"{slug}-claims-comparisons", title, columns, rows, note, records, folded=True)
