"""Which learner learns what, at equal steps: a T-Maze of 20 steps and a memory chain of 20.

    python -m benchmarks.which_learner results/which-learner

Every learner at its default settings, with a GRU of 64 units and without memory, 500,000 steps,
then 500 fresh episodes with sampled actions. It goes on where it stopped; `--seeds 3` begins with
fewer.
"""

import argparse

from clew import TrainConfig
from clew.agents.learners import LEARNERS
from clew.lab.grid import Evaluation, Setting, Study, run_study

MEMORIES = {"gru": {"hidden_size": 64}, "none": {"hidden_size": 64}}
TASKS = {
    "tmaze-20": Setting("tmaze", {"corridor_length": 20}),
    "memory-chain-20": Setting("memory_chain", {"memory_length": 20}),
}


def study(seeds: int) -> Study:
    """Every learner with every memory on every task."""
    models = {
        f"{learner}-{memory}": TrainConfig(algorithm=learner, memory=memory, memory_options=options)
        for memory, options in MEMORIES.items()
        for learner in LEARNERS
    }
    return Study(
        name="which-learner",
        models=models,
        settings=TASKS,
        seeds=tuple(range(seeds)),
        steps=500_000,
        evaluation=Evaluation(episodes=500),
        score="return",
    )


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    run_study(study(given.seeds), given.folder, workers=given.workers)


if __name__ == "__main__":
    main()
