"""The demonstration: an agent with memory and one without on a short T-Maze, in one picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from clew.agents.learners.a2c import A2CConfig
from clew.lab.comparison import train_once
from clew.report.curves import Runs, draw_curves
from clew.report.figures import COLOURS, new_figure, save
from clew.run.config import TrainConfig
from clew.run.evaluate import evaluate
from clew.run.metrics import read_metrics
from clew.run.progress import Progress
from clew.stats import Interval, wilson_interval

CORRIDOR = 20
LABELS = {"arelit": "AReLiT (a memory)", "none": "no memory"}
PICTURE = "demo.png"


def settings(run_dir: str | Path = "runs/demo", *, seeds: int = 2) -> dict[str, TrainConfig]:
    """The two runs of the demonstration, by memory; they differ only in the memory."""
    sizes = {"hidden_size": 64, "num_layers": 2}
    options: dict[str, dict[str, Any]] = {
        "arelit": sizes | {"num_heads": 2, "head_size": 32},
        "none": sizes,
    }
    return {
        memory: TrainConfig(
            env="tmaze",
            env_options={"corridor_length": CORRIDOR},
            memory=memory,
            memory_options=options[memory],
            a2c=A2CConfig(num_envs=8, rollout_length=128, learning_rate=1e-3, entropy_cost=0.01),
            steps=400_000,
            seeds=seeds,
            name=memory,
            run_dir=str(run_dir),
        )
        for memory in LABELS
    }


def measure(path: Path, episodes: int) -> Interval:
    """The fraction of new episodes that a run's agents solve, pooled.

    The agents act as in training, sampling from their policies. The interval is Wilson's over the
    episodes: it is for these agents' rate, not for other seeds.
    """
    result = evaluate(path, episodes=episodes, greedy=False, seed=1)
    rates = result.per_seed["success"]
    solved = round(sum(rates) * episodes)
    return wilson_interval(solved, episodes * len(rates))


def run(
    run_dir: str | Path, *, seeds: int, episodes: int, progress: Callable[[str], Progress]
) -> tuple[dict[str, Interval], Path]:
    """Trains both agents and draws the picture.

    Returns:
        The fraction of fresh episodes solved, for each memory; and the picture.
    """
    paths = {
        memory: train_once(config, progress(LABELS[memory]))
        for memory, config in settings(run_dir, seeds=seeds).items()
    }
    success = {memory: measure(path, episodes) for memory, path in paths.items()}
    rows = {LABELS[memory]: read_metrics(path) for memory, path in paths.items()}
    return success, save(draw(rows), Path(run_dir) / PICTURE)


def draw(rows: Runs) -> Figure:
    """The picture: the maze above, the learning curves of both agents below."""
    figure = new_figure(8.0, 6.2)
    maze, curves = figure.subplots(2, 1, height_ratios=[1, 2.1])
    draw_maze(maze)
    draw_curves(curves, rows, "success")
    guess = dict(color="0.4", linestyle=(0, (4, 3)), linewidth=1.2, zorder=0)
    curves.axhline(0.5, label="guessing", **guess)
    curves.set_ylabel("correct turns", fontsize=11)
    curves.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    curves.legend(loc="lower right", frameon=False, fontsize=11, bbox_to_anchor=(1.0, 0.04))
    seeds = len(next(iter(rows.values()))[-1]["episodes"])
    curves.set_title(
        f"thick: mean of {seeds} agents; thin: each agent; 0%: the junction is never reached",
        loc="left",
        fontsize=9,
        color="0.4",
    )
    figure.suptitle("Only an agent with a memory turns the way the cue showed", fontsize=14)
    return figure


def draw_maze(axes: Axes) -> None:
    """Draws the T-Maze: a corridor with the cue at its start, and two arms at its end."""
    blue, orange = COLOURS[0], COLOURS[1]
    end = CORRIDOR - 1
    for x, y in [(i, 0) for i in range(CORRIDOR)] + [(end, 1), (end, -1)]:
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor="0.96", edgecolor="0.75", linewidth=0.8))
    axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=blue, edgecolor="none"))
    axes.text(0.5, 0.46, "↑", color="white", ha="center", va="center", fontsize=13, weight="bold")
    axes.text(0, 1.35, "the cue, up or down, is shown only here", color=blue, fontsize=10.5)
    walk = FancyArrowPatch((1.4, 0.5), (end - 0.3, 0.5), arrowstyle="->", mutation_scale=14)
    walk.set(color="0.45", linewidth=1.3)
    axes.add_patch(walk)
    axes.text((CORRIDOR + 1) / 2, -0.85, f"a corridor of {end} steps", color="0.35", ha="center")
    axes.text(end + 0.5, 0.46, "?", ha="center", va="center", fontsize=13, weight="bold")
    axes.text(end + 1.3, 1.35, "correct: +4", va="center", color=blue, fontsize=10.5)
    axes.text(end + 1.3, -0.55, "wrong: \N{MINUS SIGN}1", va="center", color=orange, fontsize=10.5)
    axes.set_xlim(-0.2, CORRIDOR + 5)
    axes.set_ylim(-1.25, 2.35)
    axes.set_aspect("equal")
    axes.set_axis_off()
