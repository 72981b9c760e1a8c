"""Does each memory learn a T-Maze?

    python -m benchmarks.modern_memories results/modern-memories
    python -m benchmarks.modern_memories results/modern-memories-160 --plan long

Plans, with small agents of equal width, five seeds:

- short: a corridor of 20, 500,000 steps of A2C with the library's default rates; every memory, and
  a second time those whose gates can start open;
- long: a corridor of 160, 5,000,000 steps. Everything but the memory is as in the study of AReLiT,
  `benchmarks/arelit_tmaze.py`, whose rows of GRU, AReLiT and the average appear beside these.

Run it again to resume; `clew report FOLDER` draws the curves and the table. The long plan also
draws every seed, beside those of the study of AReLiT.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks.arelit_tmaze import SIZES, agent
from benchmarks.plans import agents, run_plan
from matplotlib.figure import Figure

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, read_results
from clew.memory import MEMORIES, options_of
from clew.report.figures import COLOURS, new_figure, save

NAMES = [name for name in MEMORIES if name != "hybrid"]
LONGEST = 256
"""How many steps the longest memories last at the start, where gates can start open."""
SHORT, LONG = 20, 160
"""Corridors."""
LONG_WIDTHS = SIZES["small"] | {"window": 256}


def short() -> Study:
    """A corridor of 20."""
    like = TrainConfig(a2c=A2CConfig(num_envs=16, rollout_length=64))
    models = agents(NAMES, like=like)
    return Study(
        name="modern-memories",
        models=models | _opened(models),
        settings=corridor(SHORT),
        steps=500_000,
        evaluation=Evaluation(episodes=500),
        score="success",
    )


def long() -> Study:
    """One of 160."""
    models = agents(NAMES, LONG_WIDTHS, agent("small half-wave fast"))
    study = replace(short(), name="modern-memories-160", settings=corridor(LONG), steps=5_000_000)
    return replace(study, models=models | _opened(models))


def _opened(models: dict[str, TrainConfig]) -> dict[str, TrainConfig]:
    """The agents whose gates can start open, with gates that do."""
    return {
        f"{name}-open": replace(config, memory_options=config.memory_options | {"chrono": LONGEST})
        for name, config in models.items()
        if "chrono" in options_of(name)
    }


def corridor(length: int) -> dict[str, Setting]:
    """A T-Maze of this length."""
    return {f"tmaze-{length}": Setting("tmaze", {"corridor_length": length})}


PLANS = {"short": short, "long": long}
OPEN = "-open"
OTHERS = {
    "AReLiT": ("small-half-wave-fast", "small-chrono-fast"),
    "AReLiT, r = 7 as printed": ("small-printed-fast", "small-chrono-printed-fast"),
    "average (AReLiT, r = 1)": ("small-average-fast", "small-chrono-average-fast"),
    "ReLiT": ("small-relit-fast", "small-chrono-relit-fast"),
    "GRU": ("small-gru-fast",),
    "GTrXL-256": ("small-gtrxl-256-fast",),
}
"""Agents of the study of AReLiT: with the thesis's gates, and with gates that start open."""


def seeds(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> Figure:
    """The success of every seed in a long corridor, and of others from the study of AReLiT."""
    scores: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        usual, opened = scores.setdefault(row["model"].removesuffix(OPEN), ([], []))
        (opened if row["model"].endswith(OPEN) else usual).append(row["mean"])
    for label, names in OTHERS.items():
        found = [
            [r["mean"] for r in others if (r["model"], r["setting"]) == (name, "corridor-160")]
            for name in (*names, "")[:2]
        ]
        scores[label] = (found[0], found[1])
    return of_seeds(scores)


def of_seeds(scores: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """The success of every seed, one line for each memory, the best first.

    There are scores with the usual initial gates, and with gates that start open.
    """
    ordered = sorted(scores, key=lambda name: max(map(_mean, scores[name])))
    figure = new_figure(8, 0.33 * len(ordered) + 1.2)
    axes = figure.subplots()
    looks = (
        ("gates not initialised open", COLOURS[1], -0.36),
        ("gates initialised open", COLOURS[0], 0.04),
    )
    for place, (label, colour, shift) in enumerate(looks):
        points = [
            (x, y + shift + 0.4 * seed / max(5, len(scores[name][place])))
            for y, name in enumerate(ordered)
            for seed, x in enumerate(scores[name][place])
        ]
        axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=3.5, label=label)
    axes.axvline(0.5, color="0.7", linewidth=0.8)
    axes.set_yticks(range(len(ordered)), ordered)
    axes.hlines(np.arange(len(ordered)) - 0.5, 0, 1, color="0.9", linewidth=0.8)
    axes.set_ylim(-0.6, len(ordered) - 0.4)
    axes.set_xlabel("success rate of each seed; grey line: guessing")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("-inf")


if __name__ == "__main__":
    folder = run_plan(__doc__, PLANS, sizes={"long": LONG_WIDTHS}, draws=True).path
    rows, beside = read_results(folder), folder.parent / "arelit-tmaze"
    if rows and rows[0]["setting"] in corridor(LONG) and beside.exists():
        save(seeds(rows, read_results(beside)), folder / "seeds.png")
