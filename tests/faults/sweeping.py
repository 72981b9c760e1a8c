"""A small sweep whose trials are scored at once, and a process of it that may be killed."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import clew
from clew.lab.grid import Event, Pack, QuietStudy
from clew.lab.sweep import storage
from clew.lab.sweep import sweep as sweep_module
from clew.lab.sweep.space import Range, Vary
from clew.lab.sweep.sweep import Sweep, SweepResult, run_sweep

RATES: Vary = {"a2c.learning_rate": Range(1e-5, 1e-1, log=True), "a2c.entropy_cost": Range(0, 0.1)}
SIZES: Vary = {"a2c.rollout_length": (4, 8, 16), "a2c.learning_rate": RATES["a2c.learning_rate"]}


def small_sweep(vary: Vary = SIZES, **changes: Any) -> Sweep:
    """Six trials of two seeds on a corridor of three."""
    config = clew.TrainConfig(
        env_options={"corridor_length": 3, "time_limit": 9},
        memory="gru",
        memory_options={"hidden_size": 4},
        network=clew.NetworkConfig(head_size=4),
        a2c=clew.A2CConfig(num_envs=2, rollout_length=8),
        steps=320,
        seeds=2,
    )
    values: dict[str, Any] = {"config": config, "vary": vary, "trials": 6, "fresh_seeds": 3}
    return Sweep(**values | changes)


class Killed(BaseException):
    """Stands in for a kill."""


class Pretended:
    """Workers that score a learning rate by its distance from 1e-3, at once, until killed.

    Args:
        left: number of packs until then.
        seconds: duration of a pack.
    """

    def __init__(self, left: float = math.inf, seconds: float = 0.0):
        self.size, self.saves = 2, True
        self.seconds = seconds
        self.left = left
        self.jobs: list[tuple[Pack, Any]] = []
        self.submitted: list[tuple[Pack, Any]] = []
        self.taken: list[Pack] = []

    def submit(self, pack: Pack, job: Any) -> None:
        """Keeps it."""
        self.jobs.append((pack, job))
        self.submitted.append((pack, job))

    def next(self, timeout: float) -> Event:
        """The rows of the oldest."""
        self.left -= 1
        if self.left < 0:
            raise Killed
        time.sleep(self.seconds)
        pack, job = self.jobs.pop(0)
        self.taken.append(pack)
        configs = [job["run"]] if "run" in job else job["configs"]
        rows = []
        for setting, digest, config in zip(job["settings"], job["digests"], configs, strict=True):
            for seed in job["seeds"]:
                score = -abs(math.log10(config["a2c"]["learning_rate"]) + 3) + seed / 100
                per = config["a2c"]["num_envs"] * config["a2c"]["rollout_length"]
                steps = -(-config["steps"] // per) * per
                curve = {"steps": [steps // 2, steps], "episodes": [1, 3], "success": [9.0, score]}
                own = {"model": job["model"], "setting": setting, "seed": seed, "digest": digest}
                rows.append(own | {"steps": steps, "mean": score, "curve": curve})
        return Event("rows", pack, "pretended", rows=tuple(rows))

    def close(self) -> None:
        """Drops what is running."""
        self.jobs.clear()


@contextmanager
def quickly_lost() -> Iterator[None]:
    """Makes a trial count as lost after two seconds without a heartbeat."""
    with ExitStack() as stack:
        for module in (storage, sweep_module):
            stack.enter_context(mock.patch.object(module, "GRACE", 1))
            stack.enter_context(mock.patch.object(module, "HEARTBEAT", 1))
        yield


def go_through(path: Path, url: str = "", seconds: float = 0.0) -> SweepResult:
    """A process of the small sweep."""
    sweep = small_sweep(at_once=3)
    workers = Pretended(seconds=seconds)
    with quickly_lost():
        return run_sweep(sweep, path, storage=url, workers=workers, progress=QuietStudy())


if __name__ == "__main__":
    print("begins", flush=True)
    go_through(Path(sys.argv[1]), sys.argv[2], 0.1)
