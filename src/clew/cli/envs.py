"""`clew envs`: the tasks."""

import inspect
from dataclasses import dataclass

import tyro

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table

ABOUT = "Lists the tasks with their options, or describes one."


@dataclass(frozen=True)
class EnvsCommand:
    """What `clew envs` may be told."""

    name: tyro.conf.Positional[str] = ""
    """Describe this task."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Lists or describes tasks."""
    command = parse(EnvsCommand, args, command="envs", about=ABOUT)
    from clew.envs import ENVS, env_options, make_env

    names = [command.name] if command.name else list(ENVS)
    found = []
    for name in names:
        options = env_options(name)
        env = make_env(name)
        found.append(
            {
                "name": name,
                "about": (inspect.getdoc(ENVS[name]) or "").splitlines()[0],
                "observation_size": env.observation_size,
                "num_actions": env.num_actions,
                "metrics": list(env.metric_names),
                "options": options,
            }
        )
    if command.json:
        print_json(found)
    elif command.name:
        print(f"{command.name}\n\n{inspect.getdoc(ENVS[command.name])}\n")
        print("default options: " + " ".join(f"{k}={v}" for k, v in found[0]["options"].items()))
    else:
        rows = [
            [
                env["name"],
                str(env["observation_size"]),
                str(env["num_actions"]),
                " ".join(f"{k}={v}" for k, v in env["options"].items()),
                env["about"],
            ]
            for env in found
        ]
        print_table(
            "",
            ["task", "inputs", "actions", "options (defaults)", "what it is"],
            rows,
            "clew envs NAME tells all of one",
        )
    return 0
