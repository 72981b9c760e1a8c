"""The page on the architecture, and its drawing, name functions that exist."""

import re
from pathlib import Path

import pytest

from clew.names import resolve

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"\bclew(?:\.\w+)+:\w+(?:\.\w+)*")
PAGES = ("docs/architecture.md", "docs/images/observation.svg")


@pytest.mark.parametrize("page", PAGES)
def test_every_name_exists(page: str) -> None:
    """Each "module:function" resolves."""
    names = set(NAME.findall((ROOT / page).read_text()))
    assert len(names) > 5
    for name in names:
        assert resolve(name) is not None


def test_the_table_has_every_room() -> None:
    """The table's rooms are the folders of the library."""
    table = (ROOT / "docs/architecture.md").read_text()
    for folder in (ROOT / "src/clew").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"`{folder.name}`" in table, folder.name
