"""What commands print: tables for people, JSON for programs."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from clew.errors import UserError


def print_json(value: Any) -> None:
    """Prints a value as JSON on standard output; what is not finite becomes null."""
    print(json.dumps(finite(value), indent=2))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> None:
    """Prints a table; columns after the first are numbers if all their entries are.

    Args:
        title: above the table, may be empty.
        columns: their headings.
        rows: entries, already formatted.
        note: below the table.
    """
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = index > 0 and all(row[index][:1].isdigit() or not row[index] for row in rows)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*row)
    out().print(table)
    if note:
        print(note)


def out() -> Console:
    """Standard output, without colouring of numbers; wide where it is no terminal."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    return console


def finite(value: Any) -> Any:
    """A value as JSON has it: named tuples as objects, and null for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if hasattr(value, "_asdict"):
        return finite(value._asdict())
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def final_text(final: dict[str, Any] | None) -> str:
    """A metric's end, as a run's summary holds it: mean [low, high], or nothing."""
    from clew.stats import Interval

    if final is None or final["mean"] is None:
        return ""
    low, high = final["interval"] or (math.nan, math.nan)
    return format(Interval(final["mean"], low, high), ".2f")


def tell(what: str) -> None:
    """Says on standard error what is being worked at."""
    print(f"{what} ...", file=sys.stderr, flush=True)


def write_figures(folder: Path, name: str, data: Any, markdown: str) -> Path:
    """Writes NAME.json and NAME.md into a folder, which is made if it is not there.

    Returns:
        Where the picture that belongs to them goes.

    Raises:
        UserError: if the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(finite(data), indent=1) + "\n")
        (folder / f"{name}.md").write_text(markdown)
    except OSError as refused:
        raise UserError(f"cannot write into {folder}: {refused.strerror}") from None
    return folder / f"{name}.png"
