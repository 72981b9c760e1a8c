"""The figures in README.md and the pages of results/ equal those of the rows beside them."""

from pathlib import Path

import pytest

from stated import Wrong, check_page, main, stated_beside, unmarked_tables

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "results").glob("*/README.md")),
    )
    if stated_beside(page).exists() or "results" in page.parts
}
UNMARKED = {
    "README.md",
    "results/gymnasium-tasks/README.md",
    "results/makkink-speed/README.md",
    "results/peers/README.md",
    "results/pramanik-costs/README.md",
    "results/speed/README.md",
}
"""Pages with a table without a recomputed column. The list may only become shorter."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_text_alone(name: str) -> None:
    """Text in a comment is neither shown nor checked."""
    assert "<!--" not in PAGES[name].read_text()


@pytest.mark.parametrize("name", PAGES)
def test_stated_figures_are_those_of_the_rows(name: str) -> None:
    """Every figure in the file beside the page is recomputed."""
    assert check_page(PAGES[name]) == []


def test_only_known_pages_have_tables_without_a_reference() -> None:
    """And the known ones still have one; tables of docs/ may be of equations."""
    found = {name for name, page in PAGES.items() if unmarked_tables(page)}
    assert {name for name in found if not name.startswith("docs/")} == UNMARKED


def test_every_reference_is_of_a_page() -> None:
    """A file beside no page would check nothing, and neither would a page of another folder."""
    found = {
        path for folder in ("docs", "results") for path in (ROOT / folder).rglob("*.stated.toml")
    }
    found |= set(ROOT.glob("*.stated.toml"))
    assert found <= {stated_beside(page) for page in PAGES.values()}


ROWS = "agent,score\na,0.25\nb,0.75\n"
TABLE = "| agent | score | other |\n|---|---|---|\n| a | 0.25 | - |\n| b | **0.7** | 3 |\n\n"
STATED = """
[names]
rows = 'load("rows.csv")'
[[tables]]
at = "| agent |"
[tables.columns]
score = 'one(rows, agent=row["agent"])["score"]'
[[figures]]
text = "The first had {}, the second"
is = 'rows[0]["score"]'
[[figures]]
text = "the second {}."
is = 'rows[1]["score"]'
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with a wrong cell, an unchecked one and a wrong figure in the text."""
    page = tmp_path / "README.md"
    page.write_text(f"{TABLE}The first had **0.25**, the\nsecond 0.25.\n")
    (tmp_path / "rows.csv").write_text(ROWS)
    stated_beside(page).write_text(STATED)
    return page


def test_what_is_wrong_is_found(page: Path) -> None:
    """In a table, in the text, and in a column that is not described."""
    assert check_page(page) == [
        Wrong("b, score", "**0.7**", "0.75"),
        Wrong("b, other", "3", "no expression for this column"),
        Wrong("the second {}.", "0.25", "0.75"),
    ]
    assert unmarked_tables(page) == []


def test_a_quotation_is_found_exactly_once(page: Path) -> None:
    """An edited sentence, or one that occurs twice, is named."""
    page.write_text(page.read_text() + "Elsewhere the first had 1, the second 0.75.\n")
    assert Wrong("the second {}.", "2 places have this, not one", "") in check_page(page)
    page.write_text(TABLE + TABLE + "The first one had 0.25.\n")
    assert check_page(page) == [
        Wrong("| agent |", "2 lines have this, not one", ""),
        Wrong("The first had {}, the second", "0 places have this, not one", ""),
        Wrong("the second {}.", "0 places have this, not one", ""),
    ]


def test_what_the_rows_say_is_written_into_a_page(page: Path, capsys) -> None:
    """Despite bold marks and line breaks; for a new line of a table its first cell is enough."""
    page.write_text(page.read_text().replace("| 3 |", "| - |").replace("| a | 0.25 | - |", "| a |"))
    assert main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}: a, score: , computed 0.25\n")
    assert main([str(page), "--write"]) == 0
    table = TABLE.replace("- |", " |").replace("**0.7** | 3", "0.75 | -")
    assert page.read_text() == f"{table}The first had **0.25**, the\nsecond 0.75.\n"
    assert main([str(page), "--write"]) == 0


def test_what_the_rows_say_is_written_into_what_a_page_is_made_from(page: Path) -> None:
    source, stated = page.with_name("said.toml"), stated_beside(page)
    stated.write_text('made_from = "said.toml"\n' + stated.read_text())
    source.write_text(f'said = """\n{page.read_text()}"""\n')
    main([str(page), "--write"])
    assert source.read_text() == f'said = """\n{page.read_text()}"""\n'
    assert "second 0.75." in source.read_text()


@pytest.mark.parametrize("stated", ["", '[[tables]]\nat = "| agent |"\nstated = ["score"]\n'])
def test_a_table_of_which_nothing_is_computed_is_named(page: Path, stated: str) -> None:
    """One without a description, and one with every column waived."""
    page.write_text("| agent | score |\n|---|---|\n| a | 0.25 |\n")
    stated_beside(page).write_text(stated)
    assert unmarked_tables(page) == ["| agent | score |"]
