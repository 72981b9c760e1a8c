"""The laws by name, and the report of a check."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import jax
import numpy as np

from clew.memory.laws.runs import Run

LAWS = {
    "interface": "step and unroll return the state's structure and outputs of output_size",
    "causal": "outputs up to t do not depend on inputs or starts after t",
    "reset": "outputs from a start on equal a fresh run, even with NaN in the old state",
    "stream": "scanning step equals unroll",
    "split": "unroll(a ++ b) equals unroll(a), then unroll(b) from the state after a",
    "refresh": "refresh changes nothing while the parameters are the same",
    "batch": "vmap equals a Python loop",
}
"""Every law in the order of checking: of several broken laws the first says most."""

Precision = Literal["float32", "float64"]

TOLERANCES = {"float32": (2e-5, 5e-4), "float64": (1e-10, 1e-7)}
"""Largest relative deviation allowed in outputs and in gradients; argued in docs/laws.md."""

_TIMED = ("output", "the gradient of the inputs")


class LawBroken(AssertionError):
    """A memory breaks a law; the message says which, where and by how much."""


@dataclass(frozen=True)
class Failure:
    """The first place where a law is broken.

    Attributes:
        law: its name in `LAWS`.
        case: the length and kind of the run.
        place: the output or gradient that differs, with its path and time index.
        amount: by how much, relative to 1 + the largest expected number of that array.
        tolerance: how much was allowed.
    """

    law: str
    case: str
    place: str
    amount: float
    tolerance: float

    def __str__(self) -> str:
        by = f" deviates by {self.amount:.3g} (allowed {self.tolerance:.3g})"
        by = "" if math.isnan(self.amount) else by
        return f"law {self.law!r} ({LAWS[self.law]}): {self.place}{by} in {self.case}"


@dataclass(frozen=True)
class LawCase:
    """One comparison of two runs.

    Attributes:
        law: its name in `LAWS`.
        length: steps of the chunk.
        name: what was run, in words.
        value: largest relative deviation of the outputs.
        gradient: largest relative deviation of a gradient.
        failure: where the law is broken, if it is.
    """

    law: str
    length: int
    name: str
    value: float
    gradient: float
    failure: Failure | None


@dataclass
class LawReport:
    """The outcome of `check`; `str(report)` is a table.

    Attributes:
        memory: name of the memory's class.
        cases: every comparison that was made.
    """

    memory: str
    cases: list[LawCase] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        """The first failure of every broken law, in the order of `LAWS`."""
        first: dict[str, Failure] = {}
        for case in self.cases:
            if case.failure is not None:
                first.setdefault(case.law, case.failure)
        return [first[law] for law in LAWS if law in first]

    @property
    def passed(self) -> bool:
        """Whether no law was broken."""
        return not self.failures

    def of(self, law: str) -> list[LawCase]:
        """The comparisons made for one law."""
        return [case for case in self.cases if case.law == law]

    def largest(self, law: str) -> tuple[float, float]:
        """The largest relative deviations found for one law: in values, in gradients."""
        cases = self.of(law)
        value = max((case.value for case in cases), default=0.0)
        return value, max((case.gradient for case in cases), default=0.0)

    def confirmed_by(self, again: "LawReport") -> "LawReport":
        """This report, but a law that holds in another draw as that draw shows it."""
        broken = {failure.law for failure in self.failures}
        holds = broken - {failure.law for failure in again.failures}
        kept = [case for case in self.cases if case.law not in holds]
        return LawReport(self.memory, kept + [c for c in again.cases if c.law in holds])

    def __str__(self) -> str:
        broken = {failure.law for failure in self.failures}
        rows = [f"{self.memory}: {len(self.cases)} cases"]
        for law in LAWS:
            value, gradient = self.largest(law)
            verdict = "BROKEN" if law in broken else "holds" if self.of(law) else "not run"
            rows.append(
                f"  {law:<10}{verdict:<8}{len(self.of(law)):>4} cases, largest deviation "
                f"{value:.1e} (values) {gradient:.1e} (gradients)"
            )
        return "\n".join(rows + [f"  {failure}" for failure in self.failures])


class Book:
    """Compares runs and writes down what it finds."""

    def __init__(self, report: LawReport, value_tolerance: float, gradient_tolerance: float):
        self.report = report
        self.tolerances = {"value": value_tolerance, "gradient": gradient_tolerance}

    def compare(self, law: str, length: int, names: list[str], actual: Run, expected: Run) -> None:
        """Compares two runs, case by case and leaf by leaf."""
        largest = {kind: np.zeros(len(names)) for kind in self.tolerances}
        failures: dict[int, Failure] = {}
        for place, a, e in _leaves(actual, expected):
            kind = "value" if place == "output" else "gradient"
            tolerance = self.tolerances[kind]
            deviation = _deviation(a, e)
            worst = deviation.reshape(len(names), -1).max(axis=1, initial=0.0)
            largest[kind] = np.maximum(largest[kind], worst)
            for i in np.flatnonzero(worst > tolerance):
                where = place
                if place in _TIMED:
                    where += f"[t={np.argwhere(deviation[i] > tolerance)[0][0]}]"
                found = Failure(law, names[i], where, float(worst[i]), tolerance)
                failures.setdefault(int(i), found)
        for i, name in enumerate(names):
            value, gradient = float(largest["value"][i]), float(largest["gradient"][i])
            case = LawCase(law, length, name, value, gradient, failures.get(i))
            self.report.cases.append(case)


def _leaves(actual: Run, expected: Run) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Every array of two runs side by side, with a name."""
    yield "output", actual.output, expected.output
    yield "the gradient of the inputs", actual.inputs, expected.inputs
    for field_name in ("state", "parameters"):
        side = [getattr(run, field_name) for run in (actual, expected)]
        paths = jax.tree_util.tree_leaves_with_path(side[0])
        for (path, a), e in zip(paths, jax.tree.leaves(side[1]), strict=True):
            where = jax.tree_util.keystr(path)
            yield f"the gradient of the {field_name}{where}", a, e


def _deviation(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|a - e| / (1 + max |e|), the maximum over each case; infinite where not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        axes = tuple(range(1, expected.ndim))
        scale = 1 + np.max(np.abs(expected), axis=axes, keepdims=True, initial=0.0)
        relative = np.abs(actual.astype(np.float64) - expected) / scale
    return np.where(np.isfinite(relative), relative, np.inf)
