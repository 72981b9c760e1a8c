"""Models against each other in settings with many seeds."""

import itertools
from collections.abc import Sequence
from typing import Any

from clew.errors import UserError
from clew.lab.studies.report import thesis
from clew.lab.studies.report.compare import ALPHA, DIFFERS, interval_text, p_text, signed
from clew.lab.studies.report.edition import Edition
from clew.report.document import Cell, Column, Table
from clew.stats import (
    Comparison,
    Spread,
    holm,
    probability_of_improvement,
    seeds_needed,
    welch_from_spreads,
    welch_test,
)

MANY = 10
"""Seeds from which on models are compared with each other in a single setting."""
MOST = 10_000
POWER = 0.8


def with_many_seeds(edition: Edition) -> list[str]:
    """The settings in which two models or more have `MANY` seeds."""
    return [
        name
        for name in edition.settings
        if sum(edition.values(model, name).size >= MANY for model in edition.models) > 1
    ]


def pairs(edition: Edition, setting: str) -> Table:
    """Every pair of models in one setting: difference, tests, who wins, seeds needed."""
    models = [m for m in edition.models if edition.values(m, setting).size >= MANY]
    couples = list(itertools.combinations(models, 2))
    tests = [welch_test(edition.values(a, setting), edition.values(b, setting)) for a, b in couples]
    corrected = holm([test.p for test in tests])
    rows, records = [], []
    for couple, test, p in zip(couples, tests, corrected, strict=True):
        row, record = _pair(edition, setting, couple, test, float(p))
        rows.append(row)
        records.append(record)
    note = (
        f"{DIFFERS}: p at most {ALPHA} after Holm's correction over the {len(tests)} pairs of "
        "this table. Wins: how probable it is that a training of the first beats one of the "
        f"second, 0.5 is no difference. Seeds needed: of each, to see a difference as large as "
        f"this one with probability {POWER} at level {ALPHA}, uncorrected, if the deviations are "
        "what they seem."
    )
    name = "".join(c if c.isalnum() else "-" for c in setting)
    columns = ["pair", "difference, 95%", "p", "p, Holm", "wins, 95%", "seeds needed"]
    return Table(
        f"{edition.slug}-pairs-{name}",
        f"{setting}: every pair of models",
        [Column(name) for name in columns],
        rows,
        note,
        records,
        folded=True,
    )


def _pair(
    edition: Edition, setting: str, couple: tuple[str, str], test: Comparison, corrected: float
) -> tuple[list[Cell], dict[str, Any]]:
    x, y = (edition.values(model, setting)[:, None] for model in couple)
    wins = probability_of_improvement(x, y, resamples=1000)
    need = _needed(*(edition.spread(model, setting) for model in couple))
    row = [
        Cell(" − ".join(couple), (), DIFFERS if corrected <= ALPHA else ""),
        Cell(f"{signed(test.difference)} {interval_text(test.low, test.high)}".strip()),
        *(Cell(text) for text in (p_text(test.p), p_text(corrected), f"{wins}", need)),
    ]
    record = {"setting": setting, "first": couple[0], "second": couple[1], **test._asdict()}
    record |= {"p_holm": corrected, "seeds_needed": need}
    return row, record | {f"wins_{key}": value for key, value in wins._asdict().items()}


def _needed(x: Spread | None, y: Spread | None) -> str:
    """How many seeds a difference like this one asks for, in words where there is no number."""
    assert x is not None and y is not None
    difference = x.mean - y.mean
    if difference == 0 or (x.deviation == 0 and y.deviation == 0):
        return "–"
    try:
        plan = seeds_needed(difference, x.deviation, y.deviation, power=POWER, most=MOST)
    except UserError:
        return f"> {MOST:,}"
    return f"{plan.seeds:,}"


def published_tests(edition: Edition, settings: Sequence[str]) -> Table | None:
    """The thesis's own t-tests beside ours; None if the edition has none of them."""
    rows, records = [], []
    for setting, a, b, p in thesis.TESTS:
        x, y = edition.spread(a, setting), edition.spread(b, setting)
        if setting not in settings or x is None or y is None:
            continue
        ours: Comparison = welch_from_spreads(x, y)
        again = welch_from_spreads(edition.published[a, setting], edition.published[b, setting])
        cells = [f"{setting}: {a} − {b}", signed(again.difference), p_text(p), p_text(again.p)]
        cells += [
            f"{signed(ours.difference)} {interval_text(ours.low, ours.high)}".strip(),
            p_text(ours.p),
        ]
        rows.append([Cell(text) for text in cells])
        record = {"setting": setting, "first": a, "second": b, "published_p": p}
        record |= {"published_difference": again.difference, "welch_of_published": again.p}
        records.append({**record, **ours._asdict()})
    if not rows:
        return None
    note = (
        "The six t-tests that the thesis reports, none of them corrected. Published again: "
        "Welch's test of the means and deviations in Appendix C, with thirty seeds."
    )
    columns = ["test", "published", "p, as printed", "p, published again", "ours, 95%", "p, ours"]
    name, title = f"{edition.slug}-thesis-tests", "The thesis's own tests beside ours"
    return Table(name, title, [Column(c) for c in columns], rows, note, records)
