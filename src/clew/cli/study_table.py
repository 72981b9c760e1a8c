"""A study told on a terminal: a table that lives, and plain lines elsewhere."""

import sys
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from clew.lab.grid import Standing, Study, StudyLines, StudyProgress
from clew.lab.grid.progress import format_standing

SHOWN = 8
"""Packs in progress that are shown."""


def study_listener() -> StudyProgress:
    """Who should be told of a study: a live table on a terminal, plain lines elsewhere."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return StudyTable(console)
    return StudyLines(stream=sys.stderr)


class StudyTable:
    """Cells finished and left by model, what is in progress, rate and time left.

    Args:
        console: where to.
    """

    def __init__(self, console: Console):
        self._live = Live(console=console, auto_refresh=False)

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        """Says what runs where, and opens the table."""
        self._live.console.print(f"{study.name}: {standing.total:,} cells -> {path}")
        self._live.start()
        self.report(standing)

    def report(self, standing: Standing) -> None:
        """Renews the table."""
        self._live.update(draw(standing), refresh=True)

    def message(self, text: str) -> None:
        """Prints a line above the table."""
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Leaves the table as it is."""
        self._live.stop()


def draw(standing: Standing) -> Group:
    """The table of a moment."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("finished", "of"):
        table.add_column(name, justify="right")
    for model, (finished, total) in standing.models.items():
        table.add_row(model, f"{finished:,}", f"{total:,}")
    table.add_section()
    table.add_row("all", f"{standing.finished:,}", f"{standing.total:,}")
    packs = list(standing.working.items())
    lines = [f"{share:4.0%}  {pack}" for pack, share in packs[:SHOWN]]
    if len(packs) > SHOWN:
        lines.append(f"      and {len(packs) - SHOWN} more")
    return Group(table, *lines, format_standing(standing))
