"""Compares other libraries' memories with clew's by turns, after checking that the work is equal.

    make bench-peers
    make bench-peers BENCH_ARGS="--output results/peers"

The other libraries live in their own environment, `.venv-peers`, which is built if it is
missing (2 GB, once). The comparison takes 8 minutes; leave the machine alone meanwhile.
"""

import argparse
import json
import sys
from pathlib import Path

from clew.cli import ENDINGS, report_error
from clew.cli.tables import log, show
from clew.errors import UserError, require_at_least, unknown_name
from clew.report.document import Measured, NothingMeasured
from clew.report.files import write_measured
from comparison.compare import QUICK, Plan
from comparison.document import QUICK_NOTE, PeerComparison, document, from_data, report
from comparison.families import FAMILIES, Family


def families_of(names: list[str]) -> list[Family]:
    """The families with these names, or all.

    Raises:
        UserError: for an unknown one.
    """
    known = {family.name: family for family in FAMILIES}
    for name in names:
        if name not in known:
            raise unknown_name("family", name, known)
    return [known[name] for name in names or known]


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan: how much to measure.

    Raises:
        UserError: for a size below 1.
    """
    plan = QUICK if given.quick else Plan(rounds=given.repeats)
    for name, sizes in (
        ("lengths", given.lengths),
        ("envs", given.envs),
        ("widths", given.widths),
    ):
        for size in sizes:
            require_at_least(name, size, 1)
        if sizes:
            plan = plan._replace(**{name: tuple(sizes)})
    return plan


def earlier_of(folder: Path | None) -> PeerComparison:
    """The earlier comparison in a folder.

    Raises:
        UserError: if there is none, or it is from an earlier version.
    """
    file = folder / "peers.json" if folder else None
    if file is None or not file.exists():
        raise UserError(f"--add and --redraw need an --output with peers.json, got {folder}")
    try:
        return from_data(json.loads(file.read_text()))
    except TypeError as error:
        raise UserError(f"{file} is of an earlier version: {error}; measure it anew") from error


def require_nothing_lost(folder: Path | None, families: list[Family]) -> None:
    """Checks that, without `--add`, a folder has no families besides those to be measured again.

    Raises:
        UserError: if it holds others.
    """
    file = folder / "peers.json" if folder else None
    if file is None or not file.exists():
        return
    there = dict.fromkeys(row["family"] for row in json.loads(file.read_text())["rows"])
    lost = [name for name in there if name not in {family.name for family in families}]
    if lost:
        raise UserError(
            f"{file} holds {', '.join(lost)} too, which would be lost; "
            "add to it (--add) or name another --output"
        )


def compared(given: argparse.Namespace) -> Measured:
    """What the options ask for, measured.

    Raises:
        UserError: for a mistake in them.
    """
    plan, families = plan_of(given), families_of(given.families)
    earlier = earlier_of(given.output) if given.add else None
    if not earlier:
        require_nothing_lost(given.output, families)
    return report(plan, 1 if given.quick else 3, log, families, earlier)


def main(args: list[str]) -> int:
    """Compares and prints tables; exits with 1 if a library fails, 2 for a user's mistake."""
    parser = argparse.ArgumentParser(
        prog="bench_peers.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repeats", type=int, default=6, help="turns; the table has their median (6)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short chunks and 2 turns: to see that it works, not to quote",
    )
    parser.add_argument("--families", nargs="+", default=[], help="measure only these")
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=[], help="of chunks, in steps (64 to 8192)"
    )
    parser.add_argument(
        "--envs", nargs="+", type=int, default=[], help="environments that learn (4)"
    )
    parser.add_argument(
        "--widths", nargs="+", type=int, default=[], help="of inputs and memory (128)"
    )
    parser.add_argument("--output", type=Path, help="a folder for tables, picture and JSON")
    parser.add_argument(
        "--add", action="store_true", help="to what this folder holds of an earlier comparison"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="measure nothing: write what this folder holds again"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args(args)
    try:
        require_at_least("repeats", given.repeats, 1)
        found = document(earlier_of(given.output)) if given.redraw else compared(given)
        if given.output:
            write_measured(found, given.output)
    except NothingMeasured as failed:
        print(f"no figures: {failed}", file=sys.stderr)
        return 1
    except ENDINGS as error:
        return report_error(error)
    show(found, as_json=given.json, note=QUICK_NOTE if given.quick else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
