"""The laws by name, and the report of a check."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import jax
import numpy as np

from clew.memory.laws.runs import Run, wide

LAWS = {
    "interface": "step, unroll and refresh keep the state's structure and types, and outputs have "
    "output_size numbers of the observations' type",
    "metrics": "unroll_with_metrics, which learners call, equals unroll",
    "causal": "outputs up to t do not depend on inputs or starts after t",
    "reset": "outputs from a start on equal a fresh run, even with NaN in the old state",
    "stream": "scanning step equals unroll",
    "split": "unroll(a ++ b) equals unroll(a), then unroll(b) from the state after a",
    "refresh": "refresh gives the state that the current parameters would have produced, and "
    "passes gradients on",
    "replay": "a chunk read from refresh(expand(compact(state))) equals acting from the state",
    "batch": "vmap equals a Python loop",
}
"""Every law, in the order of checking: of several broken laws the first is most informative."""

NOT_FINITE = ("NaN", "infinity")
BY_PRODUCT = (
    "; finite states are reset, so a start may multiply by 0, which keeps NaN: choose the "
    "fresh state with jnp.where, in your own scans too"
)
"""The likely cause if only NaN and infinity pass a start."""

Precision = Literal["float32", "float64"]

TOLERANCES = {"float32": (2e-5, 5e-4), "float64": (1e-10, 1e-7)}
"""Largest relative deviation allowed in outputs and in gradients; argued in docs/laws.md."""


class LawBroken(AssertionError):
    """A memory breaks a law; the message says which one, where and by how much."""


@dataclass(frozen=True)
class Failure:
    """The first place where a law is broken.

    Attributes:
        law: its name in `LAWS`.
        case: the length and kind of the run.
        place: the output or gradient that differs, with its path and time index.
        amount: by how much, relative to the largest expected number of that array.
        tolerance: how much was allowed.
        hint: the likely cause; empty if it is not known.
    """

    law: str
    case: str
    place: str
    amount: float
    tolerance: float
    hint: str = ""

    def __str__(self) -> str:
        by = f" deviates by {self.amount:.3g} (allowed {self.tolerance:.3g})"
        by = "" if math.isnan(self.amount) else by
        return f"law {self.law!r} ({LAWS[self.law]}): {self.place}{by} in {self.case}{self.hint}"


@dataclass(frozen=True)
class LawCase:
    """One comparison of two runs.

    Attributes:
        law: its name in `LAWS`.
        length: steps of the chunk.
        name: a description of the run.
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
        warnings: things that break no law but are hardly intended, such as an array that nothing
            reads.
    """

    memory: str
    cases: list[LawCase] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        """The first failure of every broken law, in the order of `LAWS`."""
        first: dict[str, Failure] = {}
        for case in self.cases:
            if case.failure is not None:
                first.setdefault(case.law, case.failure)
        broken = [case.name for case in self.of("reset") if case.failure is not None]
        if broken and all(name.endswith(NOT_FINITE) for name in broken):
            first["reset"] = replace(first["reset"], hint=BY_PRODUCT)
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
        """This report, with the laws that hold in another draw taken from that draw."""
        broken = {failure.law for failure in self.failures}
        holds = broken - {failure.law for failure in again.failures}
        kept = [case for case in self.cases if case.law not in holds]
        kept += [case for case in again.cases if case.law in holds]
        return LawReport(self.memory, kept, self.warnings)

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
        rows += [f"  {failure}" for failure in self.failures]
        return "\n".join(rows + [f"  warning: {warning}" for warning in self.warnings])


class LawRecorder:
    """Compares runs and records what it finds.

    Args:
        report: where it is recorded.
        tolerances: of values and of gradients.
        metrics: the names of the output's last columns.
    """

    def __init__(
        self, report: LawReport, tolerances: tuple[float, float], metrics: tuple[str, ...]
    ):
        self.report = report
        self.tolerances: dict[str, float] = {"value": tolerances[0], "gradient": tolerances[1]}
        self.metrics = metrics

    def add(self, law: str, length: int, name: str, failure: str = "", **found: float) -> None:
        """Records a comparison that was made elsewhere.

        Args:
            failure: the place where the law is broken, if it is.
            **found: a deviation, "value" or "gradient".
        """
        (kind, amount), *_ = [*found.items(), ("value", math.nan)]
        broken = Failure(law, name, failure, amount, self.tolerances[kind]) if failure else None
        values = {"value": 0.0, "gradient": 0.0} | found
        case = LawCase(law, length, name, values["value"], values["gradient"], broken)
        self.report.cases.append(case)

    def _leaves(self, actual: Run, expected: Run) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Every array of two runs side by side, with a name."""
        size = actual.output.shape[-1] - len(self.metrics)
        yield "output", actual.output[..., :size], expected.output[..., :size]
        for column, name in enumerate(self.metrics, size):
            yield f"the metric {name}", actual.output[..., column], expected.output[..., column]
        yield "the gradient of the inputs", actual.inputs, expected.inputs
        for part in ("state", "parameters"):
            side = [getattr(run, part) for run in (actual, expected)]
            paths = jax.tree_util.tree_leaves_with_path(side[0])
            for (path, a), e in zip(paths, jax.tree.leaves(side[1]), strict=True):
                yield f"the gradient of the {part}{jax.tree_util.keystr(path)}", a, e

    def compare(
        self,
        law: str,
        length: int,
        names: list[str],
        actual: Run,
        expected: Run,
        nudged: Sequence[Callable[[], Run]] = (),
    ) -> None:
        """Compares two runs, case by case and leaf by leaf.

        Args:
            names: a description of the run, for each case.
            actual: one way of computing it.
            expected: the other.
            nudged: each repeats `expected` for observations that differ in their last bits. A
                deviation that one of them makes as well is rounding.
        """
        largest = {kind: np.zeros(len(names)) for kind in self.tolerances}
        failures: dict[int, Failure] = {}
        near: list[list[np.ndarray]] = []
        floors = {"value": _floor_of_values(expected), "gradient": _floor_of_gradients(expected)}
        for number, (place, a, e) in enumerate(self._leaves(actual, expected)):
            kind = "gradient" if place.startswith("the gradient") else "value"
            deviation = _deviation(a, e, floors[kind])
            worst, allowed = _worst(deviation), np.full(len(names), self.tolerances[kind])
            largest[kind] = np.maximum(largest[kind], worst)
            if np.any(worst > allowed):
                near = near or [[a for _, a, _ in self._leaves(run(), expected)] for run in nudged]
                for leaves in near:
                    noise = _worst(_deviation(leaves[number], e, floors[kind]))
                    allowed = np.maximum(allowed, np.where(np.isfinite(noise), noise, 0.0))
            for i in np.flatnonzero(worst > allowed):
                where = place
                if kind == "value" or place == "the gradient of the inputs":
                    where += f"[t={np.argwhere(deviation[i] > allowed[i])[0][0]}]"
                found = Failure(law, names[i], where, float(worst[i]), float(allowed[i]))
                failures.setdefault(int(i), found)
        for i, name in enumerate(names):
            value, gradient = float(largest["value"][i]), float(largest["gradient"][i])
            case = LawCase(law, length, name, value, gradient, failures.get(i))
            self.report.cases.append(case)


def _deviation(actual: np.ndarray, expected: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """|a - e| / (max |e| + floor), the maximum over each case; infinite where not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        own = _largest(expected)
        scale = np.minimum(own + floor, 1 + own) + np.finfo(np.float32).tiny
        scale = scale.reshape(-1, *[1] * (expected.ndim - 1))
        relative = np.abs(wide(actual) - expected) / scale
    return np.where(np.isfinite(relative), relative, np.inf)


def _worst(deviation: np.ndarray) -> np.ndarray:
    """The largest deviation of each case."""
    return deviation.reshape(len(deviation), -1).max(axis=1, initial=0.0)


def _floor_of_values(expected: Run) -> np.ndarray:
    """A hundredth of the largest output of any case; anything small beside it is rounding."""
    return 1e-2 * np.max(_largest(expected.output), keepdims=True)


def _floor_of_gradients(expected: Run) -> np.ndarray:
    """A hundredth of a case's largest gradient, for gradients that are sums of cancelling terms."""
    arrays = [expected.inputs, *jax.tree.leaves((expected.state, expected.parameters))]
    return 1e-2 * np.max([_largest(array) for array in arrays], axis=0)


def _largest(array: np.ndarray) -> np.ndarray:
    """The largest number of each case, without its sign or phase."""
    flat = np.abs(wide(array)).reshape(len(array), math.prod(array.shape[1:]))
    return np.max(flat, axis=1, initial=0.0)
