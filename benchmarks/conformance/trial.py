"""One model's test: the laws, the smallest cases of broken ones, and a summary."""

import math
import platform
import time
from importlib import metadata
from typing import Any

import numpy as np
from benchmarks.conformance.confirmations import CONFIRMATIONS
from benchmarks.conformance.model import BY_CALLER, Model
from benchmarks.conformance.page import COLUMNS, VALUES, outputs_agree
from benchmarks.conformance.smallest import smallest

from clew.memory.base import AbstractMemory
from clew.memory.laws import LawReport, check

NON_FINITE = ("after NaN", "after infinity", "after -1e30")


def try_model(name: str, model: Model) -> dict[str, Any]:
    """The row of a model: its description, each law's outcome, and evidence for broken laws."""
    began = time.perf_counter()
    memory = model.make()
    row: dict[str, Any] = {
        "model": name,
        "library": model.library,
        "version": metadata.version(model.library),
        "what": model.what,
        "chunk": model.chunk,
        "step": model.step,
        "starts": model.starts,
        "lengths": model.lengths,
        "python": platform.python_version(),
    }
    report = check(memory, lengths=model.lengths, raise_on_failure=False)
    row["laws"] = outcomes(report, model.starts == BY_CALLER)
    row["warnings"] = report.warnings
    broken = [law for law, found in row["laws"].items() if found["verdict"] == "broken"]
    if broken and broken != ["non-finite"]:
        apart = [law for law in broken if not outputs_agree(row["laws"][law])]
        row["smallest"] = _smallest(memory, apart)
        row["float64"] = _double(memory, model)
    if broken:
        row["confirmed"] = confirmed(name)
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def outcomes(report: LawReport, by_caller: bool = False) -> dict[str, dict[str, Any]]:
    """Each column's verdict, "holds", "broken" or "not run", its deviations and first failure.

    Args:
        report: of a check.
        by_caller: whether the adapter resets within a chunk: then `reset` is "not run".
    """
    found = {}
    for column in COLUMNS:
        cases = _cases(report, column)
        failure = next((case.failure for case in cases if case.failure is not None), None)
        skipped = not cases or (by_caller and column in ("reset", "non-finite"))
        found[column] = {
            "verdict": "not run" if skipped else "broken" if failure else "holds",
            "cases": len(cases),
            "value": _number(max((case.value for case in cases), default=0.0)),
            "gradient": _number(max((case.gradient for case in cases), default=0.0)),
            "failure": "" if failure is None else f"{failure.place} in {failure.case}",
        }
    return found


def _cases(report: LawReport, column: str) -> list[Any]:
    if column not in ("reset", "non-finite"):
        return report.of(column)
    return [
        case
        for case in report.of("reset")
        if case.name.endswith(NON_FINITE) == (column == "non-finite")
    ]


def _smallest(memory: AbstractMemory, broken: list[str]) -> dict[str, Any]:
    found = {}
    for law in broken:
        case = smallest(memory, law, VALUES)
        if case is not None:
            found[law] = {
                "case": str(case.case),
                "at": case.at,
                "is": _number(case.is_),
                "should_be": _number(case.should_be),
                "deviation": _number(case.deviation),
            }
    return found


def _double(memory: AbstractMemory, model: Model) -> dict[str, Any] | str:
    """The laws that are broken in double precision too, which rounding cannot explain."""
    try:
        report = check(memory, lengths=model.lengths, precision="float64", raise_on_failure=False)
    except Exception as error:  # a library that uses float32 internally
        return f"not in double precision: {type(error).__name__}"
    laws = outcomes(report, model.starts == BY_CALLER)
    if laws["interface"]["verdict"] == "broken":
        return "not in double precision"
    return {law: found for law, found in laws.items() if found["verdict"] == "broken"}


def confirmed(name: str) -> list[dict[str, Any]]:
    """The breaches of a model, shown by the library's own functions without an adapter."""
    found = []
    for confirmation in CONFIRMATIONS.get(name, ()):
        line = confirmation.line()
        measured = confirmation.measure()
        found.append({"where": line, "says": confirmation.says, "deviation": _number(measured)})
    return found


def _number(value: float) -> float | None:
    """A rounded number, and None for infinity or NaN, which JSON does not have."""
    value = float(np.float64(value))
    return float(f"{value:.3g}") if math.isfinite(value) else None
