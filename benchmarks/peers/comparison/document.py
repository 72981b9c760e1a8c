"""What was compared: as tables, sentences, data and a picture."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from clew.lab.bench.machine import device, matrix_product_rate
from clew.lab.bench.timing import Estimate
from clew.report.document import Measured, NothingMeasured, Table, tabulate
from clew.report.figures import COLOURS, new_figure
from clew.report.markdown import plain_table
from clew.run.machine import git_commit
from comparison.compare import Agreement, Plan, Row, agrees, compare
from comparison.families import FAMILIES, Family
from comparison.processes import WorkerFailed, Workers, peers_python

QUICK_NOTE = "QUICK: short chunks and two turns, no figures to quote"
STEP = "one step"

PANELS = {
    "LSTM": ("lstm",),
    "GRU": ("gru",),
    "Linear attention": ("linear_attention",),
    "Gated delta rule": ("gated_delta_net",),
    "LSTM policy": ("policy", "policy-starts"),
}
"""Title of a panel to families; the second one's lines are dashed."""

LIBRARIES = {
    "clew": "#000000",
    "torch": COLOURS[1],
    "flax": COLOURS[0],
    "memax": COLOURS[2],
    "memorax": COLOURS[3],
    "sb3-contrib": COLOURS[1],
}
"""Colours."""


class Comparison(NamedTuple):
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
) -> Measured:
    """Measures families by turns.

    Args:
        plan: how much to measure; nothing that needs more than half of the machine's memory is run.
        repeats: of the product rate each time that it is measured.
        log: called with what is done next.
        families: what to measure.

    Raises:
        NothingMeasured: if a library's process fails outside a measurement.
        UserError: if the other libraries cannot be installed.
    """
    plan = plan._replace(bytes_limit=min(plan.bytes_limit, _half_of_memory()))
    try:
        return document(measure_all(plan, repeats, log, families))
    except WorkerFailed as failed:
        raise NothingMeasured(f"a library's process {failed}") from None


def measure_all(
    plan: Plan, repeats: int, log: Callable[[str], None], families: Sequence[Family]
) -> Comparison:
    """Everything that is compared; see `report`."""
    peers_python()
    with Workers() as workers:
        agreements, rows, rates = compare(
            tuple(families), plan, workers, lambda: matrix_product_rate(repeats), log
        )
        versions = {}
        for subject in dict.fromkeys(s for family in families for s in family.subjects):
            versions |= workers.of(subject).ask("libraries")
    machine = device() | {"commit": git_commit()}
    return Comparison(machine, plan, versions, rates, agreements, rows)


def document(found: Comparison) -> Measured:
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
    """Bytes; without a bound where the system does not report its memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 2**62


def tables(found: Comparison) -> list[Table]:
    """All tables."""
    return [
        checks_table(found.agreements, found.versions),
        *time_tables(found.rows),
        *memory_tables(found.rows),
    ]


def sentences(found: Comparison) -> list[str]:
    """Where a peer is ahead, and what could not be measured."""
    ahead, missing = peers_ahead(found.rows), not_measured(found.rows)
    return (ahead or ["No peer is ahead of clew at any point."]) + missing


def heading(found: Comparison) -> str:
    """What was measured on which machine."""
    plan, machine, rates = found.plan, found.machine, sorted(found.product_rates)
    return (
        f"Width {plan.width}, {plan.envs} environments learning, {plan.actors} acting; medians of "
        f"{plan.rounds} turns. {machine['cores']} cores of {machine['processor']}, "
        f"{rates[0] / 1e9:,.0f} to {rates[-1] / 1e9:,.0f} GFLOP/s in matrix products meanwhile"
    )


def markdown(found: Comparison) -> str:
    """All tables and sentences."""
    parts = [heading(found) + ".", "", *(plain_table(table) for table in tables(found))]
    parts.append("**Where a peer is ahead, and what was not measured**\n")
    return "\n".join(parts + [f"- {line}" for line in sentences(found)]) + "\n"


def as_data(found: Comparison) -> dict[str, Any]:
    """For JSON; each row also has who is ahead, and the machine's product rate at that time."""
    rates = found.product_rates
    around = zip(rates, rates[1:], strict=False)
    families = dict.fromkeys(row.family for row in found.rows)
    meanwhile = {f: (a + b) / 2 for f, (a, b) in zip(families, around, strict=False)}
    rows = [
        row._asdict() | {"ahead": row.ahead, "product_rate": meanwhile[row.family]}
        for row in found.rows
    ]
    return found._asdict() | {"rows": rows}


def from_data(data: dict[str, Any]) -> Comparison:
    """The comparison of `peers.json`."""
    plan = data["plan"] | {"lengths": tuple(data["plan"]["lengths"])}
    return Comparison(
        data["machine"],
        Plan(**plan),
        data["versions"],
        data["product_rates"],
        [Agreement(**found) for found in data["agreements"]],
        [_row(dict(row)) for row in data["rows"]],
    )


def _row(data: dict[str, Any]) -> Row:
    del data["ahead"], data["product_rate"]
    for name in ("seconds", "times_ours"):
        data[name] = data[name] and Estimate(**data[name])
    return Row(**data)


def library(subject: str) -> str:
    """The library of a subject."""
    return subject.split(".")[0]


def time_tables(rows: Sequence[Row]) -> list[Table]:
    """For each family clew's milliseconds and by how much each peer's are longer."""
    found_tables = []
    for title, subjects, found in _by_family(rows):
        own, *peers = subjects
        lines = []
        for mode, length in _points(found):
            at = {r.subject: r for r in found if (r.mode, r.length) == (mode, length)}
            line = [STEP if mode == "act" else f"{length:,}", _milliseconds(at.get(own))]
            lines.append(line + [_times(at.get(peer)) for peer in peers])
        columns = ("chunk", "clew, ms", *(f"{library(peer)} / clew" for peer in peers))
        found_tables.append(tabulate("peers", f"{title}: time", columns, lines))
    return found_tables


def memory_tables(rows: Sequence[Row]) -> list[Table]:
    """For each family the MiB that one call of learning adds to its process."""
    found_tables = []
    for title, subjects, found in _by_family(rows):
        lines = []
        for mode, length in _points(found):
            if mode == "learn":
                at = {r.subject: r for r in found if (r.mode, r.length) == (mode, length)}
                lines.append([f"{length:,}", *(_mebibytes(at.get(s)) for s in subjects)])
        columns = ("chunk", *(f"{library(s)}, MiB" for s in subjects))
        found_tables.append(tabulate("peers", f"{title}: memory", columns, lines))
    return found_tables


def checks_table(found: Sequence[Agreement], versions: dict[str, str]) -> Table:
    """What was checked before anything was timed."""
    lines = []
    for a in found:
        if a.family != "policy-starts":  # the subjects of "policy"
            name = library(a.subject)
            lines.append(
                [
                    f"{a.subject} {versions.get(name, '')}".strip(),
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
        "of the largest number. reset: what follows a start equals a fresh run. NaN: one before a "
        "start stays out of what follows. stream: acting equals learning. causal: nothing depends "
        "on what comes later."
    )
    return tabulate("peers", "Checked first", (*columns, "causal", "another function"), lines, note)


def peers_ahead(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point at which a peer is faster, surely or by its median."""
    titles = {family.name: family.title for family in FAMILIES}
    lines = []
    for row in rows:
        if row.times_ours is None or row.times_ours.middle >= 1:
            continue
        where = STEP if row.mode == "act" else f"chunks of {row.length:,}"
        sure = "" if row.ahead == "peer" else " (undecided: the interval has 1 in it)"
        middle, low, high, _ = row.times_ours
        lines.append(
            f"{titles[row.family]}, {where}: {library(row.subject)} takes {middle:.2f} "
            f"[{low:.2f}, {high:.2f}] of clew's time{sure}"
        )
    return lines


def not_measured(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point that has no figure."""
    titles = {family.name: family.title for family in FAMILIES}
    return [
        f"{titles[row.family]}, chunks of {row.length:,}: {library(row.subject)} {row.note}"
        for row in rows
        if row.note
    ]


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[str], list[Row]]]:
    """Title, subjects with clew's first, and rows of each family."""
    found = [(family.title, [r for r in rows if r.family == family.name]) for family in FAMILIES]
    return [
        (title, list(dict.fromkeys(r.subject for r in here)), here) for title, here in found if here
    ]


def _points(rows: Sequence[Row]) -> list[tuple[str, int]]:
    return sorted({(row.mode, row.length) for row in rows})


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
    """Whether a law holds; `small`: whether a deviation is one of rounding."""
    if value is None:
        return "no starts"
    held = value < 1e-4 if small else value
    return "holds" if held else "BROKEN"


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Writes the picture as a PNG: microseconds per observation above, MiB of a call below."""
    figure = new_figure(15, 7.5)
    measured = {row.family for row in rows}
    shown_panels = {name: of for name, of in PANELS.items() if measured & set(of)}
    panels = figure.subplots(2, len(shown_panels), squeeze=False, sharex=True)
    for column, (name, families) in enumerate(shown_panels.items()):
        above, below = panels[0][column], panels[1][column]
        for family, style in zip(families, ("-", "--"), strict=False):
            found = [r for r in rows if r.family == family and r.mode == "learn"]
            _lines(above, below, found, style)
        above.set_title(name, loc="left")
        below.set_xlabel("chunk in steps")
        for axes in (above, below):
            _dress(axes, sorted({r.length for r in rows if r.mode == "learn"}))
    panels[0][0].set_ylabel("microseconds per observation\nforward and backward")
    panels[1][0].set_ylabel("MiB that a call adds")
    shown = [n for n in LIBRARIES if any(library(r.subject) == n for r in rows)]
    handles = [Line2D([], [], color=LIBRARIES[n], label=n, marker=_marker(n)) for n in shown]
    handles.append(Line2D([], [], color="grey", linestyle="--", label="an episode begins within"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=100)


def _lines(above: Axes, below: Axes, rows: Sequence[Row], style: str) -> None:
    """One family's subjects, clew's last and so on top."""
    for subject in sorted({r.subject for r in rows}, reverse=True, key=_clew_last):
        mine = sorted((r for r in rows if r.subject == subject), key=lambda r: r.length)
        name = library(subject)
        colour, mark = LIBRARIES[name], _marker(name)
        timed = [r for r in mine if r.seconds is not None]
        each = [1e6 / (r.length * r.envs) for r in timed]
        medians = [r.seconds for r in timed if r.seconds is not None]
        lengths = [r.length for r in timed]
        middle = [m.middle * e for m, e in zip(medians, each, strict=True)]
        above.plot(lengths, middle, color=colour, linestyle=style, marker=mark)
        low = [m.low * e for m, e in zip(medians, each, strict=True)]
        high = [m.high * e for m, e in zip(medians, each, strict=True)]
        above.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0)
        sized = [r for r in mine if r.resident_bytes]
        mebibytes = [(r.resident_bytes or 0) / 2**20 for r in sized]
        at = [r.length for r in sized]
        below.plot(at, mebibytes, color=colour, linestyle=style, marker=mark)


def _dress(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths], fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _clew_last(subject: str) -> bool:
    return library(subject) != "clew"


def _marker(name: str) -> str:
    return "o" if name == "clew" else "."
