"""What pages state of results, computed again from the rows beside them.

A reference is an HTML comment, so that no reader sees it. Before a table,

    <!-- stated
    rows = load("results.jsonl")
    wanted = {"GRU": "gru"}
    success: estimate(scores(rows, model=wanted[row["agent"]]))
    published: stated
    -->

gives names values, which later references of the page know as well, and columns an expression of
what their cells have to say; `row` has the row's cells by column. The first column may have none.
"stated" waives a column: it is not from these rows. Behind a figure in the text,

    0.95<!-- = f"{mean(scores(rows)):.2f}" -->

what stands before has to end with the expression's value. Expressions are Python with the functions
of this file and of `clew.stats`; files are those of the page's folder. Bold marks and spaces do not
count.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import clew.stats
from clew.run import json_lines

_TABLE = re.compile(r"<!-- stated\n((?:.*\n)*?)-->\n+((?:^ *\|.*\n?)+)", re.MULTILINE)
_INLINE = re.compile(r"(.*?)<!-- = (.*?) -->")
_ANY_TABLE = re.compile(r"((?:^ *\|.*\n?)+)", re.MULTILINE)
_SET = re.compile(r"^(\w+) = (.*)$")


class Wrong(NamedTuple):
    """A figure that is not what its rows say."""

    where: str
    stated: str
    computed: str


def load(folder: Path, name: str) -> Any:
    """A file beside a page: rows of .jsonl and .csv, or what a .json holds."""
    path = folder / name
    if path.suffix == ".jsonl":
        return [line.row for line in json_lines.read(path)]
    text = path.read_text()
    return list(csv.DictReader(text.splitlines())) if path.suffix == ".csv" else json.loads(text)


def pick(rows: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have these values; those of a tuple or list are alternatives."""
    return [
        row
        for row in rows
        if all(
            row[k] in v if isinstance(v, tuple | list) else row[k] == v for k, v in wanted.items()
        )
    ]


def one(rows: Sequence[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The only row that has these values."""
    (row,) = pick(rows, **wanted)
    return row


def scores(rows: Sequence[dict[str, Any]], **wanted: Any) -> np.ndarray:
    """What a study's trainings with these values scored, seed by seed."""
    return np.array([row["mean"] for row in pick(rows, **wanted)])


def estimate(values: Any, digits: int = 3) -> str:
    """A mean with its 95% bootstrap interval; nothing of no values."""
    return f"{clew.stats.bootstrap_interval(values):.{digits}f}" if len(values) else ""


def gain(first: Any, second: Any, digits: int = 2) -> str:
    """A difference of two means with Welch's 95% interval; nothing if one has no values."""
    if not len(first) or not len(second):
        return ""
    test = clew.stats.welch_test(first, second)
    return f"{test.difference:+.{digits}f} [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"


def between(values: Sequence[float], form: str = ",.0f", brackets: str = "[, ]") -> str:
    """A median with the extremes; nothing of no values."""
    if not len(values):
        return ""
    low, middle, high = (format(v, form) for v in (min(values), np.median(values), max(values)))
    comma = brackets[1:-1]
    return f"{middle} {brackets[0]}{low}{comma}{high}{brackets[-1]}"


_NAMES = {
    **{name: getattr(clew.stats, name) for name in clew.stats.__all__},
    **{f.__name__: f for f in (pick, one, scores, estimate, gain, between)},
    "np": np,
    "mean": np.mean,
}


def check_page(page: Path) -> list[Wrong]:
    """Every marked figure of a page that is not what its rows say."""
    text = page.read_text()
    names = _NAMES | {"load": cache(partial(load, page.parent))}
    wrong = []
    for marked in _TABLE.finditer(text):
        columns = {}
        for line in marked[1].splitlines():
            if given := _SET.match(line):
                names[given[1]] = eval(given[2], names)
            else:
                column, _, columns[column] = line.partition(": ")
        wrong += _check_table(columns, marked[2].splitlines(), names)
    for marked in _INLINE.finditer(text):
        computed = str(eval(marked[2], names))  # our own pages
        if not _bare(marked[1]).endswith(computed):
            wrong.append(Wrong("text", marked[1][-40:], computed))
    return wrong


def unmarked_tables(page: Path) -> list[str]:
    """The headings of a page's tables that have figures, and no column that is computed again."""
    text = page.read_text()
    marked = {match.start(2) for match in _TABLE.finditer(text) if _computes(match[1])}
    return [
        table[1].splitlines()[0]
        for table in _ANY_TABLE.finditer(text)
        if table.start() not in marked and any(_has_figure(c) for r in _rows(table[1]) for c in r)
    ]


def _computes(reference: str) -> bool:
    """Whether it has an expression for a column, and does not waive all of them."""
    columns = [line for line in reference.splitlines() if not _SET.match(line)]
    return any(not line.endswith(": stated") for line in columns)


def _check_table(
    columns: dict[str, str], table: list[str], names: dict[str, Any]
) -> Iterator[Wrong]:
    head = _cells(table[0])
    for column in set(columns) - set(head):
        yield Wrong(f"the reference names {column!r}", table[0], "")
    for cells in _rows("\n".join(table)):
        row = dict(zip(head, cells, strict=True))
        for column, cell in row.items():
            expression = columns.get(column)
            if expression is None:
                if _has_figure(cell) and column != head[0]:
                    yield Wrong(f"{cells[0]}, {column}", cell, "no expression for this column")
            elif expression != "stated":
                computed = str(eval(expression, names | {"row": row}))
                if _bare(cell) != computed:
                    yield Wrong(f"{cells[0]}, {column}", cell, computed)


def _rows(table: str) -> list[list[str]]:
    return [_cells(line) for line in table.splitlines()[2:]]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def _bare(text: str) -> str:
    return text.replace("**", "").strip()


def _has_figure(cell: str) -> bool:
    """Whether a number stands in a cell beside words, code and links."""
    return bool(re.search(r"(?<![\w-])[-+]?\d", re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", cell)))
