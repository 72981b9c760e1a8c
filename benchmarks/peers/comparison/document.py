"""The results of a comparison: as tables, sentences, data and a picture."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from clew.lab.bench.machine import device, matrix_product_rate, products_text
from clew.lab.bench.timing import Estimate
from clew.report.document import Measured, NothingMeasured, Table, tabulate
from clew.report.markdown import plain_table
from comparison.compare import Agreement, Plan, Row, agrees, compare
from comparison.families import FAMILIES, Family
from comparison.picture import draw
from comparison.points import STEP, label, library, point_of, points
from comparison.processes import WorkerFailed, Workers, peers_python

QUICK_NOTE = "QUICK: short chunks and two turns; do not quote these figures"


class PeerComparison(NamedTuple):
    """The results of one run."""

    machine: dict[str, Any]
    plan: Plan
    versions: dict[str, str]
    product_rates: list[float]
    """floating-point operations per second of matrix products, before each family and at the end"""
    agreements: list[Agreement]
    rows: list[Row]


def report(
    plan: Plan,
    repeats: int,
    log: Callable[[str], None],
    families: Sequence[Family] = FAMILIES,
    earlier: PeerComparison | None = None,
) -> Measured:
    """Measures families by turns, and adds them to an earlier comparison if there is one.

    Subjects that need more than half of the machine's memory are not run.

    Raises:
        NothingMeasured: if a library's process fails outside a measurement.
        UserError: if the other libraries cannot be installed.
    """
    plan = plan._replace(bytes_limit=min(plan.bytes_limit, _half_of_memory()))
    try:
        found = measure_all(plan, repeats, log, families)
        return document(joined(earlier, found) if earlier else found)
    except WorkerFailed as failed:
        raise NothingMeasured(f"a library's process {failed}") from None


def measure_all(
    plan: Plan, repeats: int, log: Callable[[str], None], families: Sequence[Family]
) -> PeerComparison:
    """Compares everything; see `report`."""
    peers_python()
    with Workers() as workers:
        agreements, rows, rates = compare(
            tuple(families), plan, workers, lambda: matrix_product_rate(repeats), log
        )
        versions = {}
        for subject in dict.fromkeys(s for family in families for s in family.subjects):
            versions |= workers.of(subject).ask("libraries")
    return PeerComparison(device(), plan, versions, rates, agreements, rows)


def joined(earlier: PeerComparison, later: PeerComparison) -> PeerComparison:
    """Merges both; where they have the same point, the later one wins."""

    def place(row: Row) -> tuple[Any, ...]:
        return row.family, row.subject, point_of(row)

    again = {place(row) for row in later.rows}
    checked = {(a.family, a.subject) for a in later.agreements}
    sizes = {
        name: tuple(sorted({*getattr(earlier.plan, name), *getattr(later.plan, name)}))
        for name in ("lengths", "widths", "envs")
    }
    return PeerComparison(
        later.machine,
        later.plan._replace(**sizes),
        earlier.versions | later.versions,
        earlier.product_rates + later.product_rates,
        [a for a in earlier.agreements if (a.family, a.subject) not in checked] + later.agreements,
        [row for row in earlier.rows if place(row) not in again] + later.rows,
    )


def document(found: PeerComparison) -> Measured:
    """A comparison as `peers.json`, `peers.md` and `peers.png`."""
    return Measured(
        "peers",
        as_data(found),
        tables(found),
        heading=heading(found),
        sentences=sentences(found),
        pages={"peers.md": markdown(found)},
        pictures={"peers.png": partial(draw, found.rows, title=heading(found))},
    )


def _half_of_memory() -> int:
    """Bytes; no bound if the system does not report its memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 2**62


def tables(found: PeerComparison) -> list[Table]:
    """All tables."""
    return [
        checks_table(found.agreements, found.versions),
        *time_tables(found.rows),
        *memory_tables(found.rows),
    ]


def sentences(found: PeerComparison) -> list[str]:
    """The points where a peer is ahead, and those that could not be measured."""
    ahead, missing = peers_ahead(found.rows), not_measured(found.rows)
    return (ahead or ["No peer is ahead of clew at any point."]) + missing


def heading(found: PeerComparison) -> str:
    """What was measured on which machine."""
    plan, machine = found.plan, found.machine
    return (
        f"Width {_listed(plan.widths)}, {_listed(plan.envs)} environments learning, {plan.actors} "
        f"acting; medians of "
        f"{plan.rounds} turns. {machine['cores']} cores of {machine['processor']}, "
        f"{products_text(found.product_rates)}"
    )


def _listed(sizes: Sequence[int]) -> str:
    return " and ".join(str(size) for size in sizes)


def markdown(found: PeerComparison) -> str:
    """All tables and sentences."""
    parts = [heading(found) + ".", "", *(plain_table(table) for table in tables(found))]
    parts.append("**Where a peer is ahead, and what was not measured**\n")
    return "\n".join(parts + [f"- {line}" for line in sentences(found)]) + "\n"


def as_data(found: PeerComparison) -> dict[str, Any]:
    """The data for JSON; each row also says who is ahead."""
    rows = [row._asdict() | {"ahead": row.ahead} for row in found.rows]
    return found._asdict() | {"rows": rows}


def from_data(data: dict[str, Any]) -> PeerComparison:
    """Reads the comparison in `peers.json`."""
    plan: dict[str, Any] = {
        n: tuple(x) if isinstance(x, list) else x for n, x in data["plan"].items()
    }
    return PeerComparison(
        data["machine"],
        Plan(**plan),
        data["versions"],
        data["product_rates"],
        [Agreement(**found) for found in data["agreements"]],
        [_row(dict(row)) for row in data["rows"]],
    )


def _row(data: dict[str, Any]) -> Row:
    del data["ahead"]
    for name in ("seconds", "times_ours"):
        data[name] = data[name] and Estimate(**data[name])
    return Row(**data)


def time_tables(rows: Sequence[Row]) -> list[Table]:
    """For each family clew's milliseconds, and how many times longer each peer's are."""
    found_tables = []
    for title, subjects, found in _by_family(rows):
        own, *peers = subjects
        lines = []
        for point in points(found):
            at = {r.subject: r for r in found if point_of(r) == point}
            line = [label(point, found), _milliseconds(at.get(own))]
            lines.append(line + [_times(at.get(peer)) for peer in peers])
        columns = ("chunk", "clew, ms", *(f"{library(peer)} / clew" for peer in peers))
        found_tables.append(tabulate("peers", f"{title}: time", columns, lines))
    return found_tables


def memory_tables(rows: Sequence[Row]) -> list[Table]:
    """For each family the MiB that one call of learning adds to its process."""
    found_tables = []
    for title, subjects, found in _by_family(rows):
        lines = []
        for point in points(found):
            if point.mode == "learn":
                at = {r.subject: r for r in found if point_of(r) == point}
                lines.append([label(point, found), *(_mebibytes(at.get(s)) for s in subjects)])
        columns = ("chunk", *(f"{library(s)}, MiB" for s in subjects))
        found_tables.append(tabulate("peers", f"{title}: memory", columns, lines))
    return found_tables


def checks_table(found: Sequence[Agreement], versions: dict[str, str]) -> Table:
    """The checks made before anything was timed."""
    lines = []
    for a in found:
        if a.family != "policy-starts":  # the subjects of "policy"
            name = library(a.subject)
            lines.append(
                [
                    f"{a.subject} {_version(name, versions)}".strip(),
                    f"{a.parameters:,}",
                    f"{a.weights:,}",
                    f"{a.outputs:.0e}",
                    f"{a.gradients:.0e}",
                    _yes(a.laws["reset"], small=True),
                    _yes(a.laws["nan"]),
                    _yes(a.laws["stream"], small=True),
                    _yes(a.laws["causal"], small=True),
                    a.different or ("" if agrees(a) else "NOT EQUAL, not timed"),
                ]
            )
    columns = ("", "parameters", "in matrices", "outputs", "gradients", "reset", "NaN", "stream")
    note = (
        "outputs, gradients: largest difference from clew's with the same weights, as a fraction "
        "of the largest number. reset: after a start the outputs equal those of a fresh run. NaN: "
        "a NaN before a start does not reach the outputs after it. stream: acting gives the same "
        "as learning. causal: no output depends on later inputs."
    )
    columns += ("causal", "different function")
    return tabulate("peers", "Checks before timing", columns, lines, note)


def peers_ahead(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point at which a peer is faster, with certainty or by its median."""
    titles = {family.name: family.title for family in FAMILIES}
    lines = []
    for row in rows:
        if row.times_ours is None or row.times_ours.middle >= 1:
            continue
        where = STEP if row.mode == "act" else f"chunks of {label(point_of(row), rows)}"
        sure = "" if row.ahead == "peer" else " (undecided: the interval contains 1)"
        middle, low, high, _ = row.times_ours
        lines.append(
            f"{titles[row.family]}, {where}: {library(row.subject)} takes {middle:.2f} "
            f"[{low:.2f}, {high:.2f}] of clew's time{sure}"
        )
    return lines


def not_measured(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point without a figure."""
    titles = {family.name: family.title for family in FAMILIES}
    return [
        f"{titles[row.family]}, chunks of {label(point_of(row), rows)}: "
        f"{library(row.subject)} {row.note}"
        for row in rows
        if row.note
    ]


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[str], list[Row]]]:
    """Title, subjects with clew's first, and rows of each family."""
    found = [(family.title, [r for r in rows if r.family == family.name]) for family in FAMILIES]
    return [
        (title, list(dict.fromkeys(r.subject for r in here)), here) for title, here in found if here
    ]


def _version(name: str, versions: dict[str, str]) -> str:
    """The name of a library; "torchrl-pad" is a form of TorchRL's."""
    of_it = (
        v for n, v in versions.items() if f"{name}-".startswith(f"{n}-") or n == f"{name}-core"
    )
    return next(of_it, "")


def _milliseconds(row: Row | None) -> str:
    if row is None or row.seconds is None:
        return row.note if row else ""
    middle, low, high, _ = (1e3 * x for x in row.seconds)
    digits = 3 if middle < 1 else 2 if middle < 10 else 1
    return f"{middle:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def _times(row: Row | None) -> str:
    """Bold where the peer is ahead beyond the interval."""
    if row is None or row.times_ours is None:
        return row.note if row else ""
    middle, low, high, _ = row.times_ours
    text = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    return f"**{text}**" if row.ahead == "peer" else text


def _mebibytes(row: Row | None) -> str:
    if row is None or row.resident_bytes is None:
        return row.note if row else ""
    return f"{row.resident_bytes / 2**20:,.1f}"


def _yes(value: float | bool | None, *, small: bool = False) -> str:
    """Whether a law holds; `small`: whether a deviation is small enough to be rounding."""
    if value is None:
        return "no starts"
    held = value < 1e-4 if small else value
    return "holds" if held else "BROKEN"
