"""What was compared, as tables and as sentences."""

from collections.abc import Sequence

from clew.lab.bench.peers.checks import Agreement, agrees
from clew.lab.bench.peers.compare import Row
from clew.lab.bench.peers.families import FAMILIES
from clew.lab.costs.tables import Grid

STEP = "one step"


def library(subject: str) -> str:
    """The library of a subject."""
    return subject.split(".")[0]


def time_tables(rows: Sequence[Row]) -> list[Grid]:
    """For each family our milliseconds and by how much each peer's are longer."""
    grids = []
    for title, subjects, found in _by_family(rows):
        ours, *peers = subjects
        lines = []
        for mode, length in _points(found):
            at = {r.subject: r for r in found if (r.mode, r.length) == (mode, length)}
            line = [STEP if mode == "act" else f"{length:,}", _milliseconds(at.get(ours))]
            lines.append(line + [_times(at.get(peer)) for peer in peers])
        columns = ("chunk", "clew, ms", *(f"{library(peer)} / clew" for peer in peers))
        grids.append(Grid(f"{title}: time", columns, lines))
    return grids


def memory_tables(rows: Sequence[Row]) -> list[Grid]:
    """For each family the MiB that one call of learning adds to its process."""
    grids = []
    for title, subjects, found in _by_family(rows):
        lines = []
        for mode, length in _points(found):
            if mode == "learn":
                at = {r.subject: r for r in found if (r.mode, r.length) == (mode, length)}
                lines.append([f"{length:,}", *(_mebibytes(at.get(s)) for s in subjects)])
        columns = ("chunk", *(f"{library(s)}, MiB" for s in subjects))
        grids.append(Grid(f"{title}: memory", columns, lines))
    return grids


def checks_table(found: Sequence[Agreement], versions: dict[str, str]) -> Grid:
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
        "outputs, gradients: largest difference from clew's with the same weights, as a share of "
        "the largest number. reset: what follows a start equals a fresh run. NaN: one before a "
        "start stays out of what follows. stream: acting equals learning. causal: nothing depends "
        "on what comes later."
    )
    return Grid("Checked first", (*columns, "causal", "another function"), lines, note)


def peers_ahead(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point at which a peer is faster, surely or by its median."""
    titles = {family.name: family.title for family in FAMILIES}
    said = []
    for row in rows:
        if row.times_ours is None or row.times_ours.middle >= 1:
            continue
        where = STEP if row.mode == "act" else f"chunks of {row.length:,}"
        sure = "" if row.ahead == "peer" else " (undecided: the interval has 1 in it)"
        middle, low, high, _ = row.times_ours
        said.append(
            f"{titles[row.family]}, {where}: {library(row.subject)} takes {middle:.2f} "
            f"[{low:.2f}, {high:.2f}] of clew's time{sure}"
        )
    return said


def not_measured(rows: Sequence[Row]) -> list[str]:
    """A sentence for every point that has no figure."""
    titles = {family.name: family.title for family in FAMILIES}
    return [
        f"{titles[row.family]}, chunks of {row.length:,}: {library(row.subject)} {row.note}"
        for row in rows
        if row.note
    ]


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[str], list[Row]]]:
    """Title, subjects with ours first, and rows of each family."""
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
