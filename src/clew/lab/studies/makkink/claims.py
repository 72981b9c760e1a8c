"""What Makkink (2021) claims, held against many seeds."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED, Claim, Finding, tables
from clew.lab.studies.report.comparisons import ALPHA, MANY, interval_text, p_text, signed
from clew.lab.studies.report.edition import Edition
from clew.report.document import Block
from clew.stats import Comparison, holm, welch_test

SMALLEST = 0.05
"""A difference below this, in the unit of the score, is taken for none."""


@dataclass(frozen=True)
class MoreThan:
    """Some models have more of something than others, in each of a few settings."""

    more: tuple[str, ...]
    less: tuple[str, ...]
    settings: tuple[str, ...]
    spread: bool = False
    """Compare how far seeds lie from their median, and not the scores."""

    def __call__(self, edition: Edition) -> list[Finding]:
        """Every comparison, with Holm's correction over those that have the seeds."""
        wanted = list(product(self.settings, self.more, self.less))
        tests = {
            (s, a, b): self._test(edition, s, a, b)
            for s, a, b in wanted
            if all(edition.values(model, s).size >= MANY for model in (a, b))
        }
        adjusted = holm([test.p for test in tests.values()]) if tests else []
        corrected = dict(zip(tests, adjusted, strict=True))
        return [
            _finding(edition, where, tests[where], float(corrected[where]))
            if where in tests
            else Finding(_words(*where), NOT_RUN)
            for where in wanted
        ]

    def _test(self, edition: Edition, setting: str, a: str, b: str) -> Comparison:
        x, y = edition.values(a, setting), edition.values(b, setting)
        if self.spread:
            x, y = np.abs(x - np.median(x)), np.abs(y - np.median(y))
        return welch_test(x, y)


PLAIN, GATED = ("transformer-xl", "rezero"), ("gtrxl", "integrated")
CLAIMS: tuple[Claim[Edition], ...] = (
    Claim(
        "Makkink (2021)",
        "1. Attention alone is not enough: gated transformers earn more",
        MoreThan(GATED, PLAIN, ("length-20", "length-70")),
    ),
    Claim(
        "Makkink (2021)",
        "2. Gates stabilise: seeds of Transformer-XL lie farther apart",
        MoreThan(
            ("transformer-xl",), GATED, ("length-20", "length-70", "size-5", "size-10"), spread=True
        ),
    ),
    Claim(
        "Makkink (2021)",
        "3. Over long times gated transformers beat the LSTM",
        MoreThan(GATED, ("lstm",), ("length-70",)),
    ),
    Claim(
        "Makkink (2021)",
        "4. With much to remember the LSTM beats the transformers",
        MoreThan(
            ("lstm",),
            ("transformer-xl", "gtrxl", "rezero", "universal", "integrated"),
            ("size-5", "size-10"),
        ),
    ),
)


def verdict(test: Comparison, corrected: float) -> str:
    """What one comparison says of "the first has more".

    It holds if the difference is positive with a corrected p of at most `ALPHA`. It does not hold
    if the difference is negative with such a p, or if the whole interval lies below `SMALLEST`.
    Else it is undecided.
    """
    if corrected <= ALPHA and test.difference > 0:
        return HELD
    # Seeds without any spread on either side have no interval; equal ones do not differ.
    alike = test.high < SMALLEST or test.p == 1 and test.method == "permutation"
    if (corrected <= ALPHA and test.difference < 0) or alike:
        return NOT_HELD
    return UNDECIDED


def claim_blocks(edition: Edition) -> list[Block]:
    """The tables of the claims; none if no comparison has the seeds."""
    judged = [claim.judge(edition) for claim in CLAIMS]
    if all(claim.verdict == NOT_RUN for claim in judged):
        return []
    note = (
        f"Each claim is a set of comparisons of two models in one setting, each with {MANY} seeds "
        f"or more. A comparison holds where Welch's p is at most {ALPHA} after Holm's correction "
        "over the claim, in the direction claimed. It does not hold where that is so in the other "
        f"direction, or where the whole 95% interval lies below {SMALLEST}: no difference worth "
        "the name. Anything else is undecided."
    )
    details = (
        "Claim 2 compares the mean distance of seeds from their median (the test of Brown and "
        "Forsythe); a model that never learns has no spread either, so read it with the scores. "
        "The effect is the difference in standard deviations, p is after Holm's correction."
    )
    return [*tables(judged, edition.slug, "What the thesis claims", note, details)]


def _words(setting: str, more: str, less: str) -> str:
    return f"{setting}, {more} − {less}"


def _finding(
    edition: Edition, where: tuple[str, str, str], test: Comparison, corrected: float
) -> Finding:
    setting, more, less = where
    seen = f"{signed(test.difference)} {interval_text(test.low, test.high)}".strip()
    if np.isfinite(test.effect):
        seen += f", effect {signed(test.effect)}"
    record = {"setting": setting, "more": more, "less": less, **test._asdict()}
    return Finding(
        _words(*where),
        verdict(test, corrected),
        " and ".join(str(edition.values(model, setting).size) for model in (more, less)),
        f"{seen}, p {p_text(corrected)}",
        record={**record, "p_holm": corrected},
    )
