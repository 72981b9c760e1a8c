"""Which learner learns what, at equal steps: a T-Maze of 20 steps and a memory chain of 20.

    python -m benchmarks.which_learner results/which-learner
    python -m benchmarks.which_learner results/pqn --plan pqn

Two plans, each with five seeds, then 500 fresh episodes; no step size was tuned for these tasks:

- defaults: every learner at its default settings, with a GRU of 64 units and without memory,
  500,000 steps, sampled actions;
- pqn: PQN with three memories beside PPO, which reads the same rollouts in the same minibatches,
  and A2C with the settings of `benchmarks/modern_memories.py`; 200,000 steps, greedy actions.

It goes on where it stopped; `--seeds 3` begins with fewer. `clew report FOLDER` draws the curves.
"""

import argparse
from dataclasses import replace

from clew import A2CConfig, PPOConfig, TrainConfig
from clew.agents.learners import LEARNERS
from clew.lab.grid import Evaluation, Setting, Study, run_study

TASKS = {
    "tmaze-20": Setting("tmaze", {"corridor_length": 20}),
    "memory-chain-20": Setting("memory_chain", {"memory_length": 20}),
}


def defaults() -> Study:
    """Every learner with every memory at its default settings."""
    return Study(
        name="which-learner",
        models={
            f"{learner}-{memory}": agent(learner, memory, hidden_size=64)
            for memory in ("gru", "none")
            for learner in LEARNERS
        },
        settings=TASKS,
        steps=500_000,
        evaluation=Evaluation(episodes=500),
        score="return",
    )


def pqn() -> Study:
    """PQN beside PPO on the same minibatches, and A2C."""
    same_minibatches = PPOConfig(32, 128, 128, minibatches=16, learning_rate=1e-3)
    size = {"hidden_size": 64, "num_layers": 1}
    models = {
        f"pqn-{memory}": agent("pqn", memory, **size) for memory in ("gru", "min_gru", "none")
    }
    models["ppo-gru"] = replace(agent("ppo", "gru", **size), ppo=same_minibatches)
    models["a2c-gru"] = replace(agent("a2c", "gru", **size), a2c=A2CConfig(16, 64))
    return Study(
        name="pqn",
        models=models,
        settings=TASKS,
        steps=200_000,
        evaluation=Evaluation(episodes=500, greedy=True),
        score="success",
    )


PLANS = {"defaults": defaults, "pqn": pqn}


def agent(learner: str, memory: str, **options: int) -> TrainConfig:
    """An agent with these options of its memory."""
    return TrainConfig(algorithm=learner, memory=memory, memory_options=options)


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--plan", choices=PLANS, default="defaults")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    study = replace(PLANS[given.plan](), seeds=tuple(range(given.seeds)))
    run_study(study, given.folder, workers=given.workers)


if __name__ == "__main__":
    main()
