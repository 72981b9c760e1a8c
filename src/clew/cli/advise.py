"""`clew advise`: which memory for a task, by what rows show."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from clew.cli.compare import SEEDS
from clew.cli.parse import parse, value_before_parsing
from clew.cli.tables import print_json, print_table
from clew.cli.train import TrainingOptions, default_command
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.lab import advice
from clew.lab.advice import Need
from clew.run.config import TrainConfig

ABOUT = """Says which memory to take, by what has to be remembered, with the rows that it rests on,
and where nothing is known says that. With a task, given as for clew train with its options and
wrappers, what holds for it, after a look at its observations, its actions and how long an untrained
agent's episodes are; and the command that compares on it what is worth it. Nothing is trained."""

EPISODES, LONGEST = 16, 5_000
"""Episodes that are played, and steps after which one is given up."""
LIMIT = 1_000
"""Steps of an episode in commands for tasks that have no end."""
RESULTS = "results"
OWN = ("--need", "--json", "--no-json")


@dataclass(frozen=True)
class AdviseCommand(TrainingOptions):
    """Options of `clew advise`."""

    need: str = ""
    """What has to be remembered, if you know it: a word that clew advise lists."""
    json: bool = False
    """Print JSON instead of text."""


def main(args: list[str]) -> int:
    """Prints advice."""
    for option in ("--memory", "--memories"):
        if value_before_parsing(args, option) is not None:
            raise UserError(f"clew advise says which memories to take: leave out {option}")
    default = AdviseCommand(default_command(args).config)
    command = parse(AdviseCommand, args, command="advise", about=ABOUT, default=default)
    config = command.config
    named = value_before_parsing(args, "--env") is not None
    if command.need:
        found = [advice.need(command.need)]
    else:
        found = advice.needs_of(config.env, _seen_through(config)) if named else advice.needs()
    task = _Task(config, _own_words(args)) if named else None
    if command.json:
        needs = [need._asdict() | {"key": need.key} for need in found or advice.needs()]
        print_json({"task": task and task.facts(found), "needs": needs})
    elif task:
        task.show(found)
    else:
        for need in found:
            print(_text(need) if command.need else _line(need))
    return 0


class _Task:
    """A task as somebody wants to train on it, looked at once.

    Args:
        config: its settings.
        words: those that said so.
    """

    def __init__(self, config: TrainConfig, words: list[str]):
        self._config, self._words = config, words
        self._seen, self._longest = look_at(config)

    def facts(self, needs: list[Need]) -> dict[str, Any]:
        """What was seen of it, and the command of each need, or of any task."""
        commands = {need.key: self._compare(need) for need in needs} or {"any": self._any()}
        return {"name": self._config.env, "facts": self._seen, "compare": commands}

    def show(self, needs: list[Need]) -> None:
        """Prints what holds for it."""
        print_table("", ["task", self._config.env], [[k, v] for k, v in self._seen.items()])
        print()
        for need in needs:
            print(_text(need) + f"\n  yours:   {self._compare(need)}\n")
        if not needs:
            print("Nothing is known of this task. Which of these is yours?\n")
            for need in advice.needs():
                print(_line(need))
            print("\nSay so with --need WORD. Where you cannot tell, compare:")
            print(f"  {self._any()}\n")
        config = self._config
        print(
            f"`clew compare` trains each memory by {config.algorithm}, {SEEDS} seeds of "
            f"{config.steps:,} steps; see first how long it takes, with --seeds 2 --steps "
            f"{config.steps // 10}."
        )

    def _any(self) -> str:
        return self._command(advice.for_any())

    def _compare(self, need: Need) -> str:
        length = LIMIT if self._longest > LONGEST else self._longest
        return self._command(
            need.compare, [option.replace("LENGTH", str(length)) for option in need.options]
        )

    def _command(self, memories: Sequence[str], options: Sequence[str] = ()) -> str:
        """The command that compares memories on it, and none."""
        words = ["clew", "compare", "--memories", *memories, "none", *self._words]
        words += ["--memory-options", *options] if options else []
        if self._longest > LONGEST and self._config.wrappers.time_limit is None:
            words += ["--wrappers.time-limit", str(LIMIT)]
        return shlex.join(words)


def _own_words(args: list[str]) -> list[str]:
    """The words after the command, without those that clew advise alone knows."""
    kept, skip = [], False
    for word in args:
        if not skip and word.split("=")[0] not in OWN:
            kept.append(word)
        skip = word == "--need"
    return kept


def _seen_through(config: TrainConfig) -> list[str]:
    """Settings that change what the agent sees."""
    usual = WrapperConfig()
    changed = [
        f.name for f in fields(usual) if getattr(config.wrappers, f.name) != getattr(usual, f.name)
    ]
    return [f"wrappers.{n}" for n in changed] + [f"env_options.{n}" for n in config.env_options]


def look_at(config: TrainConfig) -> tuple[dict[str, str], int]:
    """What is seen, what can be done, and how long an untrained agent's episodes are.

    Returns:
        These as text, and the steps of the longest episode, more than `LONGEST` if one went on.

    Raises:
        UserError: for an unknown task or option, or a fault of the environment.
    """
    import equinox as eqx  # start: JAX takes a second
    import jax  # start: JAX takes a second

    from clew.interact.episodes import EpisodeTooLong  # start: JAX takes a second
    from clew.run.build import build_agent, make_parts  # start: JAX takes a second

    parts = make_parts(replace(config, memory="none", memory_options={}))
    agent = build_agent(parts.config, parts.task, jax.random.key(0))
    params, static = eqx.partition(agent, eqx.is_array)
    evaluate = parts.task.evaluator(static, greedy=False, max_steps=LONGEST)
    try:
        lengths = evaluate(params, parts.task.statistics(), EPISODES, (0, 0))["length"]
        low, high = int(np.min(lengths)), int(np.max(lengths))
        length = f"{low:,} steps" if low == high else f"{low:,} to {high:,} steps"
        length += f" ({EPISODES} episodes of an untrained agent)"
    except EpisodeTooLong:
        high = LONGEST + 1
        length = f"an untrained agent's have more than {LONGEST:,} steps, or no end"
        length += f": choose yours in place of {LIMIT:,} below"
    seen = {
        "observation": _described(parts.task.observation_space),
        "actions": _described(parts.task.action_space),
        "episode": length,
    }
    return seen, high


def _described(space: Space[Any]) -> str:
    """A space in a line; bounds of each number are left out."""
    return f"Box({space.shape}, {space.dtype})" if isinstance(space, Box) else str(space)


def _text(need: Need) -> str:
    """A need with its evidence."""
    rows = "".join(f"\n  rows:    {RESULTS}/{folder}/README.md" for folder in need.evidence)
    return (
        f"{need.title} ({need.asks})\n  take:    {need.advice}\n  why:     {need.why}"
        f"\n  limits:  {need.limits}{rows}\n  there:   {need.command}"
    )


def _line(need: Need) -> str:
    """A need in three lines."""
    return f"{need.key}\n  {need.title}: {need.asks}\n  take {need.advice}"
