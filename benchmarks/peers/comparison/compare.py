"""Measures families of memories by turns, after checking that their work is equal."""

import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.lab.bench.timing import Estimate, by_turns, estimate, ratio
from comparison.families import DIFFERENT, Family, make_arrays
from comparison.processes import Library, WorkerFailed
from serve import Arrays, Sizes

PAUSE = 0.05
"""Seconds between turns, in which the threads of the last one come to rest."""
TOLERANCE = 1e-3
"""Largest allowed difference of outputs and gradients between two libraries that compute the same
function in single precision, as a fraction of the largest number."""


class Plan(NamedTuple):
    """How much to measure."""

    lengths: tuple[int, ...] = (64, 256, 1024, 2048, 4096, 8192)
    """of chunks"""
    widths: tuple[int, ...] = (128,)
    envs: tuple[int, ...] = (4,)
    """environments that learn side by side; each number with each length and width"""
    actors: int = 8
    """environments that act side by side"""
    rounds: int = 6
    """turns of every subject at every point"""
    turn: float = 0.1
    """least seconds of a turn, in as many calls as needed"""
    bytes_limit: int = 6 * 2**30
    """a subject that would need more than this is not run"""
    seconds_limit: float = 6.0
    """a subject is not measured further if one call takes longer"""


QUICK = Plan(lengths=(8, 32), widths=(16,), envs=(2,), actors=2, rounds=2, turn=0.005)
"""Enough to see that everything works; not to quote."""


class Agreement(NamedTuple):
    """A description of a subject, and whether its work equals clew's."""

    family: str
    subject: str
    parameters: int
    weights: int
    """parameters in matrices: the multiply-adds of a step, without those of the state itself"""
    equal_work: bool
    """whether it has as many weights as clew's"""
    outputs: float
    gradients: float
    """largest differences from clew's with the same weights, as a fraction of the largest number"""
    different: str
    """why it is a different function; empty if it must agree"""
    laws: dict[str, Any]
    """the result of `serve.broken`"""


def agreements(family: Family, plan: Plan, library: Library) -> Iterator[Agreement]:
    """Compares weights, outputs and gradients on a short chunk, and runs the laws."""
    sizes = Sizes(min(12, plan.lengths[0]), 2, 2, plan.widths[0])
    arrays = make_arrays(family, sizes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        own: tuple[dict[str, Any], Arrays] | None = None
        for subject in family.subjects:
            worker, given = library.of(subject), {"sizes": sizes, "arrays": str(file)}
            facts = worker.ask(
                "prepare", subject=subject, mode="learn", limit=plan.bytes_limit, **given
            )
            written = Path(folder) / f"{subject}.npz"
            worker.ask("result", subject=subject, file=str(written))
            result = dict(np.load(written))
            laws = worker.ask("laws", subject=subject, **given)
            worker.ask("forget")
            own = own or (facts, result)
            yield Agreement(
                family.name,
                subject,
                facts["parameters"],
                facts["weights"],
                facts["weights"] == own[0]["weights"],
                _difference(result, own[1], ["outputs"]),
                _difference(result, own[1], [n for n in own[1] if n != "outputs"]),
                DIFFERENT.get(subject, ""),
                laws,
            )


def agrees(found: Agreement) -> bool:
    """Whether a subject may be timed: equal work, and one function unless it is in `DIFFERENT`."""
    same = found.outputs <= TOLERANCE and found.gradients <= TOLERANCE
    return found.equal_work and (same or bool(found.different))


def _difference(found: Arrays, expected: Arrays, names: list[str]) -> float:
    """The largest difference over the shared arrays, NaN if one has NaN; a peer may give fewer."""
    differences = [
        np.max(np.abs(found[n] - expected[n])) / max(np.max(np.abs(expected[n])), 1e-30)
        for n in names
        if n in found
    ]
    return float(np.max(differences)) if differences else np.nan


class Row(NamedTuple):
    """One subject at one point."""

    family: str
    mode: str
    """"learn": forward and backward through a chunk; "act": one observation"""
    length: int
    """of the chunk, 1 when acting"""
    envs: int
    width: int
    subject: str
    seconds: Estimate | None
    """of one call"""
    times_ours: Estimate | None
    """its seconds relative to clew's, turn by turn: above 1 clew is faster; None for clew's"""
    resident_bytes: int | None
    """memory that one call adds to its process"""
    planned_bytes: int | None
    """XLA's plan of the program, if there is one; arguments and results included"""
    compile_seconds: float | None
    note: str
    """why something was not measured"""
    product_rate: float = math.nan
    """operations per second of the machine's matrix products around that time"""

    @property
    def ahead(self) -> str:
        """Who is faster beyond the interval: "clew", "peer", "neither", or "" if not measured."""
        if self.times_ours is None:
            return ""
        _, low, high, _ = self.times_ours
        return "clew" if low > 1 else "peer" if high < 1 else "neither"


def measure(
    family: Family, mode: str, sizes: Sizes, plan: Plan, library: Library, leave_out: set[str]
) -> list[Row]:
    """All subjects of a family at one point, by turns."""
    facts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **make_arrays(family, sizes))  # pyright: ignore[reportArgumentType]
        for subject in family.subjects:
            if subject not in leave_out:
                given = {"sizes": sizes, "arrays": str(file), "limit": plan.bytes_limit}
                facts[subject] = _prepare(library, subject, mode, given, plan)
    measures = {
        subject: _seconds(library, subject, max(1, round(plan.turn / one["seconds"])))
        for subject, one in facts.items()
        if not one.get("note")
    }
    seconds = by_turns(measures, plan.rounds, rotate=True)
    rows = []
    own = seconds.get(family.subjects[0], [])
    for subject in facts:
        took = seconds.get(subject, [])
        compared = took and own and subject != family.subjects[0]
        rows.append(
            Row(
                family.name,
                mode,
                sizes.length,
                sizes.envs if mode == "learn" else sizes.actors,
                sizes.width,
                subject,
                estimate(took) if took else None,
                ratio(took, own) if compared else None,
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
    """The facts about a subject; "note" says why it is not measured."""
    try:
        facts = library.of(subject).ask("prepare", subject=subject, mode=mode, **given)
    except WorkerFailed as failed:
        return {"note": f"failed: {failed}"}
    if "skipped" in facts:
        return facts | {"note": facts["skipped"]}
    if facts["seconds"] > plan.seconds_limit:
        return facts | {"note": f"one call took {facts['seconds']:.1f} s"}
    return facts


def _seconds(library: Library, subject: str, calls: int) -> Callable[[], float]:
    """A measure of the seconds of one call, from `calls` in a row, and a pause."""

    def measured() -> float:
        took = library.of(subject).ask("time", subject=subject, calls=calls)
        time.sleep(PAUSE)
        return took["seconds"]

    return measured


def _resident(library: Library, subject: str) -> int | None:
    return library.of(subject).ask("memory", subject=subject)["bytes"]


def compare(
    families: tuple[Family, ...],
    plan: Plan,
    library: Library,
    product_rate: Callable[[], float],
    log: Callable[[str], None],
) -> tuple[list[Agreement], list[Row], list[float]]:
    """Checks and measures families one after another.

    Returns:
        Agreements; rows; and the product rate before every family and after the last one.
    """
    found: list[Agreement] = []
    rows: list[Row] = []
    rates = [product_rate()]
    for family in families:
        log(f"{family.title}: checking that all do equal work")
        checked = list(agreements(family, plan, library))
        found += checked
        leave_out = {a.subject for a in checked if not agrees(a)}
        here: list[Row] = []
        for width in plan.widths if family.acting else ():
            log(f"{family.title}: acting, width {width}")
            sizes = Sizes(1, plan.envs[0], plan.actors, width)
            here += measure(family, "act", sizes, plan, library, leave_out)
        for width, envs, length in itertools.product(plan.widths, plan.envs, plan.lengths):
            log(f"{family.title}: chunks of {length:,} of {envs} environments, width {width}")
            sizes = Sizes(length, envs, plan.actors, width)
            here += measure(family, "learn", sizes, plan, library, leave_out)
        rates.append(product_rate())
        meanwhile = (rates[-2] + rates[-1]) / 2
        rows += [row._replace(product_rate=meanwhile) for row in here]
    return found, rows, rates
