"""Whether subjects do equal work and are the same function, before any of them is timed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.lab.bench.peers.families import DIFFERENT, Arrays, Family, Sizes, make_arrays
from clew.lab.bench.peers.plan import Library, Plan

TOLERANCE = 1e-3
"""Largest difference of outputs and gradients, as a share of the largest number, of one function
in two libraries in single precision."""


class Agreement(NamedTuple):
    """What a subject is, and whether it does what ours does."""

    family: str
    subject: str
    parameters: int
    weights: int
    """parameters in matrices: multiply-adds of a step, but for what the state itself costs"""
    equal_work: bool
    """as many weights as ours"""
    outputs: float
    gradients: float
    """largest differences from ours with the same weights, as a share of the largest number"""
    different: str
    """why it is another function; empty if it must agree"""
    laws: dict[str, Any]
    """what `broken` in `benchmarks/peers/serve.py` found"""


def agreements(family: Family, plan: Plan, library: Library) -> Iterator[Agreement]:
    """Compares weights, outputs and gradients on a short chunk, and runs the laws."""
    sizes = Sizes(min(12, plan.lengths[0]), 2, 2, plan.width)
    arrays = make_arrays(family, sizes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        ours: tuple[dict[str, Any], Arrays] | None = None
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
            ours = ours or (facts, result)
            yield Agreement(
                family.name,
                subject,
                facts["parameters"],
                facts["weights"],
                facts["weights"] == ours[0]["weights"],
                _difference(result, ours[1], ["outputs"]),
                _difference(result, ours[1], [n for n in ours[1] if n != "outputs"]),
                DIFFERENT.get(subject, ""),
                laws,
            )


def agrees(found: Agreement) -> bool:
    """Whether a subject may be timed: equal work, and one function unless it is told otherwise."""
    same = max(found.outputs, found.gradients) <= TOLERANCE
    return found.equal_work and (same or bool(found.different))


def _difference(theirs: Arrays, ours: Arrays, names: list[str]) -> float:
    """The largest over the arrays that both have; a peer may give fewer gradients."""
    found = [
        float(np.max(np.abs(theirs[n] - ours[n])) / max(float(np.max(np.abs(ours[n]))), 1e-30))
        for n in names
        if n in theirs
    ]
    return max(found, default=float("nan"))
