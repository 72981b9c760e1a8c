"""`clew advise`: which memory for a task, by what rows show."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.lab.advice import Need, needs, needs_of

ABOUT = """Says which memory to take, by what has to be remembered, with the rows that it rests on,
and where nothing is known says that. With a task, what holds for it, after a look at its
observations, its actions and how long an untrained agent's episodes are; nothing is trained."""

EPISODES, LONGEST = 16, 5_000
"""Episodes that are played, and steps after which one is given up."""
RESULTS = "results"


@dataclass(frozen=True)
class AdviseCommand:
    """Options of `clew advise`."""

    env: str = ""
    """A task's name, as for clew train; without one everything that is known is shown."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task."""
    json: bool = False
    """Print JSON instead of text."""


def main(args: list[str]) -> int:
    """Prints advice."""
    command = parse(AdviseCommand, args, command="advise", about=ABOUT)
    task = look_at(command.env, command.env_options) if command.env else None
    found = needs_of(command.env) if command.env else list(needs())
    if command.json:
        print_json({"task": task, "needs": [need._asdict() for need in found]})
        return 0
    if task:
        print_table("", ["task", task["name"]], [[k, v] for k, v in task["facts"].items()])
        print()
    if found:
        for need in found:
            print(_text(need) if command.env else _line(need))
    else:
        print("Not known of this task. Which of these is yours?\n")
        for need in needs():
            print(_line(need))
        print(f"\nTo find out: {_compare(command)}")
    return 0


def look_at(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is seen, what can be done, and how long an untrained agent's episodes are.

    Raises:
        UserError: for an unknown task or option, or a fault of the environment.
    """
    import equinox as eqx  # start: JAX takes a second
    import jax  # start: JAX takes a second

    from clew.interact.episodes import EpisodeTooLong  # start: JAX takes a second
    from clew.run.build import build_agent, make_parts  # start: JAX takes a second
    from clew.run.config import TrainConfig  # start: JAX takes a second

    parts = make_parts(TrainConfig(env=name, env_options=options, memory="none", memory_options={}))
    agent = build_agent(parts.config, parts.task, jax.random.key(0))
    params, static = eqx.partition(agent, eqx.is_array)
    evaluate = parts.task.evaluator(static, greedy=False, max_steps=LONGEST)
    try:
        lengths = evaluate(params, parts.task.statistics(), EPISODES, (0, 0))["length"]
        low, high = int(np.min(lengths)), int(np.max(lengths))
        length = f"{low:,} steps" if low == high else f"{low:,} to {high:,} steps"
        length += f", of {EPISODES} by an untrained agent"
    except EpisodeTooLong:
        length = f"more than {LONGEST:,} steps by an untrained agent"
        length += " (if they have no end, train with --wrappers.time-limit STEPS)"
    facts = {
        "observation": str(parts.task.observation_space),
        "actions": str(parts.task.action_space),
        "episode": length,
    }
    return {"name": name, "facts": facts}


def _text(need: Need) -> str:
    """A need with its evidence."""
    rows = f"\n  rows:    {RESULTS}/{need.evidence}" if need.evidence else ""
    return (
        f"{need.title} ({need.asks})\n  take:    {need.advice}\n  why:     {need.why}"
        f"\n  limits:  {need.limits}{rows}\n  command: {need.command}\n"
    )


def _line(need: Need) -> str:
    """A need in two lines."""
    return f"{need.title}: {need.asks}\n  take {need.advice}"


def _compare(command: AdviseCommand) -> str:
    """The command that compares a few memories on a task."""
    options = " ".join(f"{name}={value}" for name, value in command.env_options.items())
    given = f" --env-options {options}" if options else ""
    return f"clew compare --memories gru arelit none --env {command.env}{given}"
