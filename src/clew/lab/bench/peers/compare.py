"""Measures families of memories by turns, after checking that they do equal work."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.lab.bench.medians import Median, median_of
from clew.lab.bench.peers.checks import Agreement, agreements, agrees
from clew.lab.bench.peers.families import Family, Sizes, make_arrays
from clew.lab.bench.peers.plan import Library, Plan
from clew.lab.bench.peers.worker import WorkerFailed

PAUSE = 0.05
"""Seconds between turns, in which the threads of the last one come to rest."""


class Row(NamedTuple):
    """One subject at one point."""

    family: str
    mode: str
    """"learn": forward and backward through a chunk; "act": one observation"""
    length: int
    """of the chunk, 1 when acting"""
    envs: int
    subject: str
    seconds: Median | None
    """of one call"""
    times_ours: Median | None
    """its seconds by ours, turn by turn: above 1 we are faster; None for ours"""
    resident_bytes: int | None
    """what one call adds to its process"""
    planned_bytes: int | None
    """XLA's plan of the program, where there is one; arguments and results included"""
    compile_seconds: float | None
    note: str
    """why something was not measured"""

    @property
    def ahead(self) -> str:
        """Who is faster beyond the interval: "clew", "peer", "neither", or "" if not measured."""
        if self.times_ours is None:
            return ""
        _, low, high, _ = self.times_ours
        return "clew" if low > 1 else "peer" if high < 1 else "neither"


def measure(
    family: Family, mode: str, length: int, plan: Plan, library: Library, leave_out: set[str]
) -> list[Row]:
    """All subjects of a family at one point, by turns."""
    sizes = Sizes(length, plan.envs, plan.actors, plan.width)
    facts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **make_arrays(family, sizes))  # pyright: ignore[reportArgumentType]
        for subject in family.subjects:
            if subject not in leave_out:
                given = {"sizes": sizes, "arrays": str(file), "limit": plan.bytes_limit}
                facts[subject] = _prepare(library, subject, mode, given, plan)
    measured = [s for s in facts if not facts[s].get("note")]
    seconds = _rounds(measured, facts, plan, library)
    rows = []
    for subject in facts:
        took, ours = seconds.get(subject, []), seconds.get(family.subjects[0], [])
        peer = subject != family.subjects[0]
        ratios = [a / b for a, b in zip(took, ours, strict=False)] if peer else []
        rows.append(
            Row(
                family.name,
                mode,
                length,
                plan.envs if mode == "learn" else plan.actors,
                subject,
                median_of(took) if took else None,
                median_of(ratios) if ratios else None,
                _resident(library, subject) if took and mode == "learn" else None,
                facts[subject].get("planned_bytes"),
                facts[subject].get("compile_seconds"),
                facts[subject].get("note", ""),
            )
        )
    for subject in facts:
        library.of(subject).ask("forget")
    return rows


def _prepare(
    library: Library, subject: str, mode: str, given: dict[str, Any], plan: Plan
) -> dict[str, Any]:
    """Its facts; "note" says why it is not to be measured."""
    try:
        facts = library.of(subject).ask("prepare", subject=subject, mode=mode, **given)
    except WorkerFailed as failed:
        return {"note": f"failed: {failed}"}
    if "skipped" in facts:
        return facts | {"note": facts["skipped"]}
    if facts["seconds"] > plan.seconds_limit:
        return facts | {"note": f"one call took {facts['seconds']:.1f} s"}
    return facts


def _rounds(
    subjects: list[str], facts: dict[str, dict[str, Any]], plan: Plan, library: Library
) -> dict[str, list[float]]:
    """Seconds of one call in every round; each round begins with another subject."""
    seconds: dict[str, list[float]] = {subject: [] for subject in subjects}
    for number in range(plan.rounds if subjects else 0):
        first = number % len(subjects)
        for subject in subjects[first:] + subjects[:first]:
            calls = max(1, round(plan.turn / facts[subject]["seconds"]))
            took = library.of(subject).ask("time", subject=subject, calls=calls)
            seconds[subject].append(took["seconds"])
            time.sleep(PAUSE)
    return seconds


def _resident(library: Library, subject: str) -> int | None:
    return library.of(subject).ask("memory", subject=subject)["bytes"]


Report = Callable[[str], None]


def compare(
    families: tuple[Family, ...],
    plan: Plan,
    library: Library,
    product_rate: Callable[[], float],
    report: Report,
) -> tuple[list[Agreement], list[Row], list[float]]:
    """Checks and measures families one after the other.

    Args:
        families: what to compare.
        plan: how much.
        library: where the subjects run.
        product_rate: floating-point operations per second of this machine's matrix products.
        report: told what is measured next.

    Returns:
        Agreements; rows; and the product rate before every family and after the last.
    """
    found: list[Agreement] = []
    rows: list[Row] = []
    rates = []
    for family in families:
        rates.append(product_rate())
        report(f"{family.title}: checking that all do equal work")
        checked = list(agreements(family, plan, library))
        found += checked
        leave_out = {a.subject for a in checked if not agrees(a)}
        if family.acting:
            report(f"{family.title}: acting")
            rows += measure(family, "act", 1, plan, library, leave_out)
        for length in plan.lengths:
            report(f"{family.title}: chunks of {length:,}")
            rows += measure(family, "learn", length, plan, library, leave_out)
    rates.append(product_rate())
    return found, rows, rates
