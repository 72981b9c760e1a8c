"""`clew study`: a published study's grid of trainings, gone on with where it stopped."""

import contextlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import tyro

from clew.cli.parse import parse
from clew.cli.study_parts import MEMORY_MAZE, TMAZE, finish_memory_maze, grid_of, names
from clew.cli.study_told import report, show
from clew.errors import UserError, require_at_least, unknown_name

if TYPE_CHECKING:
    from clew.lab.grid import RayWorkers, Study
    from clew.run.config import TrainConfig

ABOUT = """Runs a study: every model in every setting with every seed, in local worker processes
or on a Ray cluster.
What is finished is never run again: after Ctrl-C, a kill or a failure the same command goes on.
Results are lines of results.jsonl in the study's folder, one for every training. Parts that train
nothing, as pramanik's approximation, compute tables and pictures into the folder at once."""


@dataclass(frozen=True)
class StudyCommand:
    """What `clew study` may be told."""

    name: tyro.conf.Positional[str] = ""
    """The study: makkink or pramanik."""
    part: str = "all"
    """Which of its experiments. makkink: length, size, distributed, or all. pramanik: tmaze,
    memory-maze or approximation."""
    edition: str = "published"
    """published: as the authors' code had it, on fixed streams of episodes. repaired: as the text
    means it, on fresh episodes, with controls and more seeds."""
    models: str = ""
    """Only these models, separated by commas; empty takes all (--list names them)."""
    settings: str = ""
    """Only these settings, separated by commas; empty takes all of the part."""
    seeds: int = 0
    """Number of seeds: the study's own first, then the smallest others; 0 takes the study's. Of a
    part that trains nothing, the number of random draws."""
    corridors: str = ""
    """Of pramanik's tmaze: only these corridor lengths, separated by commas; empty takes the
    thesis's five."""
    mazes: str = ""
    """Of pramanik's memory-maze: only these sides, separated by commas; empty takes the thesis's
    four, 9,11,13,15."""
    env: str = ""
    """Of pramanik's memory-maze: other environments in place of the mazes, gymnasium:ID or
    module:factory, separated by commas."""
    runner: str = ""
    """Of pramanik's memory-maze: async, its own, or sync."""
    actors: int = 0
    """Of pramanik's memory-maze: processes that act; 0 takes the thesis's 32."""
    environments: int = 0
    """Of pramanik's memory-maze: environments of all actors together; 0 takes the thesis's 64."""
    rates_from: str = ""
    """Of pramanik's memory-maze: the folder of a --sweep, whose best learning rate and entropy cost
    each agent gets; empty takes the middle ones."""
    sweep: bool = False
    """Of pramanik's tmaze and memory-maze: search for learning rates and entropy costs. Its own
    budget is tmaze's 5M steps and 5 seeds for 25 pairs, as lanes of one program, or memory-maze's
    15M steps and 3 seeds for 9 pairs, each a run; --steps and --seeds change it."""
    steps: int = 0
    """Training steps of every cell; 0 takes the study's. Of pramanik's parts it may be raised
    later: cells go on from where they ended."""
    episodes: int = 0
    """Training episodes of every cell; 0 takes the study's."""
    evaluation_episodes: int = 0
    """Episodes on which every trained agent is measured; 0 takes the study's."""
    add_memory: tuple[str, ...] = ()
    """Memories of your own as further models: package.module:factory, or with a name of your
    choice NAME=package.module:factory. Each takes its place in the study's own agent."""
    run_dir: str = ""
    """The study's folder; empty is runs/<study>-<edition>, of a part that trains nothing
    runs/<study>-<part>."""
    workers: int = 0
    """Processes, each on a core of its own; 0 is one for every core. Of pramanik's memory-maze
    trainings side by side, each of them on all cores; 0 is one."""
    ray: str = ""
    """Run on a Ray cluster in place of local processes: auto, local, HOST:PORT or
    ray://HOST:PORT."""
    list: bool = False
    """Show what would run, and run nothing."""


def main(args: Sequence[str]) -> int:
    """Runs the study, or lists it; 1 if a cell failed."""
    command = parse(StudyCommand, args, command="study", about=ABOUT)
    for option, value in vars(command).items():
        if type(value) is int:
            require_at_least(option.replace("_", "-"), value, 0)
    if command.ray and (part := command.part) in (TMAZE, MEMORY_MAZE):
        raise UserError(f"--ray is for short trainings: those of {part} are resumed from this disk")
    if command.ray and command.workers:
        raise UserError("--ray and --workers exclude each other: a cluster has the CPUs it has")
    if reference := find_computation(command):
        compute(command, reference)
        return 0
    study = make_study(command)
    folder = command.run_dir or f"runs/{study.name.replace('/', '-')}"
    from clew.lab.grid import check_study, run_study

    if command.list:
        check_study(study)
        show(study, folder)
        return 0
    from clew.cli.study_table import study_listener

    with _workers(command) as workers:
        result = run_study(
            study,
            folder,
            workers=workers,
            progress=study_listener(),
            how_to_go_on=f"clew study {shlex.join(args)}",
        )
    print(report(study, result))
    return 1 if result.failures else 0


def find_computation(command: StudyCommand) -> str | None:
    """What computes a part that trains nothing, or None if it is a grid of trainings.

    Raises:
        UserError: for a part that a study without a grid does not have, and for an option that
            only a grid has.
    """
    from clew.lab.studies.presets import COMPUTATIONS, PARTS

    parts = COMPUTATIONS.get(command.name, {})
    if command.part not in parts:
        if parts and command.part not in PARTS[command.name]:
            raise unknown_name(f"part of {command.name}", command.part, PARTS[command.name])
        return None
    free = {"name", "part", "seeds", "run_dir", "list"}
    for option in fields(command):
        if option.name not in free and getattr(command, option.name) != option.default:
            name = option.name.replace("_", "-")
            raise UserError(f"--{name} is for trainings, and --part {command.part} has none")
    return parts[command.part]


def compute(command: StudyCommand, reference: str) -> None:
    """Computes a part that trains nothing, or says with --list what would be computed."""
    from clew.names import resolve

    function = resolve(reference)
    folder = command.run_dir or f"runs/{command.name}-{command.part}"
    if command.list:
        about = (function.__doc__ or "").partition("\n")[0]
        print(f"{command.name}/{command.part}: {about}\nresults would go to {folder}")
        return
    print(function(folder, draws=command.seeds, say=lambda told: print(told, file=sys.stderr)))


def make_study(command: StudyCommand) -> "Study":
    """The study that a command asks for.

    Raises:
        UserError: for an unknown study, part, edition, model or setting, with the nearest names.
    """
    from clew.lab.studies.presets import GRIDS

    known = sorted(GRIDS)
    if not command.name:
        raise UserError(f"which study? clew study NAME; known: {', '.join(known)}")
    if command.name not in GRIDS:
        raise unknown_name("study", command.name, known)
    make, options = grid_of(command)
    whole = make(part=command.part, edition=command.edition, **options)
    agent = next(iter(whole.models.values()))
    study = whole.only(names(command.models), names(command.settings))
    if command.seeds:
        study = replace(study, seeds=first_seeds(study.seeds, command.seeds))
    if command.steps and command.episodes:
        raise UserError("--steps and --episodes exclude each other: give one budget")
    if command.steps:
        study = replace(study, steps=command.steps, episodes=None)
    if command.episodes:
        study = replace(study, episodes=command.episodes, steps=None)
    if command.part == MEMORY_MAZE:
        study = finish_memory_maze(study, command.rates_from)
    if command.evaluation_episodes:
        measured = replace(study.evaluation, episodes=command.evaluation_episodes)
        study = replace(study, evaluation=measured)
    for text in command.add_memory:
        study = _with_memory(study, text, agent)
    return study


def first_seeds(own: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The first `count` of a study's seeds, then the smallest numbers that are not among them."""
    others = (n for n in range(len(own) + count) if n not in own)
    return (*own[:count], *(next(others) for _ in range(count - len(own))))


def _workers(
    command: StudyCommand,
) -> contextlib.AbstractContextManager["int | RayWorkers | None"]:
    """Who does the work, let go of at the end also where the study refuses to begin."""
    if not command.ray:
        return contextlib.nullcontext(command.workers or None)
    from clew.lab.grid import RayWorkers

    return contextlib.closing(RayWorkers(command.ray))


def _with_memory(study: "Study", text: str, agent: "TrainConfig") -> "Study":
    from clew.names import resolve

    name, equals, reference = text.partition("=")
    if not equals:
        name, reference = text.rpartition(":")[2].lower(), text
    resolve(reference)
    return study.add_memory(name, reference, like=agent)
