"""Does each memory learn a T-Maze?

    python -m benchmarks.modern_memories results/modern-memories
    python -m benchmarks.modern_memories results/modern-memories-160 --plan long

Plans, with small agents of equal width, five seeds:

- short: a corridor of 20, 500,000 steps of A2C with the library's default rates; every memory, and
  once more those whose gates can begin open;
- long: a corridor of 160, 5,000,000 steps. All but the memory is as in the study of AReLiT, of
  `benchmarks/arelit_tmaze.py`, whose rows of GRU, AReLiT and the average stand beside these.

It goes on where it stopped; `clew report FOLDER` draws the curves and the table.
"""

from dataclasses import replace

from benchmarks.arelit_tmaze import SIZES, agent
from benchmarks.plans import run_plan

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym.grid import SIZES as WIDTHS
from clew.memory import MEMORIES, options_among, options_of

NAMES = [name for name in MEMORIES if name != "hybrid"]
LONGEST = 256
"""Steps that the longest memories last at the start, where gates can begin open."""
SHORT, LONG = 20, 160
"""Corridors."""


def short() -> Study:
    """A corridor of 20."""
    a2c = A2CConfig(num_envs=16, rollout_length=64)
    models = {
        name: TrainConfig(memory=name, memory_options=options_among(name, WIDTHS), a2c=a2c)
        for name in NAMES
    }
    return _study("modern-memories", models | _opened(models), corridor(SHORT), 500_000)


def long() -> Study:
    """One of 160."""
    sizes, settings = SIZES["small"] | {"window": 256}, agent("small half-wave fast")
    models = {
        name: replace(settings, memory=name, memory_options=options_among(name, sizes))
        for name in NAMES
    }
    return _study("modern-memories-160", models | _opened(models), corridor(LONG), 5_000_000)


def _opened(models: dict[str, TrainConfig]) -> dict[str, TrainConfig]:
    """Those whose gates can begin open, with gates that do."""
    return {
        f"{name}-open": replace(config, memory_options=config.memory_options | {"chrono": LONGEST})
        for name, config in models.items()
        if "chrono" in options_of(name)
    }


def corridor(length: int) -> dict[str, Setting]:
    """A T-Maze of this length."""
    return {f"tmaze-{length}": Setting("tmaze", {"corridor_length": length})}


def _study(
    name: str, models: dict[str, TrainConfig], settings: dict[str, Setting], steps: int
) -> Study:
    return Study(
        name=name,
        models=models,
        settings=settings,
        steps=steps,
        evaluation=Evaluation(episodes=500),
        score="success",
    )


PLANS = {"short": short, "long": long}


if __name__ == "__main__":
    run_plan(__doc__, PLANS)
