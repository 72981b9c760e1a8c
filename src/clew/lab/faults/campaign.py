"""Faults by turns, and the table of what became of them."""

import random
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clew.errors import UserError
from clew.lab.faults.bench import Accepted, Bench, Lost
from clew.lab.faults.kinds import KINDS, SURVIVED
from clew.run import machine

OUTCOMES = ("survived", "refused", "lost", "accepted", "traceback")
"""The run is whole; a line says what is wrong; something is gone; something wrong was taken for
right; an error that is no line."""
BAD = OUTCOMES[2:]


class Trial(NamedTuple):
    """One fault."""

    kind: str
    seed: str
    """Of its random numbers: the same faults again, but for the moments of signals."""
    outcome: str
    """One of `OUTCOMES`."""
    said: str
    """The line, or the error."""


@dataclass
class Campaign:
    """Trials so far."""

    trials: list[Trial] = field(default_factory=list)

    def count(self, kind: str, outcome: str = "") -> int:
        """Trials of a kind, with an outcome if given."""
        return sum(t.kind == kind and outcome in ("", t.outcome) for t in self.trials)

    @property
    def bad(self) -> list[Trial]:
        """Those that should not be."""
        return [trial for trial in self.trials if trial.outcome in BAD]

    def table(self) -> str:
        """A line for each kind, in Markdown."""
        heads = ["", "injected", *OUTCOMES]
        kinds = dict.fromkeys(trial.kind for trial in self.trials)
        rows = [[k, self.count(k), *(self.count(k, o) for o in OUTCOMES)] for k in kinds]
        totals = [sum(row[column] for row in rows) for column in range(1, len(heads))]
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows, ["all", *totals]]
        return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def run_trial(bench: Bench, kind: str, seed: str) -> Trial:
    """Injects one fault."""
    try:
        said = KINDS[kind](bench, random.Random(seed))
        return Trial(kind, seed, "survived" if said == SURVIVED else "refused", said)
    except Lost as error:
        return Trial(kind, seed, "lost", str(error))
    except Accepted as error:
        return Trial(kind, seed, "accepted", str(error))
    except BaseException as error:
        # A line that ends a run which should have gone on is a loss as well.
        outcome = "lost" if isinstance(error, UserError) else "traceback"
        return Trial(kind, seed, outcome, traceback.format_exc())


def run_campaign(
    seconds: float, *, seed: int = 0, kinds: Sequence[str] = tuple(KINDS), trials: int = 0
) -> Campaign:
    """Injects faults of all kinds by turns, and prints what should not be.

    Args:
        seconds: how long.
        seed: of the campaign; trial i of a kind has the random numbers of "SEED-i".
        kinds: which.
        trials: end after so many; 0 for no limit.
    """
    machine.use_compilation_cache()
    campaign, deadline, turn = Campaign(), time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory(prefix="clew-faults-", ignore_cleanup_errors=True) as name:
        bench = Bench(Path(name))
        while time.monotonic() < deadline and not 0 < trials <= len(campaign.trials):
            kind = kinds[turn % len(kinds)]
            trial = run_trial(bench, kind, f"{seed}-{turn // len(kinds)}")
            campaign.trials.append(trial)
            if trial.outcome in BAD:
                print(f"{trial.outcome}: {kind}, seed {trial.seed}: {trial.said}", flush=True)
            bench.tidy()
            turn += 1
    return campaign
