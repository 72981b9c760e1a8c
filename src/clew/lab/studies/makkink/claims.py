"""What Makkink (2021) claims, held against many seeds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float

from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED, Claim, Finding, tables
from clew.lab.studies.report.comparisons import ALPHA, MANY, difference_text, p_text, signed
from clew.lab.studies.report.edition import Edition
from clew.report.document import Block
from clew.stats import Comparison, bootstrap_interval, holm, welch_test

SMALLEST = 0.05
"""A difference below this, in the unit of the score, is taken for none."""

Values = Float[np.ndarray, " seeds"]
Where = tuple[str, str, str]
"""A setting, the model that is said to have more, and the other."""


def scores(edition: Edition, model: str, setting: str) -> Values:
    """What every seed's evaluation earned."""
    return edition.values(model, setting)


def distances(edition: Edition, model: str, setting: str) -> Values:
    """How far every seed's score lies from their median."""
    values = edition.values(model, setting)
    return np.abs(values - np.median(values))


def training(edition: Edition, model: str, setting: str) -> Values:
    """What every seed earned over all of its training: more of it the sooner it learns."""
    found, score = edition.cells[model, setting], edition.study["score"]
    curves = [found[seed]["curve"] for seed in sorted(found)]
    return np.array([np.mean([v for v in curve[score] if v is not None]) for curve in curves])


def learns(edition: Edition, model: str, setting: str) -> bool:
    """Whether the 95% interval of a model's mean lies above what no memory earns."""
    return bootstrap_interval(edition.values(model, setting)).low > _floor(edition, setting)


def _floor(edition: Edition, setting: str) -> float:
    return edition.settings[setting].floor or 0.0


@dataclass(frozen=True)
class MoreThan:
    """Some models have more of something than others, in each of a few settings."""

    more: tuple[str, ...]
    less: tuple[str, ...]
    settings: tuple[str, ...]
    measure: Callable[[Edition, str, str], Values] = scores
    """Of which they have more."""

    def __call__(self, edition: Edition) -> list[Finding]:
        """Every comparison, with Holm's correction over those that have the seeds."""
        return [
            _finding(edition, where, *judged) if judged else Finding(_words(*where), NOT_RUN)
            for where, judged in self._judged(edition).items()
        ]

    def _judged(self, edition: Edition) -> dict[Where, tuple[Comparison, float] | None]:
        wanted = [w for w in product(self.settings, self.more, self.less) if w[1] != w[2]]
        known = [w for w in wanted if all(_many(edition, model, w[0]) for model in w[1:])]
        compared = [w for w in known if self._comparable(edition, *w)]
        tests = [
            welch_test(self.measure(edition, a, s), self.measure(edition, b, s))
            for s, a, b in compared
        ]
        corrected = holm([test.p for test in tests]) if tests else []
        found = dict(zip(compared, zip(tests, map(float, corrected), strict=True), strict=True))
        return {w: found.get(w) for w in wanted if w in found or w not in known}

    def _comparable(self, edition: Edition, setting: str, more: str, less: str) -> bool:
        # A model that never learns has no spread to compare.
        if self.measure is not distances:
            return True
        return all(learns(edition, model, setting) for model in (more, less))


@dataclass(frozen=True)
class NoMoreThan:
    """A model does not have a higher score than another, in any of a few settings."""

    one: str
    other: str
    settings: tuple[str, ...]

    def __call__(self, edition: Edition) -> list[Finding]:
        """Every comparison; what speaks against "more" speaks for this, and the other way."""
        opposite = {HELD: NOT_HELD, NOT_HELD: HELD}
        more = MoreThan((self.one,), (self.other,), self.settings)(edition)
        return [replace(f, verdict=opposite.get(f.verdict, f.verdict)) for f in more]


PLAIN, GATED = ("transformer-xl", "rezero"), ("gtrxl", "integrated")
TRANSFORMERS = ("transformer-xl", "gtrxl", "rezero", "universal", "integrated")
LONG, LARGE = ("length-20", "length-70"), ("size-5", "size-10")
CLAIMS: tuple[Claim[Edition], ...] = (
    Claim(
        "Makkink (2021)",
        "1. Attention alone is not enough: gated transformers earn more",
        MoreThan(GATED, PLAIN, LONG),
    ),
    Claim(
        "Makkink (2021)",
        "2. Gates stabilise: seeds of plain transformers lie farther apart",
        MoreThan(PLAIN, GATED, (*LONG, *LARGE), measure=distances),
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
        "Forsythe), where both models learn: the 95% interval of the mean lies above what no "
        "memory earns. Claim 5 compares the mean score over all of training. Claim 6 holds where "
        '"more" does not. The effect is the difference in standard deviations, p is after Holm\'s '
        "correction."
    )
    return [*tables(judged, edition.slug, "What the thesis claims", note, details)]


def _words(setting: str, more: str, less: str) -> str:
    return f"{setting}, {more} − {less}"


def _many(edition: Edition, model: str, setting: str) -> bool:
    return edition.values(model, setting).size >= MANY


def _finding(edition: Edition, where: Where, test: Comparison, corrected: float) -> Finding:
    setting, more, less = where
    seen = difference_text(test)
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
