"""Output of commands: tables for people, JSON for programs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from clew.files import finite
from clew.output import printable, say

if TYPE_CHECKING:
    from clew.report.document import Measured, Table


def print_json(value: Any) -> None:
    """Prints a value as JSON on standard output; numbers that are not finite become null."""
    print(json.dumps(finite(value), indent=2))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> None:
    """Prints a table with a note below it. Numeric columns after the first are aligned right.

    Entries are already formatted, and the title may be empty.
    """
    table = RichTable(
        title=printable(title) or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for index, name in enumerate(columns):
        entries = [row[index].removeprefix("-") for row in rows if row[index]]
        numeric = index > 0 and all(entry[:1].isdigit() for entry in entries)
        table.add_column(printable(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    out().print(table)
    if note:
        print(note)


class _Console(Console):
    """A console that re-raises a broken pipe, as from `head`, so that the command ends cleanly."""

    def on_broken_pipe(self) -> None:
        raise  # the error that is being handled


def out() -> Console:
    """Standard output without highlighted numbers; wide if it is not a terminal."""
    console = _Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    return console


def show(document: "Measured", *, as_json: bool, note: str = "") -> None:
    """Prints measurements as JSON, or as tables and sentences with a note."""
    if as_json:
        print_json(document.data)
        return
    if document.heading:
        print(document.heading)
    for table in document.tables:
        show_table(table)
    for line in (*document.sentences, *filter(None, [note])):
        print(line)


def show_table(table: "Table", note: str = "") -> None:
    """Prints a table of a report, with the second line of each heading in brackets."""
    heads = [f"{c.text} ({c.below})" if c.below else c.text for c in table.columns]
    rows = [[entry.text for entry in row] for row in table.rows]
    print_table(table.title, heads, rows, note or table.note)


def log(what: str) -> None:
    """Prints on standard error what is being computed."""
    say(f"{what} ...")
