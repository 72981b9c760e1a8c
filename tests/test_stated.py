"""What README.md and the pages of results/ state is what the rows beside them say."""

from pathlib import Path

import pytest

from stated import Wrong, check_page, unmarked_tables

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", *sorted((ROOT / "results").glob("*/README.md")))
}
UNMARKED = {
    "README.md",
    "results/gymnasium-tasks/README.md",
    "results/makkink-speed/README.md",
    "results/peers/README.md",
    "results/pramanik-costs/README.md",
    "results/speed/README.md",
}
"""Pages with a table of which no column is computed again. It may only become shorter."""


@pytest.mark.parametrize("name", PAGES)
def test_stated_figures_are_those_of_the_rows(name: str) -> None:
    """Every marked one."""
    assert check_page(PAGES[name]) == []


def test_only_known_pages_have_tables_without_a_reference() -> None:
    """And those that are known to have one still do."""
    assert {name for name, page in PAGES.items() if unmarked_tables(page)} == UNMARKED


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
    bare = "| agent | score |\n|---|---|\n| a | 0.25 |\n"
    for text in (bare, f"<!-- stated\nscore: stated\n-->\n{bare}"):
        page.write_text(text)
        assert unmarked_tables(page) == ["| agent | score |"]
