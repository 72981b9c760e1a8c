"""Does each memory learn? A T-Maze of 20 steps, and with --long one of 160 beside AReLiT and GRU.

    python -m benchmarks.modern_memories results/modern-memories
    python -m benchmarks.modern_memories results/modern-memories-160 --long

Small agents of equal width, five seeds, the settings of `benchmarks/initial_weights.py`. It goes on
where it stopped; `clew report FOLDER` draws the curves and the table.
"""

import argparse

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.memory import MEMORIES, options_of

A2C = A2CConfig(num_envs=16, rollout_length=64)
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "head_size": 32, "window": 64}
CHRONO = {"min_gru": 256, "gru": 256, "lstm": 256}


def small(name: str, **options: int) -> TrainConfig:
    """The settings of one memory."""
    known = options_of(name)
    sizes = {option: value for option, value in SIZES.items() if option in known}
    if name in ("lstm", "gru", "none"):
        sizes = {"hidden_size": 128}
    return TrainConfig(memory=name, memory_options=sizes | options, a2c=A2C)


def study(long: bool) -> Study:
    """All memories, and once more those whose gates can begin open."""
    corridor, steps = (160, 5_000_000) if long else (20, 500_000)
    models = {name: small(name) for name in MEMORIES}
    models |= {f"{name}-open": small(name, chrono=most) for name, most in CHRONO.items()}
    return Study(
        name="modern-memories" + ("-160" if long else ""),
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
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    run_study(study(given.long), given.folder, workers=given.workers)


if __name__ == "__main__":
    main()
