"""Which memories replace what they remember, and which keep it for 1,500 steps.

    python -m benchmarks.hard_tmazes results/endless-tmaze
    python -m benchmarks.hard_tmazes results/passive-tmaze --plan passive
    python -m benchmarks.hard_tmazes results/passive-tmaze-1500 --plan longest

Plans, with small agents and five seeds, then 200 fresh episodes with sampled actions:

- endless: sixteen endless T-Mazes, with 1, 3, 5 or 10 corridors of 5 or 10 steps, fixed or uniform
  up to that; A2C at its defaults, 1,000,000 steps, two layers of 64 where a memory has layers;
- passive: a passive T-Maze of 250 steps; PPO, 2,000,000 steps, one layer of 64 where a memory has
  layers; agents that solve it are tested in corridors of up to 1,500 steps;
- longest: a passive T-Maze of 1,500 steps, in which the agents are trained; PPO as above,
  10,000,000 steps. The right side at the end is worth 4 instead of 1: agents learn
  from 1,501 steps, of which it is one.

In the passive T-Maze a wrong step cannot be corrected, so no agent learns to walk at a discount of
0.99: the first wrong step costs as much as all others. Here the discount is 0.9, rewards are
multiplied by a tenth of the corridor and at most 1 (in the longest 4), and a rollout is an episode.
Gates that can start open last 2,048 steps.

Other settings were tried with a delta network (`delta_net` below) on 2026-11-26. In the corridor of
250, A2C with entropy costs of 0.01 to 0.2: it walks and always chooses the same side at the end, or
does not learn to walk, or forgets it again; three seeds of sixteen ended above 0.9. PPO with 0.02,
as here: 0.96 over four seeds. In the corridor of 1,500 itself, by PPO with 0.01 for 10,000,000
steps: one of five seeds learned it, to 1.00, another had 0.99 for a while and lost it, two guessed
and one did not turn; a GRU and no memory did not learn to walk there. On 2026-11-27, by PPO with
0.02, one seed each of delta_net (100, not among those here): 0.46 with an end worth 1, 0.96 with 4.

Run it again to resume; `--seeds 3` begins with fewer seeds. `clew report FOLDER` draws the curves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.heatmap import draw_heatmap
from benchmarks.plans import agents, run_plan

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
    "rwkv7",
    "slstm",
)
CORRIDORS, LENGTHS = (1, 3, 5, 10), (5, 10)
PASSIVE, LONGER, LONGEST = 250, (500, 750, 1000, 1250, 1500), 1500
"""The corridor for training, those of the paper for testing, and the longest of them."""


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
    return Study(
        name="endless-tmaze",
        models=agents(MEMORIES),
        settings=settings,
        steps=1_000_000,
        evaluation=Evaluation(episodes=200),
        score="success",
    )


def passive() -> Study:
    """One bit, for 250 steps and longer."""
    further = {f"corridor-{n}": {"corridor_length": n} for n in LONGER}
    setting = Setting(
        "passive_tmaze", {"corridor_length": PASSIVE}, further=further, further_needs="success"
    )
    models = {memory: _walker(memory, PASSIVE) for memory in MEMORIES}
    models["delta_net"] = _walker("gated_delta_net", PASSIVE, decay="none")
    return Study(
        name="passive-tmaze",
        models=models,
        settings={f"passive-{PASSIVE}": setting},
        steps=2_000_000,
        evaluation=Evaluation(episodes=200),
        score="success",
        resumable=True,
    )


def longest() -> Study:
    """One bit, for 1,500 steps."""
    models = {memory: _walker(memory, LONGEST, end=4.0) for memory in ("gru", "none")}
    models["delta_net"] = _walker("gated_delta_net", LONGEST, end=4.0, decay="none")
    settings = {f"passive-{LONGEST}": Setting("passive_tmaze", {"corridor_length": LONGEST})}
    study = replace(passive(), name="passive-tmaze-1500", models=models, settings=settings)
    return replace(study, steps=10_000_000)


def _walker(memory: str, corridor: int, *, end: float = 1.0, **options: Any) -> TrainConfig:
    """An agent for a passive T-Maze of this length; `options` change its memory beside the sizes.

    The right side at the end is worth `end`; a step behind the best way costs 0.1.
    """
    known = options_among(memory, SIZES | {"num_layers": 1, "head_size": 16, "chrono": 2048})
    return TrainConfig(
        memory=memory,
        memory_options=known | options,
        algorithm="ppo",
        ppo=PPOConfig(
            num_envs=16,
            rollout_length=corridor + 1,
            sequence_length=corridor + 1,
            minibatches=8,
            gamma=0.9,
            entropy_cost=0.02,
        ),
        wrappers=WrapperConfig(reward_scale=corridor / 10, reward_clip=end),
    )


PLANS = {"endless": endless, "passive": passive, "longest": longest}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean success of the seeds in every endless T-Maze, for memories that were tried in all."""
    mazes, found = list(endless().settings), {}
    for row in rows:
        found.setdefault(row["model"], {}).setdefault(row["setting"], []).append(row["mean"])
    means = {
        memory: [float(np.mean(scores[maze])) for maze in mazes]
        for memory, scores in found.items()
        if len(scores) == len(mazes)
    }
    names = [maze.replace("-by-", "\nby ").replace("-", "\n", 1) for maze in mazes]
    about = "endless T-Maze: kind, corridor length (steps), number of corridors"
    draw_heatmap(means, names, about, path)


if __name__ == "__main__":
    result = run_plan(__doc__, PLANS, draws=True)
    if result.rows and result.rows[0]["setting"] in endless().settings:
        draw(result.rows, result.path / "mazes.png")
