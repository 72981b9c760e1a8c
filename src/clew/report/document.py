"""What a report is made of, whatever it is written as: headings, text, tables, charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.axes import Axes


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is an edition's, and the contents list levels 1 and 2."""

    text: str
    level: int
    name: str
    """For links to it; unique."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Numbers:
    """A few numbers that stand out, each with what it is."""

    pairs: Sequence[tuple[str, str]]


class Cell(NamedTuple):
    """One entry of a table."""

    text: str
    below: tuple[str, ...] = ()
    """Smaller lines under the text."""
    mark: str = ""
    """A sign after the text."""
    shade: float | None = None
    """Background from 0, none, to 1."""
    verdict: str = ""
    """"good", "bad" or "open" where the text is a verdict."""


class Column(NamedTuple):
    """The head of a column."""

    text: str
    below: str = ""


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    name: str
    """Of its CSV file, unique."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    records: Sequence[dict[str, Any]] = ()
    """What the CSV file has, in full precision; the cells' texts if there is none."""
    folded: bool = False
    """Shown only when asked for."""


class Panel(NamedTuple):
    """One picture of a chart."""

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Chart:
    """Pictures side by side that are read together, in one file or flowing on a page."""

    name: str
    """Of its files, unique."""
    title: str
    caption: str
    panels: Sequence[Panel]
    models: Sequence[str] = ()
    """Of the legend; none for none."""
    size: tuple[float, float] = (3.6, 2.5)
    """Of a panel, in inches."""
    columns: int = 3
    """Of panels in the files."""


Block = Heading | Text | Numbers | Table | Chart
