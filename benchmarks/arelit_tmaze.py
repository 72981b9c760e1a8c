"""Why does AReLiT guess in the T-Maze: its size, its rates, its gates, or its approximation?

    python -m benchmarks.arelit_tmaze results/arelit-tmaze

The agents differ from each other in one of these; everything else is as published (8 environments,
rollouts of 256 steps, gamma 0.99, lambda 0.95, time-outs end an episode).

Trainings run one after another on one core, in the order of `STAGES`; run it again to resume. A
million steps take one to two minutes of a core with the small agents, and four to ten with agents
of the thesis's size. `clew report results/arelit-tmaze` draws the curves.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.options import described
from benchmarks.plans import ending_as_commands

from clew import TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study
from clew.lab.studies.tmaze.grid import PRESETS

CODED = PRESETS["pramanik/arelit"]
SIZES = {
    "small": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "head_size": 32},
    "thesis": {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64},
}
"""The library's default except its width, which is 128; Table A.2."""
MEMORIES = {
    "half-wave": {"frequencies": "half_wave", "r": 3},
    "chrono": {"frequencies": "half_wave", "r": 3, "chrono": 256},
    "wide": {"frequencies": "half_wave", "r": 15},
    "full-wave": {"frequencies": "full_wave", "r": 3},
    "average": {"frequencies": "printed", "r": 1},
    "chrono-average": {"frequencies": "printed", "r": 1, "chrono": 256},
    "printed": {"frequencies": "printed", "r": 7},
    "chrono-printed": {"frequencies": "printed", "r": 7, "chrono": 256},
    "coded": {n: CODED.memory_options[n] for n in ("frequencies", "r", "scale", "tick")},
}
"""The library's form without `chrono`, its default by now; with it; with more vectors; cosine and
sine; the text's at r = 1, where keys and queries cancel, and at r = 7, both also with gates that
start open; as coded."""
OTHERS = {
    "relit": ("relit", SIZES["small"] | {"eta": 4}),
    "chrono-relit": ("relit", SIZES["small"] | {"eta": 4, "chrono": 256}),
    "gru": ("gru", {"hidden_size": 64}),
    "gtrxl-256": ("gtrxl", SIZES["small"] | {"window": 256}),
}
"""The memory that AReLiT approximates, also with gates that start open, and two memories that solve
the T-Maze at the thesis's size."""
RATES = {
    "slow": {"learning_rate": 1e-4, "entropy_cost": 1e-3},
    "fast": {"learning_rate": 1e-3, "entropy_cost": 1e-2},
    "middle": {"learning_rate": 5e-4, "entropy_cost": 1e-2},
    "slow-entropy": {"learning_rate": 1e-4, "entropy_cost": 1e-2},
}
"""The authors' rates; the library's default; the rates of the authors' GRU and GTrXL-128."""


def agent(name: str, **changes: Any) -> TrainConfig:
    """The agent "SIZE MEMORY RATES", with some settings of A2C changed."""
    size, memory, rates = name.split()
    options = SIZES[size] | {"eta": 4, "chrono": 0} | MEMORIES[memory]
    a2c = replace(CODED.a2c, **RATES[rates], **changes)
    return replace(CODED, memory_options=options | {"init_per": "product"}, a2c=a2c, preset="")


def other(name: str) -> TrainConfig:
    """An agent with another memory, small and with fast rates."""
    memory, options = OTHERS[name]
    return replace(agent("small half-wave fast"), memory=memory, memory_options=options)


def by_head(config: TrainConfig) -> TrainConfig:
    """An agent whose initial weights are one orthogonal matrix for each role of each head."""
    return replace(config, memory_options=config.memory_options | {"init_per": "head"})


AGENTS = [
    *(f"small {memory} {rates}" for memory in MEMORIES for rates in RATES),
    *(f"thesis {memory} {rates}" for memory in MEMORIES for rates in RATES),
]
STUDY = Study(
    name="arelit-tmaze",
    models={
        **{name.replace(" ", "-"): agent(name) for name in AGENTS},
        **{f"small-{name}-fast": other(name) for name in OTHERS},
        "small-half-wave-slow-by-head": by_head(agent("small half-wave slow")),
        "thesis-half-wave-slow-by-head": by_head(agent("thesis half-wave slow")),
        "thesis-half-wave-slow-512": agent("thesis half-wave slow", rollout_length=512),
        "thesis-half-wave-slow-discount": agent("thesis half-wave slow", gamma=0.999),
    },
    settings={f"corridor-{n}": Setting("tmaze", {"corridor_length": n}) for n in (120, 160, 200)},
    steps=2_000_000,
    evaluation=Evaluation(episodes=192),
    score="success",
    curve_bins=50,
    resumable=True,
)


class Stage(NamedTuple):
    """Trainings that differ in their seeds; `steps` may exceed those of an earlier stage."""

    model: str
    corridor: int
    seeds: tuple[int, ...]
    steps: int


_LIKE = ("half-wave", "average", "relit", "gru")
STAGES = (
    Stage("small-half-wave-fast", 120, (0,), 2_000_000),
    Stage("small-average-fast", 120, (0,), 2_000_000),
    Stage("small-half-wave-slow", 120, (0,), 2_000_000),
    Stage("small-half-wave-fast", 120, (1,), 5_000_000),
    *(Stage(f"small-{name}-fast", 160, (0,), 5_000_000) for name in (*_LIKE, "chrono")),
    *(Stage(f"small-{name}-fast", 160, (1,), 5_000_000) for name in _LIKE),
    *(Stage(f"small-{name}-fast", 160, (2,), 5_000_000) for name in _LIKE),
    *(Stage(f"small-{name}-fast", 160, (0,), 5_000_000) for name in ("full-wave", "wide")),
    *(Stage(f"small-{name}-fast", 160, (3, 4), 5_000_000) for name in _LIKE),
    Stage("small-chrono-fast", 160, (1, 2, 3, 4), 5_000_000),
    Stage("thesis-half-wave-fast", 120, (0,), 2_000_000),
    *(
        Stage(f"small-{name}-fast", 160, (seed,), 5_000_000)
        for seed in range(5)
        for name in ("coded", "gtrxl-256", "printed")
    ),
    *(
        Stage(f"small-chrono-{name}-fast", 160, (0, 1, 2, 3, 4), 5_000_000)
        for name in ("average", "printed", "relit")
    ),
    Stage("small-chrono-fast", 200, (0, 1, 2, 3, 4), 5_000_000),
    Stage("small-half-wave-slow", 120, (0, 1, 2, 3, 4), 10_000_000),
    Stage("thesis-half-wave-fast", 160, (0, 1, 2, 3, 4), 10_000_000),
    Stage("thesis-half-wave-slow-512", 160, (0, 1, 2), 10_000_000),
    Stage("thesis-half-wave-slow-discount", 160, (0, 1, 2), 10_000_000),
)
"""The most informative for their cost come first."""


@ending_as_commands()
def main() -> None:
    """Runs the missing trainings of every stage."""
    parser = described(__doc__)
    parser.add_argument("output", nargs="?", default="runs/arelit-tmaze", help="the study's folder")
    folder = parser.parse_args().output
    for stage in STAGES:
        part = STUDY.only([stage.model], [f"corridor-{stage.corridor}"])
        run_study(replace(part, seeds=stage.seeds, steps=stage.steps), folder, workers=1)


if __name__ == "__main__":
    main()
