"""A report as Markdown, with its figures in files and its tables also as CSV."""

from collections.abc import Iterable, Sequence
from html import escape

from clew.files import comma_separated
from clew.report.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Heading,
    Numbers,
    Table,
    Text,
    typeset,
)


def markdown(title: str, blocks: Sequence[Block], figures: str, tables: str) -> str:
    """The report as Markdown.

    Args:
        figures: folder of the charts' PNG files, relative to the Markdown file.
        tables: folder of the tables' CSV files, likewise.
    """
    parts = [f"# {_words(title)}"]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * (block.level + 1)} {_words(block.text)}")
        elif isinstance(block, Text):
            parts.append(_words(block.text))
        elif isinstance(block, Numbers):
            parts.append("\n".join(f"- {_words(n)} {_words(what)}" for n, what in block.pairs))
        elif isinstance(block, Table):
            parts += [f"**{_words(block.title)}** ([CSV]({tables}/{block.name}.csv))", _rows(block)]
            parts += [_words(block.note)] if block.note else []
        else:
            picture = f"![{_words(block.title)}]({figures}/{block.name}.png)"
            parts += [f"**{_words(block.title)}**", picture, _words(block.caption)]
    return "\n\n".join(parts) + "\n"


def plain_table(table: Table) -> str:
    """A table on its own, with unescaped texts and numbers aligned right."""
    columns = range(len(table.columns))
    numeric = [all(_is_number(row[i].text) for row in table.rows) for i in columns]
    ruler = ["---:" if n and i else "---" for i, n in enumerate(numeric)]
    heads, *entries = [[entry.text for entry in line] for line in (table.columns, *table.rows)]
    lines = "\n".join(map(_line, (heads, ruler, *entries)))
    return f"**{table.title}**\n\n{lines}\n" + (f"\n{table.note}\n" if table.note else "")


def _is_number(text: str) -> bool:
    return text == UNKNOWN or text.lstrip("~")[:1].isdigit()


def table_values(table: Table) -> str:
    """The table as CSV, in full precision if it has records; unknown numbers are empty."""
    names = [f"{c.text} ({c.below})" if c.below else c.text for c in table.columns]
    shown = [dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.rows]
    records = list(table.records) or shown
    return comma_separated(records, names=names)


def _rows(table: Table) -> str:
    heads, *rows = (_line(map(_entry, line)) for line in (table.columns, *table.rows))
    return "\n".join([heads, "|" + "---|" * len(table.columns), *rows])


def _line(entries: Iterable[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _entry(entry: Cell | Column) -> str:
    if isinstance(entry, Column):
        return _words(entry.text) + (f"<br>{_words(entry.below)}" if entry.below else "")
    mark = f" {entry.mark}" if entry.mark else ""
    return "<br>".join([_words(entry.text) + mark, *map(_words, entry.below)])


def _words(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    plain = escape(typeset(text), quote=False)
    for sign in ("\\", "|", "*", "_", "`", "[", "]"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain
