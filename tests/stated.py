"""Recomputes the figures that pages state about results from the rows beside them.

A file beside the page describes this, `README.stated.toml` for `README.md`, so that the page itself
is plain text:

    [names]
    rows = 'load("results.jsonl")'
    wanted = '{"GRU": "gru"}'

    [[tables]]
    at = '| agent |'
    stated = ["published"]
    [tables.columns]
    success = 'estimate(scores(rows, model=wanted[row["agent"]]))'

    [[figures]]
    text = 'all seeds together earn {} of 1'
    is = 'f"{mean(scores(rows)):.2f}"'

`at` quotes a line of the page; the table is the one that begins there or next after it. A column
has an expression for its cells, in which `row` is the row's cells by column, or it is listed in
`stated`: not from these rows. The first column needs neither. `text` quotes the text around a
figure, with `{}` in its place. A quotation must be found exactly once.

Expressions are Python with the functions of this file, of `clew.stats`, and `names`, which are
evaluated in order; a table's own (`[tables.names]`) are added to the page's or replace them. Files
are those of the page's folder. Bold marks, line breaks and spaces are ignored.

    python tests/stated.py results/popgym-easy-ppo/README.md

lists the errors in pages, and with --write writes the recomputed figures into them, and into the
file that a page is made from, if it names one (`made_from = "advice.toml"`). A new line of a table
needs only its first cell: `| lstm |`.
"""

import argparse
import csv
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, spearmanr

import clew.stats
from clew.lab.studies.report.comparisons import Difference, mean_difference
from clew.run import json_lines

_TABLE = re.compile(r"((?:^ *\|.*\n?)+)", re.MULTILINE)
_FIGURE = "(.{1,40}?)"  # the nearest text that ends as quoted, and not within a number


class Wrong(NamedTuple):
    """A figure that differs from its rows."""

    where: str
    stated: str
    computed: str


def load(folder: Path, name: str) -> Any:
    """A file beside a page: the rows of a .jsonl or .csv, or the contents of a .json."""
    path = folder / name
    if path.suffix == ".jsonl":
        return [line.row for line in json_lines.read(path)]
    text = path.read_text()
    return list(csv.DictReader(text.splitlines())) if path.suffix == ".csv" else json.loads(text)


def pick(rows: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have these values; values in a tuple or list are alternatives."""
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
    """The scores of a study's trainings with these values, seed by seed."""
    return np.array([row["mean"] for row in pick(rows, **wanted)])


def estimate(values: Any, digits: int = 3) -> str:
    """A mean with its 95% bootstrap interval; empty without values."""
    return f"{clew.stats.bootstrap_interval(values):.{digits}f}" if len(values) else ""


def gain(first: Any, second: Any, digits: int = 2) -> str:
    """A difference of two means with Welch's 95% interval; empty if one has no values."""
    if not len(first) or not len(second):
        return ""
    test = clew.stats.welch_test(first, second)
    return f"{test.difference:+.{digits}f} [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"


def between(values: Sequence[float], form: str = ",.0f", brackets: str = "[, ]") -> str:
    """A median with the extremes; empty without values."""
    if not len(values):
        return ""
    low, middle, high = (format(v, form) for v in (min(values), np.median(values), max(values)))
    comma = brackets[1:-1]
    return f"{middle} {brackets[0]}{low}{comma}{high}{brackets[-1]}"


def could_see(difference: Difference | clew.stats.Comparison, power: float = 0.8) -> float:
    """The smallest true difference that a test with such an interval finds with this probability.

    From the half width w of its 95% interval, w = e t_{0.975}: the error e times the sum of the
    quantiles t_{0.975} and t_{power}, of the normal distribution. This holds for many degrees of
    freedom; with fewer the true one is larger by some percent.
    """
    half = (difference.high - difference.low) / 2
    return half * (1 + float(norm.ppf(power) / norm.ppf(0.975)))


_NAMES = {
    **{name: getattr(clew.stats, name) for name in clew.stats.__all__},
    **{
        f.__name__: f
        for f in (pick, one, scores, estimate, gain, between, could_see, mean_difference)
    },
    "np": np,
    "mean": np.mean,
    "spearmanr": spearmanr,
}


def stated_beside(page: Path) -> Path:
    """The file that describes a page's figures."""
    return page.with_suffix(".stated.toml")


def check_page(page: Path) -> list[Wrong]:
    """Every figure of a page that differs from its rows, and every quotation not found."""
    text = page.read_text()
    stated = _stated(page)
    given = _NAMES | {"load": cache(partial(load, page.parent))}
    wrong = []
    for table in stated.get("tables", []):
        names = _evaluated(stated.get("names", {}) | table.get("names", {}), given)
        try:
            lines = _table_at(text, table["at"])[1].splitlines()
        except LookupError as error:
            wrong.append(Wrong(table["at"], str(error), ""))
        else:
            wrong += _check_table(table, lines, names)
    names = _evaluated(stated.get("names", {}), given)
    for figure in stated.get("figures", []):
        wrong += _check_figure(figure, _bare(text), names)
    return wrong


def with_source(page: Path) -> list[Path]:
    """A page, and the file that it is made from, if there is one."""
    source = _stated(page).get("made_from")
    return [page, page.parent / source] if source else [page]


def written(page: Path, text: str) -> str:
    """The text of a page, or of its source, with the figures of its rows."""
    stated = _stated(page)
    given = _NAMES | {"load": cache(partial(load, page.parent))}
    for table in stated.get("tables", []):
        names = _evaluated(stated.get("names", {}) | table.get("names", {}), given)
        found = _table_at(text, table["at"])
        lines = _written_table(table.get("columns", {}), found[1].splitlines(), names)
        text = text[: found.start()] + "".join(f"{line}\n" for line in lines) + text[found.end() :]
    names = _evaluated(stated.get("names", {}), given)
    for figure in stated.get("figures", []):
        before, after = map(_loose, figure["text"].split("{}"))
        computed = str(eval(figure["is"], names))
        found = [*re.finditer(rf"(?s)(?={before}{_FIGURE}{after}(?!\d))", text)]
        if len(found) == 1 and _bare(found[0][1]) != computed:
            text = text[: found[0].start(1)] + computed + text[found[0].end(1) :]
    return text


def _written_table(
    columns: dict[str, str], table: list[str], names: dict[str, Any]
) -> Iterator[str]:
    head = _cells(table[0])
    yield from table[:2]
    for line in table[2:]:
        cells = _cells(line)
        row = _row(head, cells)
        for column, expression in columns.items():
            computed = str(eval(expression, names | {"row": row}))
            if _bare(row[column]) != computed:
                row[column] = computed
        changed = list(row.values()) != cells
        indent = line[: line.index("|")]
        yield f"{indent}| {' | '.join(row.values())} |" if changed else line


def _loose(quoted: str) -> str:
    """A pattern of a quotation that allows bold marks and line breaks anywhere."""
    return r"(?:\*\*)?".join(r"\s+" if char == " " else re.escape(char) for char in quoted)


def unmarked_tables(page: Path) -> list[str]:
    """The headings of a page's tables that have figures, but no recomputed column."""
    text = page.read_text()
    checked = [table for table in _stated(page).get("tables", []) if table.get("columns")]
    marked = {_table_at(text, table["at"]).start() for table in checked}
    return [
        table[1].splitlines()[0]
        for table in _TABLE.finditer(text)
        if table.start() not in marked and any(_has_figure(c) for r in _rows(table[1]) for c in r)
    ]


def _stated(page: Path) -> dict[str, Any]:
    path = stated_beside(page)
    return tomllib.loads(path.read_text()) if path.exists() else {}


def _evaluated(expressions: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
    """Names with the values of their expressions, in order."""
    names = dict(given)
    for name, expression in expressions.items():
        names[name] = eval(expression, names)  # only our own pages
    return names


def _table_at(text: str, quoted: str) -> re.Match[str]:
    """The table at or after the only line with a quotation; LookupError if there is none."""
    lines = [line.start() for line in re.finditer(r"^.*$", text, re.MULTILINE) if quoted in line[0]]
    if len(lines) != 1:
        raise LookupError(f"{len(lines)} lines have this, not one")
    table = _TABLE.search(text, lines[0])
    if table is None:
        raise LookupError("no table follows it")
    return table


def _check_figure(figure: dict[str, str], text: str, names: dict[str, Any]) -> Iterator[Wrong]:
    quoted = figure["text"]
    before, _, after = map(re.escape, quoted.partition("{}"))
    found = re.findall(rf"(?={before}{_FIGURE}{after}(?!\d))", text)
    if not (before and after and len(found) == 1):
        yield Wrong(quoted, f"{len(found)} places have this, not one", "")
    elif found[0] != (computed := str(eval(figure["is"], names))):
        yield Wrong(quoted, found[0], computed)


def _check_table(
    reference: dict[str, Any], table: list[str], names: dict[str, Any]
) -> Iterator[Wrong]:
    head = _cells(table[0])
    columns, stated = reference.get("columns", {}), reference.get("stated", [])
    for column in {*columns, *stated} - set(head):
        yield Wrong(f"the reference names {column!r}", table[0], "")
    for cells in _rows("\n".join(table)):
        row = _row(head, cells)
        for column, cell in row.items():
            if column in columns:
                computed = str(eval(columns[column], names | {"row": row}))
                if _bare(cell) != computed:
                    yield Wrong(f"{cells[0]}, {column}", cell, computed)
            elif column not in stated and _has_figure(cell) and column != head[0]:
                yield Wrong(f"{cells[0]}, {column}", cell, "no expression for this column")


def _rows(table: str) -> list[list[str]]:
    return [_cells(line) for line in table.splitlines()[2:]]


def _row(head: list[str], cells: list[str]) -> dict[str, str]:
    """A line's cells by column; missing ones are empty."""
    return dict(zip(head, [*cells, *[""] * (len(head) - len(cells))], strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def _bare(text: str) -> str:
    return " ".join(text.replace("**", "").split())


def _has_figure(cell: str) -> bool:
    """Whether a cell has a number outside of words, code and links."""
    return bool(re.search(r"(?<![\w-])[-+]?\d", re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", cell)))


def main(args: list[str]) -> int:
    """Lists the errors in pages, or writes the right figures into them."""
    parser = argparse.ArgumentParser(description="Compares what pages state with their rows.")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write into them what the rows say")
    given = parser.parse_args(args)
    for page in given.pages:
        for path in with_source(page) if given.write else []:
            path.write_text(written(page, path.read_text()))
    wrong = [(page, found) for page in given.pages for found in check_page(page)]
    for page, (where, stated, computed) in wrong:
        print(f"{page}: {where}: {stated}" + (f", computed {computed}" if computed else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
