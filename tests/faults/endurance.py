"""An hour's training with a fault every few seconds, and its result.

Two runs train at once: one of a compiled task, which must equal an undisturbed one bit for bit, and
one on Gymnasium environments, whose state cannot be saved, which must have every row once.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clew.run import machine
from clew.run.metrics import Row, read_metrics
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import PER_UPDATE, SURVIVED, Bench, Lost, differences, untimed
from faults.campaign import Campaign, Trial, outcome_of, own_folder, write
from faults.endured import ANY, HOSTED, Endured, Fault
from faults.processes import STOPPED

ENDLESS = 10**9
"""Updates of a run that only a signal ends."""
STEP_SECONDS = 0.002
"""Duration of an environment's step."""


@dataclass
class Endurance:
    """A run, its faults, and their outcomes.

    Args:
        run: the disturbed run.
        faults: the possible faults, all equally likely.
        dice: random numbers for the faults.
    """

    run: Endured
    faults: Sequence[Fault]
    dice: random.Random
    campaign: Campaign = field(default_factory=Campaign)
    updates: int = 0
    rows: int = 0
    minutes: float = 0.0

    def disturb(self, deadline: float, every: float) -> None:
        """Injects random faults until the deadline; then a signal stops the run."""
        began = time.monotonic()
        while True:
            wait = self.dice.expovariate(1.0 / every)
            if time.monotonic() + wait > deadline:
                break
            time.sleep(wait)
            fault = self.dice.choice(self.faults)
            self._count(fault.__name__.replace("_", " "), lambda fault=fault: self._once(fault))
        time.sleep(max(0.0, deadline - time.monotonic()))
        self._count("the end", self._stop)
        self.minutes = (time.monotonic() - began) / 60

    def check(self, compare: Callable[[], None]) -> None:
        """Compares the run with what it should be; records the result."""

        def checked() -> str:
            compare()
            return SURVIVED

        self.updates, self.rows = self.run.update, len(read_metrics(self.run.path))
        self._count("the whole", checked)

    def to_json(self) -> dict[str, Any]:
        """The outcome of the run."""
        return {
            "minutes": round(self.minutes, 1),
            "updates": self.updates,
            "rows": self.rows,
            "rows damaged on the disk": len(self.run.damaged),
            "processes": self.run.started,
            **self.campaign.to_json(),
        }

    def _count(self, kind: str, inject: Callable[[], str]) -> None:
        began = time.monotonic()
        outcome, said = outcome_of(inject)
        trial = Trial(kind, str(len(self.campaign.trials)), outcome, said, time.monotonic() - began)
        self.campaign.trials.append(trial)
        if trial in self.campaign.bad:
            print(f"{self.run.path.name}: {outcome}: {kind}: {said}", flush=True)
            self.run.start_anew()

    def _once(self, fault: Fault) -> str:
        self.run.go_on(disturbed=False)
        said = fault(self.run, self.dice)
        self.run.go_on()
        return said

    def _stop(self) -> str:
        """Sends SIGTERM once it trains."""
        self.run.go_on(disturbed=False)
        if not self.run.wait_for_progress():
            raise Lost("it does not train")
        self.run.trainer.signal(signal.SIGTERM)
        self.run.trainer.ended(STOPPED)
        return SURVIVED


def endure(
    minutes: float, *, every: float = 20.0, seed: int = 0, output: Path | None = None
) -> list[Endurance]:
    """Trains both runs for this long with faults, and compares them with undisturbed ones.

    Args:
        minutes: duration.
        every: mean seconds between two faults of a run; the times between are exponential.
        seed: of the faults.
        output: a folder for endurance.json and endurance.md.
    """
    machine.use_compilation_cache()
    with own_folder() as path:
        bench, armed = Bench(path), path / "armed-endurance"
        slow = {"armed": str(armed), "seconds": STEP_SECONDS}
        compiled = bench.compiled("compiled", ENDLESS)
        hosted = bench.hosted("hosted", armed, 2, ENDLESS, env_options=slow)
        one = Endurance(
            Endured(compiled, path / "tmp-1", armed), ANY, random.Random(f"{seed}-compiled")
        )
        two = Endurance(
            Endured(hosted, path / "tmp-2", armed, may_end=True),
            HOSTED,
            random.Random(f"{seed}-hosted"),
        )
        deadline = time.monotonic() + 60.0 * minutes
        threads = [threading.Thread(target=e.disturb, args=(deadline, every)) for e in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        two.check(lambda: _require_rows(two.run))
        one.check(lambda: _require_bits(one.run))
    if output is not None:
        counts = {"compiled": one.to_json(), "hosted": two.to_json()}
        write(output, "endurance.json", counts, "endurance.md", table(one, two))
    return [one, two]


def table(one: Endurance, two: Endurance) -> str:
    """Both runs in words and tables."""
    parts = []
    for what, made in (("compiled", one), ("hosted", two)):
        words = (
            f"{what}: {made.minutes:.0f} minutes",
            f"{made.run.started} processes",
            f"{made.updates} updates",
            f"{made.rows} rows",
            f"{len(made.run.damaged)} rows damaged on the disk",
        )
        parts += [", ".join(words), made.campaign.table()]
    return "\n\n".join(parts)


def _require_bits(run: Endured) -> None:
    """Raises `Lost` unless the run equals an undisturbed one."""
    config = replace(
        run.config, name="whole", steps=run.update * PER_UPDATE, checkpoint_seconds=1e9
    )
    whole = train(config, progress=Quiet()).path
    if different := differences(run.path, whole):
        raise Lost(f"{different} differ")
    # Its last row is early, because the run ends there.
    rows = [row for row in untimed(read_metrics(whole)) if row["update"] % config.log_every == 0]
    mine = {row["update"]: row for row in untimed(read_metrics(run.path))}
    others = [row["update"] for row in rows if mine.get(row["update"], row) != row]
    if others:
        raise Lost(f"the rows of updates {others[:9]} are others")
    _require_each_once(run, [row["update"] for row in rows])


def _require_rows(run: Endured) -> None:
    """Raises `Lost` unless the run has every row once."""
    log_every = run.config.log_every
    _require_each_once(run, list(range(log_every, run.update + 1, log_every)))


def _require_each_once(run: Endured, updates: list[int]) -> None:
    rows: list[Row] = read_metrics(run.path)
    found = [row["update"] for row in rows]
    there = set(found)
    wanted = [n for n in updates if n in there or n not in run.damaged]
    if found != wanted:
        odd = sorted(there ^ set(wanted))
        raise Lost(f"{len(found)} rows of {len(wanted)}; missing, or too many: {odd[:9]}")
