"""A resumable study of tiny trainings on a T-Maze, for the tests; run as a script too."""

import sys
from dataclasses import replace
from pathlib import Path

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.run.config import TrainConfig

FURTHER = {
    "corridor-5": {"corridor_length": 5, "time_limit": 40},
    "corridor-9-stretched": {"corridor_length": 9, "time_limit": 40, "shown_length": 3},
}


def small_cells(**changes) -> Study:
    """Two models on one short corridor, two seeds each: 4 cells of 60 updates."""
    agent = TrainConfig(
        memory_options={"hidden_size": 4},
        network=NetworkConfig(head_size=4),
        a2c=A2CConfig(num_envs=2, rollout_length=8),
        checkpoint_seconds=1e-6,  # at every report, however fast the machine is
        log_every=5,
    )
    home = {"corridor_length": 3, "time_limit": 40}
    study = Study(
        name="cells",
        models={name: replace(agent, memory=name) for name in ("none", "gru")},
        settings={"corridor-3": Setting("tmaze", home, further=FURTHER, further_needs="junction")},
        seeds=(0, 1),
        steps=960,
        evaluation=Evaluation(episodes=20),
        score="success",
        curve_bins=6,
        resumable=True,
        last_steps=160,
    )
    return replace(study, **changes)


def timeless(row: dict) -> dict:
    """A row without the fields that differ between two trainings of the same cell."""
    timing = ("seconds", "timed", "rate", "finished")
    return {key: value for key, value in row.items() if key not in timing}


if __name__ == "__main__":
    run_study(small_cells(), Path(sys.argv[1]), workers=1)
