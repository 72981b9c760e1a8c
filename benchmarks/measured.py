"""The command line of measurements that produce tables, a picture and JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.options import described

from clew.cli import ENDINGS, report_error
from clew.cli.tables import show
from clew.errors import UserError, require_at_least
from clew.lab.bench.timing import Estimate
from clew.report.document import Measured, NothingMeasured
from clew.report.files import write_measured


def parser(about: str | None, repeats: int) -> argparse.ArgumentParser:
    """The options of measurements of memories, by turns."""
    found = described(about, draws=True)
    found.add_argument("--memories", nargs="+", default=[], help="measure only these")
    found.add_argument("--repeats", type=int, default=repeats, help="turns that count")
    found.add_argument("--quick", action="store_true", help="to see that it works, not to quote")
    found.add_argument("--output", default="", help="write tables, a picture and JSON here")
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return found


def redrawn(
    document: Callable[..., Measured], folder: str | Path | None, name: str, *kinds: Any
) -> Measured:
    """The document of earlier measurements, from NAME.json of a folder, with the same data.

    Args:
        document: takes the file's top level as keywords.
        folder: of the file.
        name: of the file, without .json.
        kinds: named tuples. A JSON object with the fields of one, or of `Estimate`, becomes one.

    Raises:
        UserError: if there is no such file.
    """
    file = Path(folder or "", f"{name}.json")
    if not file.is_file():
        raise UserError(f"--redraw needs a folder with {file.name}, got {folder or 'none'}")

    def revived(found: dict[str, Any]) -> Any:
        for kind in (Estimate, *kinds):
            if found.keys() >= set(kind._fields):
                return kind(*(found[field] for field in kind._fields))
        return found

    text = file.read_text()
    return replace(document(**json.loads(text, object_hook=revived)), data=json.loads(text))


def publish(
    found: Measured, output: str | Path | None, *, as_json: bool = False, note: str = ""
) -> None:
    """Writes measurements into a folder, if one is given, and prints them."""
    if output:
        write_measured(found, output)
    show(found, as_json=as_json, note=note)


def run(
    options: argparse.ArgumentParser,
    args: Sequence[str] | None,
    measure: Callable[[argparse.Namespace], Measured],
    redraw: Callable[[str], Measured],
    quick_note: str,
) -> int:
    """Measures, writes and prints; 1 if nothing was measured, 2 for a mistake in the options.

    With --redraw it calls `redraw` with the folder instead of `measure`.
    """
    given = options.parse_args(args)
    try:
        require_at_least("repeats", given.repeats, 1)
        found = redraw(given.output) if given.redraw else measure(given)
        publish(found, given.output, as_json=given.json, note=quick_note if given.quick else "")
    except NothingMeasured as failed:
        print(f"no figures: {failed}", file=sys.stderr)
        return 1
    except ENDINGS as error:
        return report_error(error)
    return 0
