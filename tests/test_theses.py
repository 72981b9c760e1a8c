"""The map of the theses has every numbered item of both, and its names exist.

Its commands and links are tested with those of every page, in test_readme.py.
"""

import re
from pathlib import Path

import pytest

from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED
from clew.names import resolve

PAGE = (Path(__file__).parents[1] / "docs/theses.md").read_text()
PRAMANIK, MAKKINK = PAGE.split("\n## Makkink (2021)")
ITEMS = {
    "Pramanik": (
        PRAMANIK,
        [f"Figure {n}" for n in ("2.1", "2.2", "2.3", "4.1")]
        + [f"Figure 5.{n}" for n in range(1, 8)]
        + [f"Table {n}" for n in ("3.1", "4.1", "5.1", "A.1", "A.2", "A.3", "A.4")]
        + [f"Algorithm {n}" for n in range(1, 7)],
    ),
    "Makkink": (
        MAKKINK,
        ["Figure 2.1.1", "Figure 2.3.1", "Figure 3.1.1", "Figure 3.1.2", "Figure 3.5.1"]
        + [f"Figure 2.2.{n}" for n in range(1, 11)]
        + [f"Figure 4.1.{n}" for n in range(1, 6)]
        + [f"Figure 4.2.{n}" for n in range(1, 5)]
        + ["Figure 4.3.1", "Listing A.1"]
        + [f"Table {n}" for n in ("3.1", "4.1", "B.1", "C.1", "C.2", "C.3")]
        + [f"Algorithm {n}" for n in range(1, 4)],
    ),
}


def first_cells(part: str) -> str:
    """The first cell of every row, "Figures 1, 2" written as "Figure 1, Figure 2"."""
    cells = "\n".join(re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE))
    return re.sub(
        r"Figures ([\d.]+(?:, [\d.]+)*)",
        lambda match: ", ".join(f"Figure {number}" for number in match[1].split(", ")),
        cells,
    )


@pytest.mark.parametrize("thesis", ITEMS)
def test_every_item_is_there(thesis: str) -> None:
    """Figures, tables and algorithms, by their numbers."""
    part, items = ITEMS[thesis]
    cells = first_cells(part)
    missing = [item for item in items if not re.search(rf"{re.escape(item)}(?![.\d])", cells)]
    assert not missing


def test_every_name_exists() -> None:
    """Each "module:object" resolves."""
    names = set(re.findall(r"`(clew[.\w]*:\w+)`", PAGE))
    assert len(names) > 15
    for name in names:
        assert resolve(name) is not None


COLUMNS = ("as coded", "as the text means it")
COMPATIBLE, FORM = "compatible, not tested", "form only"


def verdicts(part: str, column: int) -> list[str]:
    """The verdicts of a thesis in one column, without the rows that have no result to repeat."""
    head = " \\| ".join(COLUMNS)
    tables = re.findall(rf"^\| item .*\| {head} \|\n\|[-|]+\n((?:\|.*\n)+)", part, re.MULTILINE)
    cells = [row.split("|")[column - 3].strip() for row in "".join(tables).splitlines()]
    return [cell for cell in cells if cell != "explained"]


def test_every_verdict_is_one_of_six() -> None:
    """Rows of results end in two verdicts, or say that there is none."""
    for column in range(2):
        found = verdicts(PAGE, column)
        assert len(found) > 60
        for cell in found:
            words = (HELD, NOT_HELD, UNDECIDED, NOT_RUN, COMPATIBLE, FORM)
            assert any(word in cell for word in words), cell


@pytest.mark.parametrize("thesis", ITEMS)
@pytest.mark.parametrize("column", range(2))
def test_the_counts_are_those_of_the_rows(thesis: str, column: int) -> None:
    """For each verdict; a row with more than one counts as the most open one."""
    open_ones = (NOT_RUN, UNDECIDED, COMPATIBLE, FORM)
    counts = dict.fromkeys((HELD, "in part", NOT_HELD, UNDECIDED, COMPATIBLE, FORM, NOT_RUN), 0)
    for cell in verdicts(ITEMS[thesis][0], column):
        found = [word for word in open_ones if word in cell]
        if found:
            counts[found[0]] += 1
        elif cell.startswith(NOT_HELD):
            counts[NOT_HELD] += 1
        else:
            counts["in part" if NOT_HELD in cell or f"{HELD} but" in cell else HELD] += 1
    row = " | ".join(str(count) for count in counts.values())
    expected = rf"^\| {thesis} \(20\d\d\), {COLUMNS[column]} \| {re.escape(row)} \|$"
    assert re.search(expected, PAGE, re.MULTILINE), row
