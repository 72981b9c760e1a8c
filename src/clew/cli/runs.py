"""`clew runs`: the runs of a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError, counted
from clew.files import read_json
from clew.names import is_reference
from clew.output import say
from clew.run import json_lines
from clew.run.json_lines import Row
from clew.run.names import EVALUATED, list_checkpoints, update_of

ABOUT = "Lists the runs of a folder with their progress and scores."
SCORES = ("success", "return")
"""The listed metrics, of the newest row of metrics and of the newest evaluation."""


@dataclass(frozen=True)
class RunsCommand:
    """Options of `clew runs`."""

    run_dir: str = "runs"
    """Folder that holds the runs."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Lists the runs."""
    command = parse(RunsCommand, args, command="runs", about=ABOUT)
    folder = Path(command.run_dir)
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}; clew train makes it, and --run-dir names another"
        )
    paths = [path for path in sorted(folder.iterdir()) if (path / "config.json").exists()]
    found = [run for run in map(_describe, paths) if run is not None]
    if command.json:
        print_json(found)
        return 0
    columns = ["run", "memory", "task", "seeds", "steps", "complete", *SCORES]
    evaluations = [run["evaluation"] or {} for run in found]
    shown = [name for name in SCORES if any(e.get(name) is not None for e in evaluations)]
    rows = [
        [
            *(run["name"], run["memory"], run["env"], str(run["seeds"]), f"{run['steps']:,}"),
            f"{100 * run['steps'] // run['total_steps']}%",
            *(_shown(run[name]) for name in SCORES),
            *(_shown(evaluation.get(name)) for name in shown),
        ]
        for run, evaluation in zip(found, evaluations, strict=True)
    ]
    columns += [f"evaluated {name}" for name in shown]
    print_table(f"{counted(len(found), 'run')} in {folder}", columns, rows)
    return 0


def _describe(path: Path) -> dict[str, Any] | None:
    """A run's settings, its newest row of metrics and its newest checkpoint's name, read without
    JAX."""
    try:
        config = read_json(path / "config.json")["config"]
        # The first runs did not name their algorithm, since there was only one.
        algorithm = config.get("algorithm", "a2c")
        learning = config["learner_options" if is_reference(algorithm) else algorithm]
        per_update = learning["num_envs"] * learning["rollout_length"]
        described = {
            "name": path.name,
            "memory": str(config["memory"]),
            "env": str(config["env"]),
            "seeds": int(config["seeds"]),
            "total_steps": max(1, -(-config["steps"] // per_update)) * per_update,
        }
        rows = [line.row for line in json_lines.read(path / "metrics.jsonl", {"steps": int})]
    except UserError as error:
        say(f"warning: {error}")
        return None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = f"{path / 'config.json'} has no settings of a run ({type(error).__name__}: {error})"
        say(f"warning: {text}")
        return None
    newest = rows[-1] if rows else {"steps": 0}
    saved = [update_of(kept) or 0 for kept in list_checkpoints(path / "checkpoints")[-1:]]
    steps = max([newest["steps"], *(update * per_update for update in saved)])
    return described | {"steps": steps, **_scores(newest), "evaluation": _evaluation(rows)}


def _evaluation(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The newest evaluation while training: the steps before it, and its scores."""
    for row in reversed(rows):
        if any(name.startswith(EVALUATED) for name in row):
            return {"steps": row["steps"], **_scores(row, EVALUATED)}
    return None


def _scores(row: Row, prefix: str = "") -> dict[str, float | None]:
    return {name: _mean(row.get(prefix + name)) for name in SCORES}


def _mean(values: Any) -> float | None:
    known = [v for v in values if isinstance(v, int | float)] if isinstance(values, list) else []
    return sum(known) / len(known) if known else None


def _shown(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"
