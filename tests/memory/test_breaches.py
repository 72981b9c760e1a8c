"""Every planted breach is caught, by the most specific law, in a check as users run it."""

from pathlib import Path

import breaches
import pytest
from breaches import BREACHES, UNSEEN, Breach

from clew.memory.laws import check
from memory_samples import quick_compilation

__all__ = ["quick_compilation"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "laws.md"


def first_broken(breach: Breach) -> str:
    """The law that a check names first, or nothing."""
    report = check(breach.make(), raise_on_failure=False)
    return "" if report.passed else report.failures[0].law


@pytest.mark.slow
@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.what)
def test_every_planted_breach_is_caught(breach: Breach) -> None:
    """With the default lengths of `check`."""
    assert first_broken(breach) == breach.law


@pytest.mark.slow
@pytest.mark.parametrize("breach", UNSEEN, ids=lambda breach: breach.what)
def test_what_no_law_sees_passes(breach: Breach) -> None:
    """So the documentation lists it for a reason."""
    assert first_broken(breach) == ""


def test_the_documentation_has_the_tables() -> None:
    """They equal the output of `python tests/memory/breaches.py`."""
    assert len(BREACHES) >= 45
    assert len({breach.what for breach in (*BREACHES, *UNSEEN)}) == len(BREACHES) + len(UNSEEN)
    text = DOCUMENT.read_text()
    assert breaches.caught_table() in text and breaches.unseen_table() in text
