"""The tutorials' notebooks run unchanged, and print the output that page and notebook show."""

import contextlib
import io
from pathlib import Path
from types import ModuleType

import pytest

from scripts import script

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The site's hook that makes the notebooks."""
    return script("tools/site_tutorials.py")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("ordinary_promotion")
def test_a_tutorial_prints_what_it_shows(
    page: Path, site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell's output exactly equals the shown one; none is left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "results").symlink_to(ROOT / "results")
    namespace = {"__name__": "__main__"}
    cells = site.notebook(page.read_text())["cells"]
    assert [cell["cell_type"] for cell in cells].count("code") > 2
    for cell in cells:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile("".join(cell["source"]), page, "exec"), namespace)
            shown = "".join("".join(each["text"]) for each in cell["outputs"])
            assert output.getvalue() == shown, page.name
