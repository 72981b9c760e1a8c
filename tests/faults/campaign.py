"""Injects faults by turns, and tabulates their outcomes."""

import contextlib
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax

from clew.errors import UserError
from clew.files import write_json, write_text
from clew.run import machine
from clew.run.runner import TrainingInterrupted
from clew.run.trust import STATE
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost
from faults.kinds import A_TURN, KINDS

OUTCOMES = (SURVIVED, "refused", "lost", "accepted", "traceback", NO_EFFECT)
"""The run is intact; a line names the problem; something is lost; something wrong was accepted; an
error that is not one line; nothing had changed, so it shows nothing."""
BAD = ("lost", "accepted", "traceback")
HEADS = ("", "injected", "took effect", *OUTCOMES[:-1])
WRITTEN = 60.0
"""Seconds between two writings of a campaign's table."""
SAID = 3
"""Number of distinct lines of a kind that are kept as examples."""


class Trial(NamedTuple):
    """One fault."""

    kind: str
    seed: str
    """Its random seed: it repeats the same faults, except the moments of signals."""
    outcome: str
    """One of `OUTCOMES`."""
    said: str
    """The line, or the error."""
    seconds: float = 0.0
    """How long it took."""


@dataclass
class Campaign:
    """Trials so far."""

    trials: list[Trial] = field(default_factory=list)

    def count(self, kind: str, outcome: str = "") -> int:
        """Number of trials of a kind, with an outcome if given."""
        return sum(t.kind == kind and outcome in ("", t.outcome) for t in self.trials)

    @property
    def bad(self) -> list[Trial]:
        """Trials with an outcome that must not happen."""
        return [trial for trial in self.trials if trial.outcome in BAD]

    def counts(self) -> list[list[Any]]:
        """For each kind its name and the numbers under `HEADS`; totals come last."""
        kinds = dict.fromkeys(trial.kind for trial in self.trials)
        rows = []
        for kind in kinds:
            injected, idle = self.count(kind), self.count(kind, NO_EFFECT)
            outcomes = (self.count(kind, outcome) for outcome in OUTCOMES[:-1])
            rows.append([kind, injected, injected - idle, *outcomes])
        totals = [sum(row[column] for row in rows) for column in range(1, len(HEADS))]
        return [*rows, ["all", *totals]]

    def table(self) -> str:
        """One line for each kind, in Markdown."""
        lines = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)], *self.counts()]
        return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Counts, seconds, example lines, and every trial with an outcome that must not happen."""
        kinds = {}
        for kind in dict.fromkeys(trial.kind for trial in self.trials):
            mine = [trial for trial in self.trials if trial.kind == kind]
            kinds[kind] = {outcome: self.count(kind, outcome) for outcome in OUTCOMES}
            kinds[kind]["seconds"] = round(sum(trial.seconds for trial in mine), 1)
            lines = dict.fromkeys(t.said for t in mine if t.outcome == "refused")
            kinds[kind]["said"] = list(lines)[:SAID]
        return {"kinds": kinds, "bad": [trial._asdict() for trial in self.bad]}


def run_trial(bench: Bench, kind: str, seed: str) -> Trial:
    """Injects one fault."""
    began = time.monotonic()
    outcome, said = outcome_of(lambda: KINDS[kind](bench, random.Random(seed)))
    return Trial(kind, seed, outcome, said, time.monotonic() - began)


def outcome_of(inject: Callable[[], str]) -> tuple[str, str]:
    """The outcome of a fault, and its line or error.

    Args:
        inject: injects it; `faults.kinds` describes its results and exceptions.

    Raises:
        TrainingInterrupted: if the campaign got a signal, such as Ctrl-C, while it trained.
    """
    try:
        said = inject()
        return (said if said in (SURVIVED, NO_EFFECT) else "refused"), said
    except Lost as error:
        return "lost", str(error)
    except Accepted as error:
        return "accepted", str(error)
    except TrainingInterrupted:
        raise  # a signal to the campaign itself
    except BaseException as error:
        # A line that ends a run which should have continued is a loss as well.
        outcome = "lost" if isinstance(error, UserError) else "traceback"
        return outcome, traceback.format_exc()


def run_campaign(
    seconds: float,
    *,
    seed: int = 0,
    kinds: Sequence[str] = tuple(KINDS),
    trials: int = 0,
    output: Path | None = None,
) -> Campaign:
    """Injects faults of all kinds by turns, and prints bad outcomes; Ctrl-C ends it.

    Args:
        seconds: duration.
        seed: of the campaign; trial i of a kind has the random numbers of "SEED-i".
        kinds: the kinds of faults.
        trials: end after this many; 0 for no limit.
        output: a folder for campaign.json and table.md, written every minute.
    """

    def save() -> None:
        if output is not None:
            write(output, "campaign.json", campaign.to_json(), "table.md", campaign.table())

    machine.use_compilation_cache()
    campaign, written, turn = Campaign(), time.monotonic(), 0
    deadline = written + seconds
    with contextlib.suppress(TrainingInterrupted), own_folder() as path:
        bench = Bench(path)
        while time.monotonic() < deadline and not 0 < trials <= len(campaign.trials):
            for kind, number in _turn(kinds, turn):
                if time.monotonic() >= deadline or 0 < trials <= len(campaign.trials):
                    break
                trial = run_trial(bench, kind, f"{seed}-{number}")
                campaign.trials.append(trial)
                if trial.outcome in BAD:
                    print(f"{trial.outcome}: {kind}, seed {trial.seed}: {trial.said}", flush=True)
                bench.tidy()
                if time.monotonic() > written + WRITTEN:
                    save()
                    written = time.monotonic()
            turn += 1
            jax.clear_caches()  # programs use memory maps, of which a process has at most 65,530
    save()
    return campaign


def write(output: Path, counts: str, values: dict[str, Any], table: str, text: str) -> None:
    """Writes the results into a folder.

    Args:
        output: the folder.
        counts: name of the JSON file of `values`.
        values: the results; versions of the software are added.
        table: name of the Markdown file of `text`.
        text: the same as a table.
    """
    output.mkdir(parents=True, exist_ok=True)
    about = {"versions": machine.versions(), "git_commit": machine.git_commit()}
    write_json(output / counts, about | values)
    write_text(output / table, text + "\n")


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that is removed afterwards, together with its entry in the user's record of runs.

    Processes started meanwhile find the same modules as this one: `faults.environments`.
    """
    with tempfile.TemporaryDirectory(prefix="clew-faults-", ignore_cleanup_errors=True) as name:
        path = os.pathsep.join(filter(None, sys.path))
        with mock.patch.dict(os.environ, {STATE: f"{name}/state", "PYTHONPATH": path}):
            yield Path(name)


def _turn(kinds: Sequence[str], turn: int) -> Iterator[tuple[str, int]]:
    """The faults of a turn: kinds, each with the number of its trial."""
    for kind in kinds:
        for number in range(A_TURN.get(kind, 1)):
            yield kind, turn * A_TURN.get(kind, 1) + number
