"""`clew envs`: the tasks."""

import inspect
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError

if TYPE_CHECKING:
    from gymnasium import spaces

    from clew.interact.hosted_task import HostedTask

OTHERS = """
Environments of other packages, for every option that names a task:
  gymnasium:ID    any registered with Gymnasium; gymnasium:PACKAGE:ID imports its package first
  module:factory  your own function or class that returns a gymnasium.Env
  pettingzoo:MODULE
                  several agents that share one policy, by the module's parallel_env
  gymnax:ID       a gymnax environment, compiled with the agent (pip install 'clew[jaxenvs]');
                  gymnax:module:factory is your own with gymnax's interface
  xminigrid:ID, craftax:ID, brax:ID, jumanji:ID
                  from these packages, compiled too (pip install 'clew[xminigrid]' and so on)"""

ABOUT = "Lists the tasks with their options, or describes one."


@dataclass(frozen=True)
class EnvsCommand:
    """Options of `clew envs`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """A task to describe; without one all are listed."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, as for clew train; required ones must be given."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Lists or describes tasks."""
    command = parse(EnvsCommand, args, command="envs", about=ABOUT)
    from clew.envs import ENVS  # start: JAX takes a second

    if command.env_options and not command.name:
        raise UserError("which task do the options belong to? name it: clew envs NAME")
    names = [command.name] if command.name else ENVS
    found = [describe(name, command.env_options) for name in names]
    if command.json:
        print_json(found)
    elif command.name:
        own = inspect.getdoc(ENVS[command.name]) if command.name in ENVS else found[0]["about"]
        print(f"{command.name}\n\n{own or ''}\n")
        if "num_actions" in found[0]:
            print(_spaces(found[0]))
        print(f"default options: {_options(found[0]) or 'none'}")
    else:
        rows = [
            [e["name"], str(e["observation_size"]), e["choices"], _options(e), e["about"]]
            for e in found
        ]
        columns = ["task", "inputs", "actions", "options (defaults)", "what it is"]
        print_table("", columns, rows, "clew envs NAME describes one")
        print(OTHERS)
    return 0


def describe(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """A task's sizes, metrics and options with their defaults, as JSON values.

    Raises:
        UserError: for an unknown task, or for unknown or missing options.
    """
    from clew.envs.wrappers import WrapperConfig  # start: JAX takes a second
    from clew.interact import make_task  # start: JAX takes a second

    task = make_task(name, options, WrapperConfig())
    return task.program(compiled=lambda _: _compiled(name, options), hosted=_hosted)


def _compiled(name: str, given: dict[str, Any]) -> dict[str, Any]:
    from clew.bridges.make import env_options, make_env  # start: JAX takes a second

    options, env = env_options(name), make_env(name, **given)
    return {
        "name": name,
        "about": env.about,
        "observation_size": env.observation_size,
        "num_actions": env.num_actions,
        "choices": _choices(env.action_space),
        "observation_space": str(env.observation_space),
        "action_space": str(env.action_space),
        "metrics": list(env.metric_names),
        "options": options,
    }


def _hosted(task: "HostedTask") -> dict[str, Any]:
    from clew.bridges.gymnasium.task import option_defaults  # start: JAX takes a second

    return {
        "name": task.name,
        "about": f"observation: {task.observation_space}\nactions: {task.action_space}\n"
        "metrics: return, length, and numbers of info that --wrappers.metrics names",
        "observation_space": str(task.observation_space),
        "action_space": str(task.action_space),
        "metrics": list(task.metric_names),
        "options": option_defaults(task.name),
    }


def _choices(space: "spaces.Space[Any]") -> str:
    """Actions in short: their number, 8 x 8 for two choices at once, or "3 numbers"."""
    from gymnasium import spaces  # start: not for `clew --help`

    match space:
        case spaces.Discrete():
            return str(int(space.n))
        case spaces.MultiDiscrete():
            return " x ".join(str(n) for n in space.nvec.ravel())
        case spaces.MultiBinary():
            return " x ".join(["2"] * math.prod(space.shape))
        case _:
            count = math.prod(space.shape or ())
            return f"{count} number" + "s" * (count != 1)


def _spaces(found: dict[str, Any]) -> str:
    """Observations, actions and metrics of a JAX task with the given options."""
    metrics = ", ".join(["return", "length", *found["metrics"]])
    return (
        f"observation: {found['observation_space']}\nactions: {found['action_space']}\n"
        f"metrics: {metrics}"
    )


def _options(found: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in found["options"].items())
