"""`clew runs`: the runs of a folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError
from clew.run import json_lines

ABOUT = "Lists the runs of a folder, how far they are and what they reached."


@dataclass(frozen=True)
class RunsCommand:
    """Options of `clew runs`."""

    run_dir: str = "runs"
    """Folder that holds the folders of runs."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Lists the runs."""
    command = parse(RunsCommand, args, command="runs", about=ABOUT)
    folder = Path(command.run_dir)
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}; clew train makes it, --run-dir names another"
        )
    found = [
        _describe(path) for path in sorted(folder.iterdir()) if (path / "config.json").exists()
    ]
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
    columns = ["run", "memory", "task", "seeds", "steps", "of all", "success", "return"]
    print_table(f"{len(found)} runs in {folder}", columns, rows)
    return 0


def _describe(path: Path) -> dict[str, Any]:
    """A run by its settings and its newest row of metrics; JAX is not needed for that."""
    config = json.loads((path / "config.json").read_text())["config"]
    rows = json_lines.read(path / "metrics.jsonl")
    row = rows[-1].row if rows else {}
    # The first runs had one algorithm and did not name it.
    learning = config[config.get("algorithm", "a2c")]
    per_update = learning["num_envs"] * learning["rollout_length"]
    return {
        "name": path.name,
        "memory": config["memory"],
        "env": config["env"],
        "seeds": config["seeds"],
        "steps": row.get("steps", 0),
        "total_steps": -(-config["steps"] // per_update) * per_update,
        "success": _mean(row.get("success")),
        "return": _mean(row.get("return")),
    }


def _mean(values: list[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return sum(known) / len(known) if known else None
