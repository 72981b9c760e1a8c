"""The command line of measurements that produce tables, a picture and JSON."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.options import described

from clew.cli import ENDINGS, report_error
from clew.cli.tables import show
from clew.errors import require_at_least
from clew.report.document import Measured, NothingMeasured
from clew.report.files import write_measured


def parser(about: str | None, repeats: int) -> argparse.ArgumentParser:
    """The options of measurements of memories, by turns."""
    found = described(about)
    found.add_argument("--memories", nargs="+", default=[], help="measure only these")
    found.add_argument("--repeats", type=int, default=repeats, help="turns that count")
    found.add_argument("--quick", action="store_true", help="to see that it works, not to quote")
    found.add_argument("--output", default="", help="write tables, a picture and JSON here")
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return found


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
    quick_note: str,
) -> int:
    """Measures, writes and prints; 1 if nothing was measured, 2 for a mistake in the options."""
    given = options.parse_args(args)
    try:
        require_at_least("repeats", given.repeats, 1)
        found = measure(given)
        publish(found, given.output, as_json=given.json, note=quick_note if given.quick else "")
    except NothingMeasured as failed:
        print(f"no figures: {failed}", file=sys.stderr)
        return 1
    except ENDINGS as error:
        return report_error(error)
    return 0
