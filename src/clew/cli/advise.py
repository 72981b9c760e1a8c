"""`clew advise`: recommends memories for a task, from recorded results."""

import shlex
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.spaces.utils import flatdim

from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import Agent
from clew.bridges.gymnasium.task import option_defaults
from clew.bridges.make import env_options
from clew.cli.compare import SEEDS
from clew.cli.models import show_costs
from clew.cli.parse import parse, value_before_parsing
from clew.cli.tables import log, print_json, print_table
from clew.cli.train import default_command
from clew.envs.wrappers import INFO, WrapperConfig
from clew.errors import UserError
from clew.interact import make_task
from clew.interact.episodes import EpisodeTooLong
from clew.interact.task import Task
from clew.lab import advice
from clew.lab.advice import Need, Tried
from clew.run.build import build_agent, make_parts
from clew.run.config import TrainConfig
from clew.run.folder import slug

ABOUT = """Recommends memories by what has to be remembered, with the results behind the advice;
where nothing is known it says so. For a task, given as for clew train, it also shows what an agent
observes, how long an untrained agent's episodes are, and a clew compare command. Nothing is
trained."""

EPISODES, LONGEST, FIRST, PATIENCE = 16, 5_000, 200, 300.0
"""Number of episodes to play, most steps of an episode, and for tasks that are stepped in Python:
a first limit of steps, and the most seconds that the longer limit may be expected to take."""
READ = {"a2c": 256, "ppo": 512}
"""Most steps that gradients reach back in commands for needs with long delays."""
BEST = 5
"""Number of memories whose scores are printed, from the highest; the page on memories has all."""

LIMIT = 1_000
"""Time limit in commands for tasks whose episodes do not end."""
OWN = ("--need", "--json", "--no-json")
_MASK = 'in info["action_mask"], which --wrappers.action-mask info takes'


@dataclass(frozen=True)
class AdviseCommand:
    """Options of `clew advise`."""

    env: str = ""
    """A task's name, as for clew train; without one all advice is listed."""
    need: tuple[str, ...] = ()
    """What has to be remembered, if you know it; one or more of: cue, recent, pairs, hidden,
    trials, replaced, noise, sequence, nothing, list, tries, counts, places, done, credit."""
    json: bool = False
    """Print JSON instead of text."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task."""
    wrappers: WrapperConfig = field(default_factory=WrapperConfig)
    """Wrappers between the task and the agent, as for clew train."""


def main(args: list[str]) -> int:
    """Prints advice."""
    env = value_before_parsing(args, "--env")
    usual = default_command(args).config.wrappers if env else WrapperConfig()
    default = AdviseCommand(wrappers=usual)
    command = parse(AdviseCommand, args, command="advise", about=ABOUT, default=default)
    if not command.env and (command.env_options or command.wrappers != usual):
        raise UserError("which task do these options belong to? name it with --env")
    asked = [advice.need(word) for word in dict.fromkeys(command.need)]
    task = AskedTask(command, _own_words(args)) if command.env else None
    found = asked or (task.needs() if task else advice.needs())
    if command.json:
        needs = []
        for need in found or advice.needs():
            scores = [score._asdict() for one in advice.measures_of(need) for score in one]
            needs.append(need._asdict() | {"scores": scores})
        print_json({"task": task and task.facts(found), "needs": needs})
    elif task:
        task.show(found, asked=bool(asked))
    elif asked:
        print("\n\n".join(map(_text, asked)))
    else:
        _list_needs()
    return 0


class AskedTask:
    """A task as somebody wants to train on it, played once; `words` are options that name it."""

    def __init__(self, command: AdviseCommand, words: list[str]):
        wrappers, self._words = command.wrappers, words
        if make_task(command.env, command.env_options, wrappers).unused_mask():
            wrappers = replace(wrappers, action_mask=INFO)
            self._words = [*words, "--wrappers.action-mask", INFO]
        self._config = TrainConfig(
            env=command.env,
            env_options=command.env_options,
            wrappers=wrappers,
            memory="none",
        )
        log(f"playing {EPISODES} episodes of an untrained agent")
        self._seen = look_at(self._config)

    def needs(self) -> list[Need]:
        """What has to be remembered in it, as far as its name and its wrappers tell."""
        hides = self._seen["hidden"]
        given = [f"wrappers.{n}" for n in self._config.wrappers.changed if hides or n != "keep"]
        for name, value in self._config.env_options.items():
            given += [f"env_options.{name}", f"env_options.{name}={value}"]
        return advice.needs_of(self._config.env, given)

    def _tried(self) -> tuple[list[tuple[Tried, str]], list[tuple[Tried, str]]]:
        """Results on this task, and on it with other options, each with a command to repeat it."""
        config = self._config
        very, near = advice.tried_on(
            config.env, config.env_options, config.wrappers, self._seen["options"]
        )
        return (
            [(one, self._command(one.compare, one.words)) for one in very],
            [(one, self._command(one.compare, one.words, words_of(one))) for one in near],
        )

    def facts(self, needs: list[Need]) -> dict[str, Any]:
        """The task's facts, and the command for each need, or one for any task."""
        commands = {need.word: self._for([need]) for need in needs}
        commands = commands or {"any": self._for([])}
        facts = {"name": self._config.env, **self._seen, "compare": commands}
        if len(needs) > 1:
            facts["together"] = self._for(needs)
        for key, found in zip(("tried", "near"), self._tried(), strict=True):
            facts[key] = [
                {name: getattr(one, name) for name in ("found", "made", "evidence")}
                | {"compare": command}
                for one, command in found
            ]
        return facts

    def show(self, needs: list[Need], *, asked: bool) -> None:
        """Prints what is known of it, and how to learn more; `asked` if needs were given."""
        config = self._config
        print_table("", ["task", config.env], self._rows())
        print()
        very, near = self._tried()
        for one, command in very:
            print(_tried_text("Tried on this task", one, command))
        for one, command in near:
            print(_tried_text(f"{one.name}, a similar task, was tried", one, command))
        for need in needs:
            own = f"  your task: {self._for([need])}{self._too_far(need)}"
            print(f"{_text(need, '' if very else own)}\n")
        together = self._for(needs)
        if len(needs) > 1:
            print(f"All of them: {together or 'not in one command, since their options differ'}\n")
        if not needs:
            print("Nothing is known about this task. What has to be remembered in it?\n")
            _list_needs()
            print("\nName it with --need WORD. If you do not know, compare:")
            print(f"  {together}\n")
        elif not asked and needs != advice.needs_of(config.env):
            print(
                "This follows from the wrappers and options. If they hide something else, name it "
                "with --need WORD; clew advise lists the words."
            )
        show_costs(_compared(needs), self._seen["input_size"])
        print(
            f"\nBy default clew compare trains each memory with {config.algorithm}: {SEEDS} seeds "
            f"of {config.steps:,} steps. To see how long that takes:\n"
            f"  {together or self._for(needs[:1])} --name brief-{slug(config.env)} --seeds 2 "
            f"--steps {config.steps // 10}\n"
            "If no memory scores above none, the learner may be the cause: try "
            f"{self._otherwise(needs)}."
        )

    def _rows(self) -> list[list[str]]:
        """The task's facts as rows of a table."""
        seen, limit = self._seen, self._config.wrappers.time_limit
        rows = [
            ["observation", seen["observation"]],
            ["actions", seen["actions"]],
            *([["action mask", _MASK]] if self._config.wrappers.action_mask == INFO else []),
            ["episode", _length(seen["episode_steps"], seen["played"], limit)],
        ]
        return rows + ([["return", _earned(*seen["returns"])]] if seen["returns"] else [])

    def _otherwise(self, needs: Sequence[Need]) -> str:
        """Other settings that often matter, without those in the commands."""
        said = " ".join(option for need in needs for option in need.words).split()
        learners = ["ppo", *(["r2d2"] if self._seen["discrete"] else [])]
        learners = ["ppo", "sac"] if self._seen["bounded"] else learners
        others = [f"--algorithm {n}" for n in learners if n not in (self._config.algorithm, *said)]
        if not needs:
            others += filter(None, [" ".join(self._reach(self._config.algorithm))])
        others += ["more steps"]
        others += [] if any("gamma" in word for word in said) else ["another discount"]
        others += [] if "--wrappers.previous-action" in said else ["--wrappers.previous-action"]
        return " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))

    def _for(self, needs: Sequence[Need]) -> str | None:
        """One command that compares memories for some needs, or for any; None if options clash."""
        options = list(dict.fromkeys(option for need in needs for option in need.words))
        if len({option.split()[0] for option in options}) < len(options):
            return None
        if any(need.far for need in needs):
            options += self._reach(self._algorithm(needs))
        return self._command(_compared(needs), options)

    def _algorithm(self, needs: Sequence[Need]) -> str:
        """The learner of the command for some needs."""
        named = [w.split()[1] for n in needs for w in n.words if w.startswith("--algorithm ")]
        return named[0] if named else self._config.algorithm

    def _longest(self) -> int:
        """Steps of the longest episode in a command."""
        steps = self._seen["episode_steps"]
        return steps[1] if steps else self._config.wrappers.time_limit or LIMIT

    def _reach(self, algorithm: str) -> list[str]:
        """Options that let gradients reach back over a whole episode, up to `READ`."""
        learning = replace(self._config, algorithm=algorithm).learning
        length = min(READ.get(algorithm, 0), self._longest())
        if isinstance(learning, PPOConfig) and length > learning.sequence_length:
            return [f"--ppo.rollout-length {length}", f"--ppo.sequence-length {length}"]
        if isinstance(learning, A2CConfig) and length > learning.rollout_length:
            return [f"--a2c.rollout-length {length}"]
        return []

    def _too_far(self, need: Need) -> str:
        """A line for a task where something may have to be held for longer than gradients reach."""
        most, longest = READ.get(self._algorithm([need]), 0), self._longest()
        if not need.far or longest <= most:
            return ""
        return (
            f"\n  reach:     gradients go back {most:,} steps there, and episodes have up to "
            f"{longest:,}:\n             holding something for longer is not learned"
        )

    def _command(
        self,
        memories: Sequence[str],
        options: Sequence[str] = (),
        task: Sequence[str] | None = None,
    ) -> str:
        """The command that compares memories with none.

        Args:
            options: of `clew train`, each with its value; those in `task` are left out.
            task: options that name the task; by default this one.
        """
        task = self._words if task is None else task
        words = ["clew", "compare", "--memories", *memories, "none", *task]
        given = {word.split("=")[0].replace("_", "-") for word in words}
        for option in map(shlex.split, options):
            words += option if option[0] not in given else []
        endless = self._seen["episode_steps"] is None and task is self._words
        endless = endless and self._config.wrappers.time_limit is None
        words += ["--wrappers.time-limit", str(LIMIT)] if endless else []
        return shlex.join(words)


def _compared(needs: Sequence[Need]) -> list[str]:
    """The memories to compare for some needs, or for none."""
    return list(dict.fromkeys(name for need in needs for name in need.compare) or advice.for_any())


def words_of(one: Tried) -> list[str]:
    """Options that name the task of a recorded result."""
    options = [f"{name}={value}" for name, value in one.options.items()]
    words = ["--env", one.env, *(["--env-options", *options] if options else [])]
    for name, value in one.wrappers.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--wrappers.{name.replace('_', '-')}", *map(str, values)]
    return words


def _own_words(args: list[str]) -> list[str]:
    """The words after the command, without the options that only clew advise has."""
    kept, skip = [], False
    for word in args:
        if word.startswith("--"):
            skip = word.split("=")[0] in OWN
        if not skip:
            kept.append(word)
    return kept


def look_at(config: TrainConfig) -> dict[str, Any]:
    """A task's observations, actions, and the episodes of an untrained agent.

    Returns:
        "options", the task's with their defaults; "observation" and "actions" as text; "hidden",
        whether wrappers leave something out of an observation; "bounded", whether actions are
        numbers with limits; "discrete", whether an action is one of several; "episode_steps", of
        the shortest and the longest episode, and "returns", the lowest and the highest, both None
        if an episode took more than "played" steps; "input_size", of the memory.

    Raises:
        UserError: for an unknown task or option, or a fault of the environment.
    """
    parts = make_parts(config)
    agent = build_agent(parts.config, parts.task, jax.random.key(0))
    found, played = _play(parts.task, agent)
    task, keep = parts.task, config.wrappers.keep
    whole = make_task(config.env, config.env_options, replace(config.wrappers, keep=None))
    return {
        "options": task.program(
            compiled=lambda _: env_options(config.env),
            hosted=lambda hosted: option_defaults(hosted.name),
        ),
        "observation": _described(task.observation_space),
        "hidden": keep is not None
        and flatdim(task.observation_space) != flatdim(whole.observation_space),
        "actions": _described(task.action_space),
        "bounded": isinstance(task.action_space, Box) and task.action_space.is_bounded(),
        "discrete": isinstance(task.action_space, Discrete),
        "episode_steps": list(map(int, _bounds(found["length"]))) if found else None,
        "returns": _bounds(found["return"]) if found else None,
        "played": played,
        "input_size": agent.memory.input_size,
    }


def _play(task: Task, agent: Agent) -> tuple[dict[str, np.ndarray], int]:
    """Metrics of episodes, empty if one was too long, and the most steps that were allowed."""
    params, static = eqx.partition(agent, eqx.is_array)
    played, began = LONGEST, time.monotonic()
    limits = task.program(compiled=lambda _: (LONGEST,), hosted=lambda _: (FIRST, LONGEST))
    for played in limits:
        evaluate = task.evaluator(static, greedy=False, max_steps=played)
        try:
            return evaluate(params, task.statistics(), EPISODES, (0, 0)), played
        except EpisodeTooLong:
            if (time.monotonic() - began) * LONGEST / played > PATIENCE:
                break
    return {}, played


def _described(space: Space[Any]) -> str:
    """A space on one line, without the bounds of each number."""
    return f"Box({space.shape}, {space.dtype})" if isinstance(space, Box) else str(space)


def _length(steps: list[int] | None, played: int, limit: int | None) -> str:
    if steps is None and limit is not None:
        return f"more than {played:,} steps of an untrained agent, at most your limit of {limit:,}"
    if steps is None:
        return (
            f"more than {played:,} steps of an untrained agent, or no end; the time limit of "
            f"{LIMIT:,} steps below is an example: it resets the memory, and returns beyond it are "
            "estimated"
        )
    low, high = steps
    length = f"{low:,} steps" if low == high else f"{low:,} to {high:,} steps"
    return f"{length} ({EPISODES} episodes of an untrained agent)"


def _earned(low: float, high: float) -> str:
    """The returns of an untrained agent's episodes."""
    least, most = f"{low:.4g}", f"{high:.4g}"
    if least != most:
        return f"{least} to {most}"
    return (
        f"{least} in each of them: exploration may be what is hard here, and no memory helps with "
        "that"
    )


def _bounds(values: np.ndarray) -> list[float]:
    return [float(np.min(values)), float(np.max(values))]


def _text(need: Need, own: str = "") -> str:
    """A need with its evidence, of the scores the `BEST` highest; `own` is on the user's task."""
    folders = ", ".join(f"results/{folder}" for folder in need.evidence)
    lines = [
        _said("", f"{need.title} ({need.asks})"),
        _said("  take:      ", need.advice),
        own,
        *(_said("  scores:    ", advice.ranking(one, BEST)) for one in advice.measures_of(need)),
        _said("  why:       ", need.why),
        _said("  limits:    ", need.limits),
        _said("  made by:   ", need.made),
        _said("  rows:      ", folders),
        f"  example:   {need.command}",
    ]
    return "\n".join(filter(None, lines))


def _tried_text(title: str, one: Tried, command: str) -> str:
    """A recorded result on a task, with a command to repeat the comparison."""
    lines = [
        _said("", f"{title}: {one.found}"),
        _said("  made by:   ", one.made),
        f"  rows:      results/{one.evidence}/README.md",
        f"  like that: {command}",
    ]
    return "\n".join(lines) + "\n"


def _said(label: str, sentences: str) -> str:
    """Sentences after their label, wrapped at 100 characters; nothing without any."""
    if not sentences:
        return ""
    return textwrap.fill(
        sentences,
        100,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _list_needs() -> None:
    rows = [[need.word, f"{need.title}: {need.asks}", need.advice] for need in advice.needs()]
    print_table("", ["word", "what has to be remembered", "take"], rows)
