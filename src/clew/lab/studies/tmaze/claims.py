"""Success rates of a T-Maze study's folder, and the claims of Figures 5.2 and 5.3."""

import math
from dataclasses import dataclass

from clew.errors import UserError
from clew.lab.claims import (
    HELD,
    MOST_SEEDS,
    NOT_HELD,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Finding,
    seeds_that_decide,
    within,
)
from clew.lab.grid.results import Row
from clew.lab.studies.report.budget import OneBudget, Values, one_budget
from clew.lab.studies.report.comparisons import ALPHA
from clew.lab.studies.report.data import StudyData
from clew.lab.studies.tmaze import grid
from clew.lab.studies.tmaze.grid import CORRIDORS
from clew.stats import Interval, wilson_interval
from clew.stats.comparisons import critical_value

GUESSED_DEVIATION = 0.25
"""Assumed standard deviation for a single seed, for planning: half of the seeds remember (1), half
guess (0.5)."""


def corridor_of(setting: str) -> int:
    """The length of a setting's corridor."""
    return int(setting.split("-")[1])


def scores_of(data: StudyData) -> OneBudget:
    """The rows of a folder, whose scores are success over the last 100K steps of training.

    Raises:
        UserError: if the folder does not belong to the T-Maze study.
    """
    which = grid.EDITION_OF.get(data.name)
    if which is None or "last" not in data.rows[0]:
        raise UserError(f"{data.folder} belongs to {data.name}, not to a grid of the T-Maze study")
    return one_budget(data, list(grid.models(which)), corridor_of)


@dataclass(frozen=True)
class RangeClaim:
    """A range of success rates that the thesis reports for an agent on some corridors."""

    figure: str
    model: str
    corridors: tuple[int, ...]
    low: float
    high: float
    text: str

    def __call__(self, scores: OneBudget) -> list[Finding]:
        """The comparison with the range at every corridor of the claim."""
        return [self._find(n, scores.scores(self.model, f"corridor-{n}")) for n in self.corridors]

    def _find(self, corridor: int, values: Values) -> Finding:
        record = {"figure": self.figure, "model": self.model, "corridor": corridor}
        record |= {"claimed_low": self.low, "claimed_high": self.high, "seeds": values.size}
        what = f"corridor {corridor}, {self.low:g} to {self.high:g}"
        if not values.size:
            record |= {"mean": None, "low": None, "high": None}
            return Finding(what, NOT_RUN, "0", record=record)
        interval = mean_interval(values)
        verdict, needed = within(interval, self.low, self.high), None
        if verdict == UNDECIDED:
            needed = seeds_to_decide(values, self.low, self.high)
        record |= interval._asdict()
        return Finding(what, verdict, str(values.size), f"{interval:.2f}", needed, record)


RANGES = (
    RangeClaim("Figure 5.2", "gtrxl-256", CORRIDORS, 0.9, 1.0, "between 0.9 and 1.0"),
    RangeClaim("Figure 5.2", "gtrxl-128", (120,), 0.9, 1.0, "near 1.0 at 120"),
    RangeClaim("Figure 5.2", "gtrxl-128", CORRIDORS[1:], 0.4, 0.6, "quickly 0.5 above 120"),
    RangeClaim("Figure 5.3", "lstm", CORRIDORS, 0.4, 0.6, "close to 0.5"),
    RangeClaim("Figure 5.3", "gru", CORRIDORS[:4], 0.8, 1.0, "0.8 to 1.0 up to 180"),
    RangeClaim("Figure 5.3", "gru", CORRIDORS[4:], 0.4, 0.8, "dropping to 0.5 above 180"),
    RangeClaim("Figure 5.3", "relit", CORRIDORS, 0.8, 1.0, "between 0.8 and 1.0"),
    RangeClaim("Figure 5.3", "arelit", CORRIDORS, 0.8, 1.0, "between 0.8 and 1.0"),
)
"""Source: Pramanik (2023), sections 5.1.3 and 5.1.4, 50 seeds, 10M steps. "Close to 0.5" and
"quickly 0.5" are taken as 0.4 to 0.6, "near 1.0" as 0.9 to 1, "dropping to 0.5" as 0.4 to 0.8."""


@dataclass(frozen=True)
class OutOfReach:
    """None of these agents solves a corridor that is longer than its window."""

    models: tuple[str, ...]
    window: int

    def __call__(self, scores: OneBudget) -> list[Finding]:
        """How many seeds solve each such corridor: one is enough to refute the claim."""
        longer = [n for n in CORRIDORS if n > self.window]
        known = [model for model in self.models if model in scores.models]
        return [self._find(scores, model, n) for n in longer for model in known or self.models[:1]]

    def _find(self, scores: OneBudget, model: str, corridor: int) -> Finding:
        rows = scores.rows(model, f"corridor-{corridor}")
        solved, seeds = sum(solves(row) for row in rows), len(rows)
        what = f"corridor {corridor}, {model}"
        record = {"model": model, "corridor": corridor, "solved": solved, "seeds": seeds}
        if not seeds:
            return Finding(what, NOT_RUN, "0", record=record)
        # As for a mean: the largest share of seeds that this many seeds may all have missed.
        verdict = HELD if (ALPHA / 2) ** (1 / seeds) >= 1 - RARE else UNDECIDED
        verdict = NOT_HELD if solved else verdict
        needed = math.ceil(math.log(ALPHA / 2) / math.log(1 - RARE))
        seen = f"{solved} of {seeds} seeds solve it"
        return Finding(
            what, verdict, str(seeds), seen, needed if verdict == UNDECIDED else None, record
        )


SOLVED, RARE = 0.8, 0.1
"""Success that solves a corridor; share of seeds that counts as none."""


def solves(row: Row) -> bool:
    """Whether the 95% interval of a training's success in new episodes lies above `SOLVED`."""
    successes = round(row["mean"] * row["episodes"])
    return wilson_interval(successes, row["episodes"]).low > SOLVED


CLAIMS = (
    *(Claim(each.figure, f"{each.model}: {each.text}", each) for each in RANGES),
    Claim(
        "Section 5.1.3",
        "gtrxl-128: needs the whole corridor in its window (no seed solves a longer one)",
        OutOfReach(("gtrxl-128", "gtrxl-128-banded", "gtrxl-128-unbanded"), 128),
    ),
)
"""The ranges of the two figures, and the text's conclusion from the first. The window is the
actor's; the published agents' learner sees all of its chunk, so the banded ones decide whether the
layers pass the cue on."""


def mean_interval(values: Values) -> Interval:
    """A 95% interval of the mean success over seeds that is not narrow for few and equal seeds.

    At each end it is the wider one of Student's interval and of

        (1 - q) mean .. (1 - q) mean + q,   q = 1 - 0.025^(1 / n)

    where q is the largest share of seeds of another kind that n seeds may all have missed: agents
    here either remember, guess or never arrive, so two seeds at 1.0 have no spread and yet say
    little.
    """
    count, mean = values.size, float(values.mean())
    low, high = _unseen(count, mean)
    if count > 1:
        reach = float(values.std(ddof=1)) / math.sqrt(count) * critical_value(ALPHA, count - 1)
        low, high = min(low, mean - reach), max(high, mean + reach)
    return Interval(mean, max(low, 0.0), min(high, 1.0))


def seeds_to_decide(values: Values, low: float, high: float) -> int | None:
    """Seeds with which this mean and deviation, if they are true, would be decided.

    This is the larger of the numbers needed by a one-sample t-test against the nearest edge of the
    range with a power of 0.8 (`seeds_needed`, the other group without spread), and by the second
    part of `mean_interval`. An edge at 0 or 1 does not count.

    Returns:
        The number, None if the mean is at the edge or the number is above `MOST_SEEDS`.
    """
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if values.size > 1 else GUESSED_DEVIATION
    margin = min(abs(mean - edge) for edge in (low, high) if 0.0 < edge < 1.0)
    enough = 2
    if deviation > 0:
        enough = seeds_that_decide(margin, deviation, 0.0)
        if enough is None:
            return None
    for count in range(enough, MOST_SEEDS):
        if within(Interval(mean, *_unseen(count, mean)), low, high) != UNDECIDED:
            return count
    return None


def _unseen(count: int, mean: float) -> tuple[float, float]:
    share = 1.0 - (ALPHA / 2) ** (1 / count)
    return (1 - share) * mean, (1 - share) * mean + share
