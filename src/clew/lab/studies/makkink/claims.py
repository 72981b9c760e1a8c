"""The claims of Makkink (2021), checked with many seeds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED, Claim, Finding, tables
from clew.lab.studies.report.budget import Values
from clew.lab.studies.report.comparisons import ALPHA, MANY, difference_text, p_text, signed
from clew.lab.studies.report.data import StudyData
from clew.report.document import Block
from clew.stats import (
    Comparison,
    detectable_difference,
    fisher_test,
    holm,
    mean_and_deviation,
    welch_test,
)

SOLVED = 0.9
"""A score above this solves a memory chain, which seeds either solve or guess."""
SMALLEST = 0.05
"""A difference below this, in the unit of the score, counts as none."""

Where = tuple[str, str, str]
"""A setting, the model that is claimed to have more, and the other model."""


def solves(data: StudyData, model: str, setting: str) -> Values:
    """1 for every seed that solves the task, otherwise 0."""
    return (data.values(model, setting) > SOLVED).astype(float)


def training(data: StudyData, model: str, setting: str) -> Values:
    """Every seed's mean score over all of training: the higher, the sooner it learns."""
    return np.array([np.mean(curve) for curve in _curves(data, model, setting)])


def early(data: StudyData, model: str, setting: str) -> Values:
    """Every seed's mean score in the tenth of training that ends at a quarter of it."""
    curves = _curves(data, model, setting)
    return np.array([np.mean(c[round(0.15 * len(c)) : round(0.25 * len(c))]) for c in curves])


def _curves(data: StudyData, model: str, setting: str) -> list[list[float]]:
    found, score = data.cells[model, setting], data.study["score"]
    curves = [found[seed]["curve"][score] for seed in sorted(found)]
    return [[v for v in curve if v is not None] for curve in curves]


@dataclass(frozen=True)
class MoreThan:
    """Some models have more of a measure than others, in each of a few settings."""

    more: tuple[str, ...]
    less: tuple[str, ...]
    settings: tuple[str, ...]
    measure: Callable[[StudyData, str, str], Values] = StudyData.values
    """The measure; by default scores."""

    def __call__(self, data: StudyData) -> list[Finding]:
        """Every comparison, with Holm's correction over those with enough seeds."""
        wanted = [w for w in product(self.settings, self.more, self.less) if w[1] != w[2]]
        known = [w for w in wanted if min(data.values(m, w[0]).size for m in w[1:]) >= MANY]
        measure = self.measure
        seeds = {w: (measure(data, w[1], w[0]), measure(data, w[2], w[0])) for w in known}
        tests = {where: self._test(*both) for where, both in seeds.items()}
        corrected = holm([test.p for test in tests.values()]) if tests else []
        found = {
            where: _finding(where, *seeds[where], test, float(p), ALPHA / len(tests))
            for (where, test), p in zip(tests.items(), corrected, strict=True)
        }
        return [found.get(where) or Finding(_words(*where), NOT_RUN) for where in wanted]

    def _test(self, x: Values, y: Values) -> Comparison:
        test = welch_test(x, y)
        if self.measure is not solves:
            return test
        return test._replace(p=fisher_test(int(x.sum()), x.size, int(y.sum()), y.size))


@dataclass(frozen=True)
class NoMoreThan:
    """A model does not have a higher score than another, in any of a few settings."""

    one: str
    other: str
    settings: tuple[str, ...]

    def __call__(self, data: StudyData) -> list[Finding]:
        """Every comparison; evidence against "more" is evidence for this claim, and vice versa."""
        opposite = {HELD: NOT_HELD, NOT_HELD: HELD}
        more = MoreThan((self.one,), (self.other,), self.settings)(data)
        return [replace(f, verdict=opposite.get(f.verdict, f.verdict)) for f in more]


PLAIN, GATED = ("transformer-xl", "rezero"), ("gtrxl", "integrated")
UNGATED = (*PLAIN, "universal")
TRANSFORMERS = ("transformer-xl", "gtrxl", "rezero", "universal", "integrated")
LONG, LARGE = ("length-20", "length-70"), ("size-5", "size-10")
CLAIMS: tuple[Claim[StudyData], ...] = (
    Claim(
        "Makkink (2021)",
        "1. Attention alone is not enough: gated transformers earn more",
        MoreThan(GATED, UNGATED, LONG),
    ),
    Claim(
        "Makkink (2021)",
        "2. Gates stabilise: more seeds of gated transformers solve the task than of plain ones",
        MoreThan(GATED, PLAIN, LONG, measure=solves),
    ),
    Claim(
        "Makkink (2021)",
        "3. Over long times gated transformers beat the LSTM",
        MoreThan(GATED, ("lstm",), ("length-70",)),
    ),
    Claim(
        "Makkink (2021)",
        "4. With much to remember the LSTM beats the transformers",
        MoreThan(("lstm",), TRANSFORMERS, LARGE),
    ),
    Claim(
        "Makkink (2021), section 4.1",
        "5. Over long times GTrXL converges fastest",
        MoreThan(("gtrxl",), ("lstm", *TRANSFORMERS), LONG, measure=training),
    ),
    Claim(
        "Makkink (2021), chapter 6",
        "6. Integration brings nothing: the integrated transformer earns no more than GTrXL",
        NoMoreThan("integrated", "gtrxl", (*LONG, *LARGE)),
    ),
    Claim(
        "Makkink (2021), section 4.1.1",
        "7. At 70 the Universal Transformer beats the LSTM",
        MoreThan(("universal",), ("lstm",), ("length-70",)),
    ),
    Claim(
        "Makkink (2021), section 4.1.2",
        "8. GTrXL is the most robust in the early stages of training",
        MoreThan(("gtrxl",), ("lstm", *TRANSFORMERS), LONG, measure=early),
    ),
    Claim(
        "Makkink (2021), section 4.1.2",
        "9. At 70 Integrated learns far more effectively than the LSTM",
        MoreThan(("integrated",), ("lstm",), ("length-70",), measure=training),
    ),
    Claim(
        "Makkink (2021), section 4.2.2",
        "10. With much to remember the LSTM learns more effectively than the transformers",
        MoreThan(("lstm",), TRANSFORMERS, LARGE, measure=training),
    ),
    Claim(
        "Makkink (2021), chapter 6",
        "11. Integrated takes longer to converge than GTrXL",
        MoreThan(("gtrxl",), ("integrated",), LONG, measure=training),
    ),
)


def verdict(test: Comparison, corrected: float, high: float) -> str:
    """The verdict of one comparison on "the first has more".

    It holds if the difference is positive with a corrected p of at most `ALPHA`. It does not hold
    if the difference is negative with such a p, or if all of the interval up to `high`, corrected
    for the number of comparisons, lies below `SMALLEST`. Otherwise it is undecided.
    """
    if corrected <= ALPHA and test.difference > 0:
        return HELD
    # Seeds without any spread on either side have no interval; equal ones do not differ.
    alike = high < SMALLEST or test.p == 1 and test.method == "permutation"
    if (corrected <= ALPHA and test.difference < 0) or alike:
        return NOT_HELD
    return UNDECIDED


def claim_blocks(data: StudyData) -> list[Block]:
    """The tables of the claims; none if no comparison has enough seeds."""
    judged = [claim.judge(data) for claim in CLAIMS]
    if all(claim.verdict == NOT_RUN for claim in judged):
        return []
    note = (
        f"Each claim is a set of comparisons of two models in one setting, each with {MANY} seeds "
        f"or more. A comparison holds if Welch's p is at most {ALPHA} after Holm's correction over "
        "the claim, in the claimed direction. It does not hold if the same is true in the other "
        "direction, or if the whole interval, corrected for the number of comparisons, lies below "
        f"{SMALLEST}, which counts as no difference. Otherwise it is undecided."
    )
    details = (
        "Claim 1 counts the Universal Transformer among those without gates. Claim 2 compares how "
        f"many seeds score above {SOLVED}, by Fisher's exact test, because the spread of scores "
        "that are nearly 0 or 1 follows from their mean. Claims 5 and 9 to 11 compare the mean "
        "score over all of training, claim 8 the mean from 15 to 25% of it. Claim 6 holds where "
        '"more" does not. Effect: the difference in standard deviations. p: after Holm\'s '
        "correction. Detectable: the smallest difference that as many seeds with these deviations "
        "show with probability 0.8, as the first of the claim's tests in Holm's order."
    )
    return [*tables(judged, data.slug, "What the thesis claims", note, details)]


def _words(setting: str, more: str, less: str) -> str:
    return f"{setting}, {more} − {less}"


def _finding(
    where: Where, x: Values, y: Values, test: Comparison, corrected: float, alpha: float
) -> Finding:
    """A comparison as one of several, each of which is made at a level of `alpha`."""
    setting, more, less = where
    high = welch_test(x, y, 1 - alpha).high
    deviations = [mean_and_deviation(values).deviation for values in (x, y)]
    seen, detectable = difference_text(test), math.nan
    if np.isfinite(test.effect):
        seen += f", effect {signed(test.effect)}"
    seen += f", p {p_text(corrected)}"
    if any(deviations):
        detectable = detectable_difference(min(x.size, y.size), *deviations, alpha=alpha)
        seen += f", detectable {detectable:.2f}"
    record = {"setting": setting, "detectable": detectable, "more": more, "less": less}
    return Finding(
        _words(*where),
        verdict(test, corrected, high),
        f"{x.size} and {y.size}",
        seen,
        record=record | test._asdict() | {"p_holm": corrected},
    )
