"""Groups rows by the points at which all subjects of a family were measured."""

from collections.abc import Sequence
from typing import NamedTuple

from comparison.compare import Row

STEP = "one step"


class Point(NamedTuple):
    """A point at which all subjects of a family were measured."""

    mode: str
    width: int
    envs: int
    length: int


def point_of(row: Row) -> Point:
    """The point of a row."""
    return Point(row.mode, row.width, row.envs, row.length)


def points(rows: Sequence[Row]) -> list[Point]:
    """All points, in order."""
    return sorted({point_of(row) for row in rows})


def label(point: Point, rows: Sequence[Row]) -> str:
    """The length of a chunk, or "one step"; and the other sizes that differ among the rows."""
    rows = [row for row in rows if row.mode == point.mode]
    found = STEP if point.mode == "act" else f"{point.length:,}"
    if len({row.envs for row in rows}) > 1:
        found += f" x {point.envs}"
    if len({row.width for row in rows}) > 1:
        found += f", width {point.width}"
    return found


def library(subject: str) -> str:
    """The library of a subject."""
    return subject.split(".")[0]
