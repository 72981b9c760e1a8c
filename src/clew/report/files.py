"""A report as files: HTML, Markdown, tables as CSV, and figures as PNG and SVG."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from clew.errors import UserError
from clew.files import finite, write_text
from clew.report.document import Block, Chart, Measured, Table
from clew.report.figures import Styles, save_chart
from clew.report.html import page
from clew.report.markdown import markdown, plain_table, table_values

FIGURES, TABLES = "figures", "tables"


class Report(NamedTuple):
    """The written files."""

    html: Path
    markdown: Path
    figures: list[Path]
    """The PNG files; beside each is an SVG of the same name."""
    tables: list[Path]
    """The CSV files."""


def write_report(
    place: Path, title: str, blocks: Sequence[Block], styles: Styles, command: str
) -> Report:
    """Writes report.html, report.md, tables/*.csv and figures/*.png and .svg.

    The folder is made if necessary. The line at the foot of the page names the command.

    Raises:
        UserError: if it cannot be written.
    """
    charts = [block for block in blocks if isinstance(block, Chart)]
    tables = [block for block in blocks if isinstance(block, Table)]
    try:
        for folder in (place / FIGURES, place / TABLES):
            folder.mkdir(parents=True, exist_ok=True)
        figures = [save_chart(chart, styles, place / FIGURES) for chart in charts]
    except OSError as error:
        raise UserError(f"cannot write the report in {place}: {error.strerror}") from error
    files = [place / TABLES / f"{table.name}.csv" for table in tables]
    for table, file in zip(tables, files, strict=True):
        write_text(file, table_values(table))
    made_by = f"Made by {command}, clew {version('clew')}."
    write_text(place / "report.md", markdown(title, blocks, FIGURES, TABLES))
    write_text(place / "report.html", page(title, blocks, styles, made_by))
    return Report(place / "report.html", place / "report.md", figures, files)


def write_measured(found: Measured, folder: str | Path) -> None:
    """Writes NAME.json, the Markdown files and the pictures; makes the folder if necessary.

    Raises:
        UserError: if the folder cannot be written to.
    """
    folder = Path(folder)
    pages = found.pages
    if pages is None:
        pages = {f"{table.name}.md": plain_table(table) for table in found.tables}
    texts = {f"{found.name}.json": json.dumps(finite(found.data), indent=1) + "\n", **pages}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
        for name, draw in found.pictures.items():
            draw(folder / name)
    except OSError as refused:
        raise UserError(f"cannot write into {folder}: {refused.strerror}") from None
