"""What is said of a claim: held, not held, undecided, or not run."""

from collections.abc import Iterable

from clew.report.document import Cell

HELD, NOT_HELD, OPEN, NOT_RUN = "held", "not held", "undecided", "not run"
_TONES = {HELD: "good", NOT_HELD: "bad"}


def of_parts(verdicts: Iterable[str]) -> str:
    """The verdict of a claim of several parts: it holds if all do, and not if one does not."""
    different = set(verdicts)
    if NOT_HELD in different:
        return NOT_HELD
    return different.pop() if len(different) == 1 else OPEN


def verdict_cell(verdict: str, more: str = "") -> Cell:
    """A verdict in a table, and what would decide it."""
    return Cell(verdict + more, verdict=_TONES.get(verdict, "open"))
