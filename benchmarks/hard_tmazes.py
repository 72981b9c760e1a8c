"""Which memories replace what they remember, and which keep it for 1,500 steps.

    python -m benchmarks.hard_tmazes results/endless-tmaze
    python -m benchmarks.hard_tmazes results/passive-tmaze --plan passive

Plans, each with small agents of equal width, two layers of 64 where a memory has layers, five
seeds, then 200 fresh episodes with sampled actions:

- endless: sixteen endless T-Mazes, with 1, 3, 5 or 10 corridors of 5 or 10 steps, fixed or uniform
  up to that; A2C at its defaults, 1,000,000 steps;
- passive: passive T-Mazes of 50 to 1,500 steps; PPO at its defaults, 10,000,000 steps. A2C at its
  own did not begin to walk in a corridor of 100, in a million steps of two other seeds.

Single seeds that were tried beside the plan, of 2026-11-26: nobody walks in 250 or 1,500 steps at a
discount of 0.99, since the first wrong step costs as much as all others. At 0.9, with rewards times
a tenth of the corridor and rollouts as long as an episode, all walk within a million steps. With
gates that begin open a minGRU then does not turn, as its output hardly shows the junction at once;
AReLiT turns at 250, by guessing, and not yet at 1,500 after ten million.

It goes on where it stopped; `--seeds 3` begins with fewer. `clew report FOLDER` draws the curves.
"""

from benchmarks.plans import run_plan

from clew import TrainConfig
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym.grid import SIZES
from clew.memory import options_among

MEMORIES = (
    "gru",
    "lstm",
    "min_gru",
    "gla",
    "mamba2",
    "gated_delta_net",
    "ffm",
    "shm",
    "arelit",
    "gtrxl",
    "none",
)
CORRIDORS, LENGTHS = (1, 3, 5, 10), (5, 10)
PUBLISHED = (50, 100, 250, 500, 750, 1000, 1250, 1500)
"""Corridors of the passive T-Maze."""


def endless() -> Study:
    """Sixteen endless T-Mazes."""
    settings = {
        f"{kind}-{length}-by-{count}": Setting(
            "endless_tmaze",
            {"corridor_length": length, "num_corridors": count, "lengths": kind},
        )
        for kind in ("fixed", "uniform")
        for length in LENGTHS
        for count in CORRIDORS
    }
    return _study("endless-tmaze", settings, 1_000_000, "a2c")


def passive() -> Study:
    """One bit, for longer and longer."""
    settings = {
        f"passive-{length}": Setting("passive_tmaze", {"corridor_length": length})
        for length in PUBLISHED
    }
    return _study("passive-tmaze", settings, 10_000_000, "ppo")


def _study(name: str, settings: dict[str, Setting], steps: int, learner: str) -> Study:
    def agent(memory: str) -> TrainConfig:
        options = options_among(memory, SIZES)
        return TrainConfig(memory=memory, memory_options=options, algorithm=learner)

    return Study(
        name=name,
        models={memory: agent(memory) for memory in MEMORIES},
        settings=settings,
        steps=steps,
        evaluation=Evaluation(episodes=200),
        score="success",
    )


PLANS = {"endless": endless, "passive": passive}


if __name__ == "__main__":
    run_plan(__doc__, PLANS)
