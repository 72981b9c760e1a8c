"""Makes a report: one page in two forms, its tables and its pictures."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from clew.errors import UserError
from clew.lab.studies.report.edition import Edition, read_edition
from clew.lab.studies.report.sections import document
from clew.report.document import Block, Chart, Table
from clew.report.figures import Styles, save_chart, styles_of
from clew.report.html import page
from clew.report.markdown import comma_separated, markdown
from clew.run.folder import write_text

FIGURES, TABLES = "figures", "tables"


class Report(NamedTuple):
    """What was written."""

    html: Path
    markdown: Path
    figures: list[Path]
    """The PNG files; beside each is an SVG of the same name."""
    tables: list[Path]
    """The CSV files."""


def make_report(
    folders: Sequence[str | Path],
    output: str | Path | None = None,
    title: str | None = None,
    note: str = "",
) -> Report:
    """Writes report.html, report.md, tables/*.csv and figures/*.png and .svg of studies.

    A study need not be finished; its cells that are missing are shown as missing. The same rows
    give the same page, byte for byte.

    Args:
        folders: of studies, as `clew study` and `run_study` write them, or their names in runs/;
            each becomes a section.
        output: folder to write to; by default `report` in the first of the folders.
        title: of the page; by default the names of the studies.
        note: what else the reader should know of how it was made, for example the machine.

    Raises:
        UserError: if there is no such folder, no study or no finished cell in it, a damaged line,
            or the output cannot be written.
    """
    if not folders:
        raise UserError("which studies? Give one folder of a study or more")
    editions = _distinct([read_edition(folder) for folder in folders])
    styles = styles_of(model for edition in editions for model in edition.models)
    blocks = _blocks(editions, styles, note)
    charts = [block for block in blocks if isinstance(block, Chart)]
    tables = [block for block in blocks if isinstance(block, Table)]
    heading = title or ", ".join(edition.name for edition in editions)
    place = Path(output) if output else editions[0].folder / "report"
    try:
        for folder in (place / FIGURES, place / TABLES):
            folder.mkdir(parents=True, exist_ok=True)
        figures = [save_chart(chart, styles, place / FIGURES) for chart in charts]
    except OSError as error:
        raise UserError(f"cannot write the report in {place}: {error.strerror}") from error
    files = [place / TABLES / f"{table.name}.csv" for table in tables]
    for table, file in zip(tables, files, strict=True):
        write_text(file, comma_separated(table))
    made_by = f"Made by clew report, clew {version('clew')}."
    write_text(place / "report.md", markdown(heading, blocks, FIGURES, TABLES))
    write_text(place / "report.html", page(heading, blocks, styles, made_by))
    return Report(place / "report.html", place / "report.md", figures, files)


def _blocks(editions: Sequence[Edition], styles: Styles, note: str) -> list[Block]:
    # These are made of this package's parts, and may be what is imported first.
    from clew.lab.studies.memory_maze.page import is_memory_maze, memory_maze_blocks
    from clew.lab.studies.tmaze.page import is_tmaze, tmaze_blocks

    forms = {
        "the T-Maze study": (is_tmaze, tmaze_blocks),
        "the Memory Maze study": (is_memory_maze, memory_maze_blocks),
    }
    for name, (is_own, blocks) in forms.items():
        own = [is_own(edition) for edition in editions]
        if all(own):
            return blocks(editions, styles, note)
        if any(own):
            raise UserError(f"{name} has a report of its own form: give its folders alone")
    return document(editions, styles, note)


def _distinct(editions: list[Edition]) -> list[Edition]:
    """The editions with file names of their own, also where two studies have one name."""
    seen: dict[str, int] = {}
    distinct = []
    for edition in editions:
        seen[edition.slug] = count = seen.get(edition.slug, 0) + 1
        slug = edition.slug if count == 1 else f"{edition.slug}-{count}"
        distinct.append(replace(edition, slug=slug))
    return distinct
