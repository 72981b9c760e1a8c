"""Action masks compared with penalties; checks that a masked agent takes no forbidden action.

    python -m benchmarks.action_masks learn --json results/action-masks/learn.jsonl
    python -m benchmarks.action_masks hosted --json results/action-masks/hosted.jsonl

Both play `permutation`: cards are shown one by one, and must be played in the same order. `learn`
trains the same agent with masks, and without masks for each of several penalties for a forbidden
action; the observations are the same. For each seed, a row has the training's progress, the number
of forbidden actions in the whole training, and 500 greedy episodes after it. `hosted` trains on the
task's Gymnasium form, whose masks are in `info`, and counts the forbidden actions of a million
steps.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.options import described

import clew
from clew.run.metrics import read_metrics
from clew.run.progress import Quiet

CARDS = 4
EPISODES = 500
PENALTIES = (0.0, 0.1, 0.5)


def config(folder: str, steps: int, seeds: int, **changes: Any) -> clew.TrainConfig:
    """The same agent and learner in every case."""
    learning = clew.PPOConfig(num_envs=16, rollout_length=32, learning_rate=1e-3)
    settings: dict[str, Any] = {
        "env": "permutation",
        "memory": "gru",
        "memory_options": {"hidden_size": 64},
        "algorithm": "ppo",
        "ppo": learning,
        "steps": steps,
        "seeds": seeds,
        "log_every": 50,
        "run_dir": folder,
        "name": "run",
    }
    return clew.TrainConfig(**settings | changes)


def trained(settings: clew.TrainConfig) -> list[dict[str, Any]]:
    """One row for each seed: its training, and greedy episodes after it."""
    path = clew.train(settings, progress=Quiet()).path
    rows, found = read_metrics(path), []
    played = clew.evaluate(path, episodes=EPISODES, max_steps=1000)
    for seed in range(settings.seeds):
        forbidden = sum(row["forbidden"][seed] * row["episodes"][seed] for row in rows)
        found.append(
            {
                "seed": seed,
                "steps": rows[-1]["steps"],
                "episodes": sum(row["episodes"][seed] for row in rows),
                "forbidden_in_training": round(forbidden),
                "correct_by_steps": [
                    [row["steps"], round(row["correct"][seed], 4)] for row in rows
                ],
                **{name: values[seed] for name, values in played.per_seed.items()},
            }
        )
    return found


def learn(steps: int, seeds: int) -> list[dict[str, Any]]:
    """Trains with masks, and without masks for every penalty."""
    variants: list[dict[str, Any]] = [{"masks": True}]
    variants += [{"masks": False, "penalty": penalty} for penalty in PENALTIES]
    rows: list[dict[str, Any]] = []
    for variant in variants:
        options = {"num_cards": CARDS} | variant
        with tempfile.TemporaryDirectory() as folder:
            settings = config(folder, steps, seeds, env_options=options)
            rows += [{"variant": variant} | row for row in trained(settings)]
    return rows


def hosted(steps: int) -> list[dict[str, Any]]:
    """Trains with the masks of `info`; a forbidden action earns -1e6, visible in any mean."""
    options = {"num_cards": CARDS, "penalty": 1e6}
    with tempfile.TemporaryDirectory() as folder:
        settings = config(
            folder,
            steps,
            1,
            env="gymnasium:clew/Permutation-v0",
            env_options=options,
            wrappers=clew.WrapperConfig(action_mask="info"),
        )
        rows = read_metrics(clew.train(settings, progress=Quiet()).path)
    returns = [row["return"][0] for row in rows]
    episodes = sum(row["episodes"][0] for row in rows)
    return [{"steps": rows[-1]["steps"], "episodes": episodes, "least_mean_return": min(returns)}]


def main() -> None:
    """Writes one row for each seed, or a single row."""
    parser = described(__doc__)
    parser.add_argument("what", choices=("learn", "hosted"))
    parser.add_argument("--steps", type=int, default=0, help="per seed; 300,000 or 1,000,000")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.what == "learn":
        rows = learn(arguments.steps or 300_000, arguments.seeds)
    else:
        rows = hosted(arguments.steps or 1_000_000)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
