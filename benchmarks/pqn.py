"""PQN beside PPO and A2C on two tasks of memory, at equal steps.

    python -m benchmarks.pqn results/pqn

Small agents with one layer, five seeds each. PQN has the library's settings, PPO reads the same
rollouts in the same minibatches, A2C has the settings of `benchmarks/modern_memories.py`; no step
size was tuned for these tasks. It goes on where it stopped; `clew report FOLDER` draws the curves.
"""

import argparse
from typing import Any

from clew import A2CConfig, PPOConfig, PQNConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.memory import options_among

SIZES = {"hidden_size": 64, "num_layers": 1}
LEARNERS: dict[str, dict[str, Any]] = {
    "pqn": {"pqn": PQNConfig()},
    "ppo": {"ppo": PPOConfig(32, 128, 128, minibatches=16, learning_rate=1e-3)},
    "a2c": {"a2c": A2CConfig(num_envs=16, rollout_length=64)},
}
AGENTS = (("pqn", "gru"), ("pqn", "min_gru"), ("pqn", "none"), ("ppo", "gru"), ("a2c", "gru"))


def agent(learner: str, memory: str) -> TrainConfig:
    """The settings of one agent."""
    options = options_among(memory, SIZES)
    return TrainConfig(
        algorithm=learner, memory=memory, memory_options=options, **LEARNERS[learner]
    )


def study() -> Study:
    """Both tasks, greedy agents."""
    return Study(
        name="pqn",
        models={f"{learner}-{memory}": agent(learner, memory) for learner, memory in AGENTS},
        settings={
            "memory-chain-20": Setting("memory_chain", {"memory_length": 20}),
            "tmaze-20": Setting("tmaze", {"corridor_length": 20}),
        },
        seeds=tuple(range(5)),
        steps=200_000,
        evaluation=Evaluation(episodes=500, greedy=True),
        score="success",
    )


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    run_study(study(), given.folder, workers=given.workers)


if __name__ == "__main__":
    main()
