"""Measurements as a person and a program read them: tables, sentences, JSON and pictures."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import UserError
from clew.run.json_values import finite

UNKNOWN = "-"
"""An entry for which there is no number."""


class NoFigures(Exception):
    """There is nothing that may be reported; the message says why."""


class Grid(NamedTuple):
    """A table of formatted entries."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """As Markdown, numbers to the right."""
        numeric = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        ruler = ["---:" if n and i else "---" for i, n in enumerate(numeric)]
        lines = [self.columns, ruler, *self.rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{text}\n" + (f"\n{self.note}\n" if self.note else "")


@dataclass(frozen=True)
class Document:
    """What one command has measured; `write` puts it into a folder."""

    name: str
    """of the JSON file"""
    data: dict[str, Any]
    """all numbers, for JSON"""
    grids: Sequence[Grid]
    """the tables in the order in which they are shown"""
    heading: str = ""
    """a line above them"""
    sentences: Sequence[str] = ()
    """lines below them"""
    pages: Mapping[str, str] = field(default_factory=dict)
    """file name to Markdown"""
    pictures: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    """file name to what draws the picture to a path"""

    def write(self, folder: str | Path) -> None:
        """Writes NAME.json, the Markdown files and the pictures; makes the folder if need be.

        Raises:
            UserError: if the folder cannot be written to.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(finite(self.data), indent=1) + "\n"
            (folder / f"{self.name}.json").write_text(text, encoding="utf-8")
            for name, page in self.pages.items():
                (folder / name).write_text(page, encoding="utf-8")
            for name, draw in self.pictures.items():
                draw(folder / name)
        except OSError as refused:
            raise UserError(f"cannot write into {folder}: {refused.strerror}") from None


def _is_number(text: str) -> bool:
    return text == UNKNOWN or text.lstrip("~")[:1].isdigit()
