"""`clew runs`: the runs of a folder."""

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

ABOUT = "Lists the runs of a folder with their progress and scores."


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
    rows = [
        [
            run["name"],
            run["memory"],
            run["env"],
            str(run["seeds"]),
            f"{run['steps']:,}",
            f"{run['steps'] / run['total_steps']:.0%}",
            "" if run["success"] is None else f"{run['success']:.2f}",
            "" if run["return"] is None else f"{run['return']:.2f}",
        ]
        for run in found
    ]
    columns = ["run", "memory", "task", "seeds", "steps", "complete", "success", "return"]
    print_table(f"{counted(len(found), 'run')} in {folder}", columns, rows)
    return 0


def _describe(path: Path) -> dict[str, Any] | None:
    """A run's settings and its newest row of metrics, read without JAX."""
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
        rows = json_lines.read(path / "metrics.jsonl", {"steps": int})
    except UserError as error:
        say(f"warning: {error}")
        return None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = f"{path / 'config.json'} has no settings of a run ({type(error).__name__}: {error})"
        say(f"warning: {text}")
        return None
    row = rows[-1].row if rows else {}
    scores = {name: _mean(row.get(name)) for name in ("success", "return")}
    return described | {"steps": row.get("steps", 0)} | scores


def _mean(values: Any) -> float | None:
    known = [v for v in values if isinstance(v, int | float)] if isinstance(values, list) else []
    return sum(known) / len(known) if known else None
