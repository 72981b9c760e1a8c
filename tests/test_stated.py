"""What README.md and the pages of results/ state is what the rows beside them say."""

from pathlib import Path

import pytest

from stated import Wrong, check_page, unmarked_tables

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", *sorted((ROOT / "results").glob("*/README.md")))
}


@pytest.mark.parametrize("name", PAGES)
def test_stated_figures_are_those_of_the_rows(name: str) -> None:
    """Every marked one."""
    assert check_page(PAGES[name]) == []


def test_every_table_with_figures_has_a_reference() -> None:
    """Which may waive a column whose rows are not kept, or which is of a publication."""
    assert [name for name, page in PAGES.items() if unmarked_tables(page)] == []


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """In a table, in the text, and in a column that nothing is said of."""
    (tmp_path / "rows.csv").write_text("agent,score\na,0.25\nb,0.75\n")
    page = tmp_path / "README.md"
    page.write_text(
        '<!-- stated\nrows = load("rows.csv")\nscore: one(rows, agent=row["agent"])["score"]\n-->\n'
        "| agent | score | other |\n|---|---|---|\n| a | 0.25 | - |\n| b | **0.7** | 3 |\n\n"
        'The first had 0.25<!-- = load("rows.csv")[0]["score"] -->, '
        'the second 0.25<!-- = load("rows.csv")[1]["score"] -->.\n'
    )
    assert check_page(page) == [
        Wrong("b, score", "**0.7**", "0.75"),
        Wrong("b, other", "3", "no expression for this column"),
        Wrong("text", ", the second 0.25", "0.75"),
    ]
    assert unmarked_tables(page) == []
    page.write_text("| agent | score |\n|---|---|\n| a | 0.25 |\n")
    assert unmarked_tables(page) == ["| agent | score |"]
