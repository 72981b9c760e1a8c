"""`clew evaluate`: scores a run's agents on fresh episodes."""

from dataclasses import dataclass, field
from typing import Any, Literal

from clew.cli.on_run import RunOptions, parse_run
from clew.cli.tables import log, print_json, print_table
from clew.errors import counted

ABOUT = """Plays fresh episodes with the agents of a run, from one of its checkpoints, with
greedy actions and with actions sampled from the policy, as in training."""


@dataclass(frozen=True)
class EvaluateCommand(RunOptions):
    """Options of `clew evaluate`."""

    episodes: int = 200
    """Episodes for every seed."""
    max_steps: int = 100_000
    """Most steps of an episode; a longer one ends the evaluation with an error."""
    env: str = ""
    """Another task than the run's, with the same observations and actions; its options are
    --env-options. The run's wrappers apply."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task that differ from the run's: to test in a longer corridor, for example."""
    actions: Literal["both", "greedy", "sampled"] = "both"
    """How actions are chosen."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Evaluates, and prints every metric with its interval."""
    command = parse_run(EvaluateCommand, args, command="evaluate", about=ABOUT)
    from clew.run.evaluate import evaluate  # start: JAX takes a second

    ways = ("greedy", "sampled") if command.actions == "both" else (command.actions,)
    results = {
        way: evaluate(
            command.run,
            episodes=command.episodes,
            greedy=way == "greedy",
            seed=command.seed,
            max_steps=command.max_steps,
            checkpoint=command.checkpoint,
            env=command.env,
            env_options=command.env_options,
            trust=command.trust,
            log=log,
        )
        for way in ways
    }
    if command.json:
        print_json({"run": command.run, **results})
        return 0
    first = next(iter(results.values()))
    seeds = first.seeds
    rows = [[n, *(result.texts[n] for result in results.values())] for n in first.texts]
    print_table(
        f"{command.run}: {counted(seeds, 'agent')} trained for {first.steps:,} steps"
        f"{' at most' if seeds > 1 and command.checkpoint.startswith('best') else ''}, "
        f"{counted(command.episodes, 'episode')}{' each' if seeds > 1 else ''}"
        f"{_elsewhere(command)}",
        ["", *results],
        rows,
        first.note,
    )
    return 0


def _elsewhere(command: EvaluateCommand) -> str:
    """The task that was played, if it is not the run's."""
    options = [f"{name}={value}" for name, value in command.env_options.items()]
    found = " ".join([command.env, *options]).strip()
    return f", with {found}" if found else ""
