"""Which memories replace what they remember, and which keep it for 1,500 steps.

    python -m benchmarks.hard_tmazes results/endless-tmaze
    python -m benchmarks.hard_tmazes results/passive-tmaze --plan passive

Plans, with small agents, five seeds, then 200 fresh episodes with sampled actions:

- endless: sixteen endless T-Mazes, with 1, 3, 5 or 10 corridors of 5 or 10 steps, fixed or uniform
  up to that; A2C at its defaults, 1,000,000 steps, two layers of 64 where a memory has layers;
- passive: a passive T-Maze of 1,500 steps; PPO, 10,000,000 steps, one layer of 64; those that
  solve it play corridors of up to 3,000 as well.

In the passive one a wrong step cannot be made good, so that nobody learns to walk at a discount of
0.99: the first wrong step costs as much as all others. Here it is 0.9, rewards are times a tenth
of the corridor and at most 1, and a rollout is an episode. Memories whose gates can begin open do.

It goes on where it stopped; `--seeds 3` begins with fewer. `clew report FOLDER` draws the curves.
"""

from typing import Any

from benchmarks.plans import run_plan

from clew import PPOConfig, TrainConfig, WrapperConfig
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
LONG = 1500
"""The longest corridor of the passive T-Maze that is published."""
LONGER = (500, 1000, 2000, 3000)
"""Corridors that who was trained in the long one is tried in."""


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
    models = {
        memory: TrainConfig(memory=memory, memory_options=options_among(memory, SIZES))
        for memory in MEMORIES
    }
    return Study(
        name="endless-tmaze",
        models=models,
        settings=settings,
        steps=1_000_000,
        evaluation=Evaluation(episodes=200),
        score="success",
    )


def passive() -> Study:
    """One bit, for 1,500 steps."""
    further = {f"corridor-{n}": {"corridor_length": n} for n in LONGER}
    setting = Setting(
        "passive_tmaze", {"corridor_length": LONG}, further=further, further_needs="success"
    )
    steps = LONG + 1
    ppo = PPOConfig(
        num_envs=16, rollout_length=steps, sequence_length=steps, minibatches=8, gamma=0.9
    )

    def agent(memory: str, **options: Any) -> TrainConfig:
        known = options_among(memory, SIZES | {"num_layers": 1, "head_size": 16, "chrono": 2048})
        return TrainConfig(
            memory=memory,
            memory_options=known | options,
            algorithm="ppo",
            ppo=ppo,
            wrappers=WrapperConfig(reward_scale=LONG / 10, reward_clip=1.0),
        )

    models = {memory: agent(memory) for memory in MEMORIES}
    models["delta_net"] = agent("gated_delta_net", decay="none")
    return Study(
        name="passive-tmaze",
        models=models,
        settings={f"passive-{LONG}": setting},
        steps=10_000_000,
        evaluation=Evaluation(episodes=200),
        score="success",
        resumable=True,
    )


PLANS = {"endless": endless, "passive": passive}


if __name__ == "__main__":
    run_plan(__doc__, PLANS)
