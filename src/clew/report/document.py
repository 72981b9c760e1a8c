"""The blocks of a report, independent of its format: headings, texts, tables, charts."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import counted as counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNKNOWN = "-"
"""The entry for an unknown number."""


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is that of an edition, and the table of contents has levels 1 and 2."""

    text: str
    level: int
    name: str
    """Unique name for links to it."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Numbers:
    """A few highlighted numbers, each with a description."""

    pairs: Sequence[tuple[str, str]]


class Cell(NamedTuple):
    """One entry of a table."""

    text: str
    below: tuple[str, ...] = ()
    """Smaller lines under the text."""
    mark: str = ""
    """A sign after the text."""
    shade: float | None = None
    """Shade of the background, from 0 (none) to 1."""
    verdict: str = ""
    """"good", "bad" or "open" if the text is a verdict."""


class Column(NamedTuple):
    """The heading of a column."""

    text: str
    below: str = ""


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    name: str
    """Unique name of its file."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    records: Sequence[dict[str, Any]] = ()
    """The rows of the CSV file, in full precision; if empty, the file has the cells' texts."""
    folded: bool = False
    """Whether the table is folded on the page until it is opened."""


def tabulate(
    name: str,
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[Cell | str]],
    note: str = "",
    records: Sequence[dict[str, Any]] = (),
    folded: bool = False,
) -> Table:
    """A `Table` whose headings and entries may be plain text."""
    heads = [Column(head) if isinstance(head, str) else head for head in columns]
    cells = [[Cell(entry) if isinstance(entry, str) else entry for entry in row] for row in rows]
    return Table(name, title, heads, cells, note, records, folded)


class Panel(NamedTuple):
    """One plot of a chart."""

    title: str
    draw: "Callable[[Axes], None]"


@dataclass(frozen=True)
class Chart:
    """Panels that belong together, in one file or side by side on a page."""

    name: str
    """Unique name of its files."""
    title: str
    caption: str
    panels: Sequence[Panel]
    models: Sequence[str] = ()
    """The models in the legend; empty for no legend."""
    size: tuple[float, float] = (3.6, 2.5)
    """Size of a panel in inches."""
    columns: int = 3
    """Number of columns of panels in the files."""


Block = Heading | Text | Numbers | Table | Chart


@dataclass(frozen=True)
class Measured:
    """The measurements of a command, to be printed, or written by `report.files`."""

    name: str
    """Name of the JSON file."""
    data: dict[str, Any]
    """All numbers, for JSON."""
    tables: Sequence[Table]
    """The tables in their order on the page."""
    heading: str = ""
    """A line above them."""
    sentences: Sequence[str] = ()
    """Lines below them."""
    pages: Mapping[str, str] | None = None
    """File name to Markdown; by default one file for each table, with its name."""
    pictures: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    """File name to a function that draws the picture to a path."""


class NothingMeasured(Exception):
    """There is nothing to report; the message says why."""


def typeset(text: str) -> str:
    """Text with real minus signs before its numbers, and none before 0.00.

    Hyphens within words and dates stay.
    """
    plain = re.sub(r"(?<![\w)-])-(?=0\.0+(?!\d))", "", text)
    return re.sub(r"(?<![\w)-])-(?=\d)", "\u2212", plain)


def listed(names: list[str]) -> str:
    """Names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def duration(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"
