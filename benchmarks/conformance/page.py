"""The rows as a table: every model and every law, and the breaches with their evidence."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.memory.laws.report import TOLERANCES
from clew.report.document import Table, tabulate
from clew.report.markdown import plain_table

COLUMNS = ("interface", "causal", "reset", "non-finite", "stream", "split", "batch")
"""The laws that apply to models of other libraries, in the order of the table.

`reset` is tested after another episode and, separately, after NaN, infinity and -1e30 in the old
state (`non-finite`): a reset by multiplication breaks only the second. `metrics`, `refresh` and
`replay` test functions that these libraries do not have.
"""
VALUES = TOLERANCES["float32"][0]
"""How far outputs may differ."""
Row = dict[str, Any]


def line(row: Row) -> str:
    """A line about a model as soon as it is tested."""
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    broken = [f"{law} ({_deviation(row['laws'][law])})" for law in broken_laws(row)]
    return f"{row['model']}: {', '.join(broken) or 'holds'}, {row['seconds']:.0f} s"


def write(rows: Sequence[Row], folder: Path | None) -> None:
    """Prints the table, or writes it into a folder beside the rows."""
    text = "\n".join(plain_table(table) for table in tables(rows))
    if folder is None:
        print(text)
        return
    (folder / "table.md").write_text(text)
    print(f"wrote {folder / 'table.md'}", file=sys.stderr)


def save(rows: Sequence[Row], folder: Path) -> None:
    """The rows as JSON, one per line, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: _order(row))]
    (folder / "rows.jsonl").write_text("".join(lines))


def load(folder: Path) -> dict[str, Row]:
    """The rows of a folder by model; empty if there are none yet."""
    path = folder / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["model"]: row for row in map(json.loads, lines)}


def broken_laws(row: Row) -> list[str]:
    """The columns in which a model breaks a law."""
    return [law for law in COLUMNS if row["laws"][law]["verdict"] == "broken"]


def outputs_agree(found: dict[str, Any]) -> bool:
    """Whether a law is broken by gradients alone, or without a measurable deviation."""
    return found["value"] is not None and found["value"] <= VALUES


def tables(rows: Sequence[Row]) -> list[Table]:
    """The table of models by laws, the breaches, and the models that could not be tested."""
    tried = sorted((row for row in rows if "error" not in row), key=_order)
    failed = sorted((row for row in rows if "error" in row), key=_order)
    found = [_of_models(tried)]
    breaches = [entry for row in tried for entry in _breaches(row)]
    if breaches:
        columns = [
            "model",
            "law",
            "smallest case",
            "value, expected",
            "in float64",
            "reproduced without clew",
        ]
        found.append(
            tabulate("breaches", "Breaches, except resets by multiplication", columns, breaches)
        )
    if failed:
        entries = [[row["model"], row["error"]] for row in failed]
        found.append(tabulate("failed", "Not tested", ["model", "error"], entries))
    return found


def _of_models(rows: Sequence[Row]) -> Table:
    entries = [
        [
            row["model"],
            row["version"],
            row["chunk"],
            row["step"],
            "own" if row["starts"] == "its own" else "none",
            *(_entry(row["laws"][law]) for law in COLUMNS),
        ]
        for row in rows
    ]
    columns = ["model", "version", "chunk", "step", "starts", *COLUMNS]
    note = (
        "Bold: the largest deviation of a broken law, relative as in `clew check`. g: only a "
        "gradient deviates, the outputs agree. Starts none: the library's chunk has no starts, "
        "so the caller cuts it, and resets are not tested."
    )
    return tabulate("models", "Models and laws", columns, entries, note)


def _entry(found: dict[str, Any]) -> str:
    if found["verdict"] == "broken":
        return f"**{_deviation(found)}**"
    return {"holds": "ok", "not run": "–"}[found["verdict"]]


def _deviation(found: dict[str, Any]) -> str:
    """The output's deviation, or the gradient's where outputs agree; an interface has none."""
    value, gradient = found["value"], found["gradient"]
    if value is None:
        return "not finite"
    if outputs_agree(found):
        return "g not finite" if gradient is None else f"g {gradient:.2g}" if gradient else "broken"
    return f"{value:.2g}"


def _breaches(row: Row) -> list[list[str]]:
    """One entry for each broken law with evidence, those in outputs first."""
    entries = []
    seen = "; ".join(
        f"`{found['where']}`: {_size(found['deviation'])}" for found in row.get("confirmed", [])
    )
    for law in broken_laws(row):
        if law == "non-finite":
            continue
        case = row.get("smallest", {}).get(law)
        where = (
            case["case"] + f", output {case['at']}" if case else f"`{row['laws'][law]['failure']}`"
        )
        numbers = f"{_size(case['is'])}, {_size(case['should_be'])}" if case else "–"
        double = row.get("float64", {})
        wide = double if isinstance(double, str) else "broken" if law in double else "holds"
        entries.append([row["model"], law, where, numbers, wide, seen or "–"])
    return entries


def _size(number: float | None) -> str:
    return "not finite" if number is None else f"{number:.3g}"


def _order(row: Row) -> str:
    return row["model"].lower()
