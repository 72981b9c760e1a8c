"""A study whose cells take no time, for the tests of running and resuming; run as a script too."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.lab.grid import (
    Evaluation,
    LocalWorkers,
    QuietStudy,
    Setting,
    Study,
    read_results,
    run_study,
)
from clew.lab.grid.results import cell_of
from clew.run.config import TrainConfig
from pretended_work import BEGUN

SMALL = {"hidden_size": 4}


def small_study(**changes) -> Study:
    """Three models in three settings, three seeds each: 27 cells."""
    a2c = A2CConfig(num_envs=1, whole_episodes=True, return_normalisation=True, lam=1.0)
    agent = TrainConfig(memory_options=SMALL, network=NetworkConfig(head_size=4), a2c=a2c)
    settings = {
        f"length-{n}": Setting(
            "memory_chain", {"memory_length": n, "stream_seed": 0}, decisions=n + 1
        )
        for n in (1, 2, 3)
    }
    models = {name: replace(agent, memory=name) for name in MODELS}
    study = Study(
        name="small",
        models=models,
        settings=settings,
        seeds=(4, 0, 7),
        episodes=20,
        evaluation=Evaluation(episodes=10, stream=True),
        curve_bins=4,
    )
    return replace(study, **changes)


MODELS = ("none", "gru", "lstm")


class Watch(QuietStudy):
    """Keeps messages and numbers, and calls `at(standing)` at every report."""

    def __init__(self, at=lambda standing: None):
        self.at, self.messages, self.standings = at, [], []

    def message(self, text: str) -> None:
        """Keeps the text."""
        self.messages.append(text)

    def report(self, standing) -> None:
        """Keeps the numbers."""
        self.standings.append(standing)
        self.at(standing)


class Killed(BaseException):
    """Stands in for a kill."""


def stop_at(share: float):
    """A listener that kills the training at this progress."""

    def progress(now: float) -> None:
        if now >= share:
            raise Killed

    return progress


def assert_whole(result, study=None) -> None:
    """Every cell has its row once."""
    cells = (study or small_study()).cells()
    assert [cell_of(row) for row in result.rows] == cells
    assert len(read_results(result.path)) == len(cells)
    assert not result.failures


def begun(folder: Path) -> list[tuple[str, str, int]]:
    """Every cell that was ever started, in order, one entry per time."""
    lines = [json.loads(line) for line in (folder / BEGUN).read_text().splitlines()]
    return [
        (model, setting, seed)
        for model, settings, seeds in lines
        for setting in settings
        for seed in seeds
    ]


def run_pretended(folder: Path, workers: int = 2, study: Study | None = None, progress=None):
    """Runs the study with pretended work."""
    os.environ["PRETEND_FOLDER"] = str(folder)
    pool = LocalWorkers(folder / "logs", workers, work="pretended_work:pretend")
    return run_study(study or small_study(), folder, workers=pool, progress=progress)


if __name__ == "__main__":
    run_pretended(Path(sys.argv[1]))
