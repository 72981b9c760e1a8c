"""What the thesis claims, held against many seeds: verdicts by rule, from the numbers alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.lab.studies.report.compare import ALPHA, interval_text, p_text, signed
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.pairs import MANY
from clew.report.document import Cell, Column, Table
from clew.stats import Comparison, holm, welch_test

SMALLEST = 0.05
"""A difference below this, in the unit of the score, is taken for none."""
HOLDS, FAILS, OPEN = "holds", "does not hold", "not settled"
_TONES = {HOLDS: "good", FAILS: "bad", OPEN: "open"}


class Claim(NamedTuple):
    """A claim that one model has more of something than another, in each of a few settings."""

    text: str
    more: tuple[str, ...]
    less: tuple[str, ...]
    settings: tuple[str, ...]
    spread: bool = False
    """Compare how far seeds lie from their median, and not the scores."""


PLAIN, GATED = ("transformer-xl", "rezero"), ("gtrxl", "integrated")
CLAIMS = (
    Claim(
        "1. Attention alone is not enough: gated transformers earn more",
        GATED,
        PLAIN,
        ("length-20", "length-70"),
    ),
    Claim(
        "2. Gates stabilise: seeds of Transformer-XL lie farther apart",
        ("transformer-xl",),
        GATED,
        ("length-20", "length-70", "size-5", "size-10"),
        spread=True,
    ),
    Claim("3. Over long times gated transformers beat the LSTM", GATED, ("lstm",), ("length-70",)),
    Claim(
        "4. With much to remember the LSTM beats the transformers",
        ("lstm",),
        ("transformer-xl", "gtrxl", "rezero", "universal", "integrated"),
        ("size-5", "size-10"),
    ),
)


class Judged(NamedTuple):
    """One comparison of a claim."""

    setting: str
    more: str
    less: str
    test: Comparison
    corrected: float
    verdict: str


def can_be_judged(edition: Edition) -> bool:
    """Whether a setting of the claims has two models with many seeds, in an edition of theirs."""
    return edition.thesis and any(
        _known(edition, a, s) and _known(edition, b, s)
        for claim in CLAIMS
        for s in claim.settings
        for a in claim.more
        for b in claim.less
    )


def judge(edition: Edition, claim: Claim) -> list[Judged]:
    """Every comparison of a claim that has the seeds, Holm's correction over them."""
    found = [
        (setting, a, b, _test(edition, claim, setting, a, b))
        for setting in claim.settings
        for a in claim.more
        for b in claim.less
        if _known(edition, a, setting) and _known(edition, b, setting)
    ]
    if not found:
        return []
    corrected = holm([test.p for *_, test in found])
    return [
        Judged(*entry, float(p), verdict(entry[-1], float(p)))
        for entry, p in zip(found, corrected, strict=True)
    ]


def verdict(test: Comparison, corrected: float) -> str:
    """What one comparison says of "the first has more".

    It holds if the difference is positive with a corrected p of at most `ALPHA`. It does not hold
    if the difference is negative with such a p, or if the whole interval lies below `SMALLEST`.
    Else nothing is settled.
    """
    if corrected <= ALPHA and test.difference > 0:
        return HOLDS
    # Seeds without any spread on either side have no interval; equal ones do not differ.
    alike = test.high < SMALLEST or test.p == 1 and test.method == "permutation"
    if (corrected <= ALPHA and test.difference < 0) or alike:
        return FAILS
    return OPEN


def overall(verdicts: Sequence[str], wanted: int) -> str:
    """A claim holds if all of its comparisons do and does not if one does not."""
    if FAILS in verdicts:
        return FAILS
    whole = len(verdicts) == wanted and all(v == HOLDS for v in verdicts)
    return HOLDS if whole else OPEN


def claims(edition: Edition) -> list[Table]:
    """The verdicts, and all comparisons behind them."""
    judged = [(claim, judge(edition, claim)) for claim in CLAIMS]
    return [_verdicts(edition, judged), _comparisons(edition, judged)]


def _verdicts(edition: Edition, judged: Sequence[tuple[Claim, Sequence[Judged]]]) -> Table:
    rows = []
    for claim, entries in judged:
        wanted = len(claim.settings) * len(claim.more) * len(claim.less)
        verdicts = [entry.verdict for entry in entries]
        word = overall(verdicts, wanted)
        counts = [*(verdicts.count(v) for v in (HOLDS, FAILS, OPEN)), wanted - len(entries)]
        cells = [Cell(claim.text), Cell(word, verdict=_TONES[word])]
        rows.append([*cells, *(Cell(str(count)) for count in counts)])
    columns = ["claim", "verdict", "hold", "do not hold", "not settled", "missing"]
    note = (
        f"Each claim is a set of comparisons of two models in one setting, each with {MANY} seeds "
        f"or more. A comparison holds where Welch's p is at most {ALPHA} after Holm's correction "
        "over the claim, in the direction claimed. It does not hold where that is so in the other "
        f"direction, or where the whole 95% interval lies below {SMALLEST}: no difference worth "
        "the name. Anything else is not settled. A claim holds if all of its comparisons do; one "
        "that does not hold is enough against it, since the thesis says it of all. The words are "
        "computed, nobody wrote them."
    )
    name, title = f"{edition.slug}-claims", "What the thesis claims"
    return Table(name, title, [Column(c) for c in columns], rows, note)


def _comparisons(edition: Edition, judged: Sequence[tuple[Claim, Sequence[Judged]]]) -> Table:
    found = [(claim, entry) for claim, entries in judged for entry in entries]
    columns = ["comparison", "difference, 95%", "effect", "p, Holm", "verdict"]
    note = (
        "Claim 2 compares the mean distance of seeds from their median (the test of Brown and "
        "Forsythe); a model that never learns has no spread either, so read it with the scores. "
        "The effect is the difference in standard deviations."
    )
    return Table(
        f"{edition.slug}-claims-tests",
        "Every comparison behind the verdicts",
        [Column(c) for c in columns],
        [_detail(*pair) for pair in found],
        note,
        [_record(*pair) for pair in found],
        folded=True,
    )


def _known(edition: Edition, model: str, setting: str) -> bool:
    return edition.values(model, setting).size >= MANY


def _test(edition: Edition, claim: Claim, setting: str, a: str, b: str) -> Comparison:
    x, y = edition.values(a, setting), edition.values(b, setting)
    if claim.spread:
        x, y = np.abs(x - np.median(x)), np.abs(y - np.median(y))
    return welch_test(x, y)


def _detail(claim: Claim, entry: Judged) -> list[Cell]:
    test = entry.test
    ends = interval_text(test.low, test.high)
    effect = signed(test.effect) if np.isfinite(test.effect) else "–"
    return [
        Cell(f"{claim.text[0]}: {entry.setting}, {entry.more} − {entry.less}"),
        Cell(f"{signed(test.difference)} {ends}".strip()),
        Cell(effect),
        Cell(p_text(entry.corrected)),
        Cell(entry.verdict, verdict=_TONES[entry.verdict]),
    ]


def _record(claim: Claim, entry: Judged) -> dict[str, object]:
    record = {"claim": claim.text[0], "setting": entry.setting}
    record |= {"more": entry.more, "less": entry.less, **entry.test._asdict()}
    return {**record, "p_holm": entry.corrected, "verdict": entry.verdict}
