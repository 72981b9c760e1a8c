"""Comparisons of a study's scores: with published ones, and between its models."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from clew.lab.claims import MOST_SEEDS, seeds_that_decide
from clew.lab.studies.report.data import StudyData
from clew.report.document import Cell, Table, tabulate
from clew.stats import (
    Comparison,
    Spread,
    equivalence_test,
    holm,
    probability_of_improvement,
    welch_from_spreads,
    welch_test,
)
from clew.stats.comparisons import critical_value, two_sided_p

ALPHA = 0.05
DIFFERS, PERHAPS, SPLIT = "●", "○", "◇"
"""Marks: differs after Holm's correction; differs only without it; equal seeds within each side
that differ between the sides, which no test can judge."""
LEGEND = (
    f"{DIFFERS} differs by more than noise: Welch's test, p at most {ALPHA} after Holm's "
    f"correction over the table. {PERHAPS} p at most {ALPHA} for this cell alone, as happens by "
    f"chance in one cell of twenty. {SPLIT} the seeds of each side agree but the sides differ: "
    "without any spread no test can decide (p cannot be below 0.1 with three seeds against three)."
)


class Compared(NamedTuple):
    """A cell and its published counterpart."""

    test: Comparison
    corrected: float
    mark: str


class Difference(NamedTuple):
    """A difference of means over the same settings, with the ends of its 95% interval."""

    difference: float
    low: float
    high: float
    p: float


def beside_published(data: StudyData, settings: Sequence[str]) -> dict[tuple[str, str], Compared]:
    """Welch's test of every cell of a table that has published scores and two seeds or more.

    Holm's correction is over all tests of the table, which has these settings.
    """
    tests = {}
    for pair in itertools.product(data.models, settings):
        here, published = data.spread(*pair), data.published.get(pair)
        if here is not None and published is not None:
            tests[pair] = welch_from_spreads(here, published)
    if not tests:
        return {}
    corrected = holm([test.p for test in tests.values()])
    return {
        pair: Compared(test, float(p), _mark(test, float(p)))
        for (pair, test), p in zip(tests.items(), corrected, strict=True)
    }


def _mark(test: Comparison, corrected: float) -> str:
    if test.method == "permutation":
        return SPLIT if test.p < 1 else ""
    if corrected <= ALPHA:
        return DIFFERS
    return PERHAPS if test.p <= ALPHA else ""


def mean_difference(here: Sequence[Spread], published: Sequence[Spread]) -> Difference | None:
    """Whether two means over the same settings differ; None if nothing has any spread.

    With the variances v = s^2 / (n S^2) of all 2 S cells, each with n seeds:

        t = (mean_ours - mean_theirs) / sqrt(sum v),   degrees = (sum v)^2 / sum(v^2 / (n - 1))

    which is Welch's test for a sum of more than two means.

    Source:
        Welch (1947), section 2, for the degrees of freedom.
    """
    count = len(here)
    difference = sum(a.mean - b.mean for a, b in zip(here, published, strict=True)) / count
    cells = [*here, *published]
    parts = [cell.deviation**2 / cell.seeds / count**2 for cell in cells]
    total = sum(parts)
    if total == 0:
        return None
    degrees = total**2 / sum(v**2 / (c.seeds - 1) for v, c in zip(parts, cells, strict=True))
    error = math.sqrt(total)
    reach = critical_value(ALPHA, degrees) * error
    p = two_sided_p(difference / error, degrees)
    return Difference(difference, difference - reach, difference + reach, p)


def signed(value: float) -> str:
    """A difference with its sign, with two decimals."""
    text = f"{value:+.2f}"
    return "0.00" if text[1:] == "0.00" else text


def interval_text(low: float, high: float) -> str:
    """The ends of an interval of differences; empty if there is none."""
    return "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"


def difference_text(test: Comparison | Difference) -> str:
    """A difference with its interval, if there is one."""
    return f"{signed(test.difference)} {interval_text(test.low, test.high)}".strip()


def p_text(p: float) -> str:
    """A p-value with a sensible precision."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


MANY = 10
"""Number of seeds from which models are compared with each other in a single setting."""


def with_many_seeds(data: StudyData) -> list[str]:
    """The settings in which two models or more have `MANY` seeds."""
    return [
        name
        for name in data.settings
        if sum(data.values(model, name).size >= MANY for model in data.models) > 1
    ]


def pairs(data: StudyData, setting: str) -> Table:
    """Every pair of models in one setting: difference, tests, who wins, seeds needed."""
    models = [m for m in data.models if data.values(m, setting).size >= MANY]
    couples = list(itertools.combinations(models, 2))
    tests = [welch_test(data.values(a, setting), data.values(b, setting)) for a, b in couples]
    corrected = holm([test.p for test in tests])
    rows, records = [], []
    for couple, test, p in zip(couples, tests, corrected, strict=True):
        row, record = _pair(data, setting, couple, test, float(p))
        rows.append(row)
        records.append(record)
    note = (
        f"{DIFFERS}: p at most {ALPHA} after Holm's correction over the {len(tests)} pairs of "
        "this table. Wins: the probability that a training of the first model scores higher than "
        "one of the second; 0.5 is no difference. Alike within: the smallest bound on the "
        f"difference that two one-sided tests confirm, each at level {ALPHA}, uncorrected. This "
        "bound says how alike two models are; a missing significance does not. Seeds needed: the "
        "number of seeds of each model that would detect a difference of this size with "
        f"probability 0.8 at level {ALPHA}, uncorrected, if the observed deviations are right."
    )
    name = "".join(c if c.isalnum() else "-" for c in setting)
    title = f"{setting}: every pair of models"
    columns = ("pair", "difference, 95%", "p", "p, Holm")
    columns += ("wins, 95%", "alike within", "seeds needed")
    return tabulate(f"{data.slug}-pairs-{name}", title, columns, rows, note, records, folded=True)


def _pair(
    data: StudyData, setting: str, couple: tuple[str, str], test: Comparison, corrected: float
) -> tuple[list[Cell | str], dict[str, Any]]:
    x, y = (data.values(model, setting)[:, None] for model in couple)
    wins = probability_of_improvement(x, y, resamples=1000)
    alike = equivalence_test(x[:, 0], y[:, 0], bound=1.0, alpha=ALPHA).within  # whatever the bound
    need = _needed(*(data.spread(model, setting) for model in couple))
    row = [
        Cell(" − ".join(couple), (), DIFFERS if corrected <= ALPHA else ""),
        difference_text(test),
        *(p_text(test.p), p_text(corrected), f"{wins}"),
        "–" if math.isnan(alike) else f"{alike:.2f}",
        need,
    ]
    record = {"setting": setting, "first": couple[0], "second": couple[1], **test._asdict()}
    record |= {"p_holm": corrected, "alike_within": alike, "seeds_needed": need}
    return row, record | {f"wins_{key}": value for key, value in wins._asdict().items()}


def _needed(x: Spread | None, y: Spread | None) -> str:
    """How many seeds such a difference needs, in words if there is no number."""
    assert x is not None and y is not None
    difference = x.mean - y.mean
    if difference == 0 or (x.deviation == 0 and y.deviation == 0):
        return "–"
    seeds = seeds_that_decide(difference, x.deviation, y.deviation)
    return f"{seeds:,}" if seeds else f"> {MOST_SEEDS:,}"


def published_tests(data: StudyData, settings: Sequence[str]) -> Table | None:
    """The publication's own t-tests, repeated; None if it has none."""
    rows, records = [], []
    for setting, a, b, p in data.publication.tests:
        x, y = data.spread(a, setting), data.spread(b, setting)
        if setting not in settings or x is None or y is None:
            continue
        here: Comparison = welch_from_spreads(x, y)
        again = welch_from_spreads(data.published[a, setting], data.published[b, setting])
        cells = [f"{setting}: {a} − {b}", signed(again.difference), p_text(p), p_text(again.p)]
        rows.append([*cells, difference_text(here), p_text(here.p)])
        record = {"setting": setting, "first": a, "second": b, "published_p": p}
        record |= {"published_difference": again.difference, "welch_of_published": again.p}
        records.append({**record, **here._asdict()})
    if not rows:
        return None
    note = data.publication.tests_note
    columns = ["test", "published", "p, as printed", "p, recomputed", "here, 95%", "p, here"]
    name, title = f"{data.slug}-published-tests", "The published tests repeated"
    return tabulate(name, title, columns, rows, note, records)
