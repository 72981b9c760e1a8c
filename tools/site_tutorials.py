"""The site's notebooks: a hook of mkdocs that also offers each tutorial as a Jupyter notebook.

A tutorial is a page whose `python` blocks are run in order; the `text` block after one is its exact
output, which `tests/test_tutorials.py` checks. The notebook has the same cells with
the same outputs.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = "tutorials/"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: Any) -> Files:
    """Adds a notebook beside each tutorial."""
    for path in sorted((ROOT / "docs" / FOLDER).glob("*.md")):
        made = json.dumps(notebook(path.read_text()), indent=1)
        files.append(File.generated(config, f"{FOLDER}{path.stem}.ipynb", content=made))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """A tutorial's text with a link to its notebook below the title."""
    source = page.file.src_uri
    if not source.startswith(FOLDER):
        return markdown
    title, _, text = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook]({Path(source).stem}.ipynb){{ download }}\n{text}"


def notebook(text: str) -> dict[str, Any]:
    """A tutorial's page as a notebook in Jupyter's format, version 4.5."""
    cells: list[dict[str, Any]] = []
    end = 0
    for match in _BLOCK.finditer(text):
        _add_text(cells, text[end : match.start()])
        end = match.end()
        if match[1] == "python":
            cell = {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append({**cell, **_common(cells, match[2])})
        else:
            printed = {"output_type": "stream", "name": "stdout", "text": _lines(match[2])}
            cells[-1]["outputs"].append(printed)
    _add_text(cells, text[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _add_text(cells: list[dict[str, Any]], text: str) -> None:
    """A cell of text, whose links lead to the site's pages."""
    if text.strip():
        text = re.sub(r"\]\(([^):#]+)\.md", r"](\1.html", text)
        source = text.replace("(../../results", "(../results").strip()
        cells.append({"cell_type": "markdown", **_common(cells, source)})


def _common(cells: list[dict[str, Any]], source: str) -> dict[str, Any]:
    """The keys that every cell has."""
    return {"id": f"cell-{len(cells)}", "metadata": {}, "source": _lines(source.rstrip("\n"))}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
