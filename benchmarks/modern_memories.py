"""Does each memory learn? A T-Maze of 20 steps, and with --long one of 160.

    python -m benchmarks.modern_memories results/modern-memories
    python -m benchmarks.modern_memories results/modern-memories-160 --long

Small agents of equal width, five seeds. At 160 all but the memory is as in the study of AReLiT, of
`benchmarks/arelit_tmaze.py`, whose rows of GRU, AReLiT and the average stand beside these. It goes
on where it stopped; `clew report FOLDER` draws the curves and the table.
"""

import argparse
from dataclasses import replace

from benchmarks.arelit_tmaze import SIZES, agent

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.lab.studies.popgym.grid import SIZES as WIDTHS
from clew.memory import MEMORIES, options_among, options_of

LONGEST = 256
"""Steps that the longest memories last at the start, where gates can begin open."""


def short(name: str) -> TrainConfig:
    """The settings of one memory in the corridor of 20."""
    a2c = A2CConfig(num_envs=16, rollout_length=64)
    return TrainConfig(memory=name, memory_options=options_among(name, WIDTHS), a2c=a2c)


def long(name: str) -> TrainConfig:
    """Its settings in the corridor of 160."""
    sizes = SIZES["small"] | {"window": 256}
    settings = agent("small half-wave fast")
    return replace(settings, memory=name, memory_options=options_among(name, sizes))


def opened(config: TrainConfig) -> TrainConfig:
    """The same with gates that begin open."""
    return replace(config, memory_options=config.memory_options | {"chrono": LONGEST})


def study(of_160: bool, names: list[str]) -> Study:
    """The memories, and once more those whose gates can begin open."""
    corridor, steps = (160, 5_000_000) if of_160 else (20, 500_000)
    models = {name: long(name) if of_160 else short(name) for name in names}
    gated = [name for name in names if "chrono" in options_of(name)]
    models |= {f"{name}-open": opened(models[name]) for name in gated}
    return Study(
        name="modern-memories" + ("-160" if of_160 else ""),
        models=models,
        settings={f"tmaze-{corridor}": Setting("tmaze", {"corridor_length": corridor})},
        seeds=tuple(range(5)),
        steps=steps,
        evaluation=Evaluation(episodes=500),
        score="success",
    )


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--long", action="store_true", help="160 steps of corridor, 5M steps")
    parser.add_argument("--memories", nargs="+", default=[n for n in MEMORIES if n != "hybrid"])
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    run_study(study(given.long, given.memories), given.folder, workers=given.workers)


if __name__ == "__main__":
    main()
