"""Benchmarks that are studies: their agents, and a command line that runs a plan into a folder."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.options import described

from clew import TrainConfig
from clew.cli import ENDINGS, report_error
from clew.lab.grid import Study, StudyResult, read_results, run_study
from clew.lab.studies.popgym import grid
from clew.lab.studies.popgym.grid import SIZES
from clew.lab.studies.published import GridOptions
from clew.memory import options_among


def agents(
    memories: Iterable[str],
    sizes: Mapping[str, Any] = SIZES,
    like: TrainConfig | None = None,
) -> dict[str, TrainConfig]:
    """Agents by memory, each with those of the sizes that it takes: by default two layers of 64."""
    return {
        memory: replace(
            like or TrainConfig(), memory=memory, memory_options=options_among(memory, sizes)
        )
        for memory in memories
    }


def beside(
    memories: Iterable[str], changes: Mapping[str, Callable[[TrainConfig], TrainConfig]]
) -> dict[str, TrainConfig]:
    """POPGym's agent with each memory, and after it with each change, as MEMORY-CHANGE."""
    models = {}
    for memory in memories:
        agent = models[memory] = grid.agent(memory)
        models |= {f"{memory}-{name}": change(agent) for name, change in changes.items()}
    return models


def on_popgym(name: str, models: Mapping[str, TrainConfig], tasks: Sequence[str]) -> Study:
    """A study of these agents on some of POPGym's easy tasks, with the table's steps by PPO."""
    return replace(grid.study(), name=name, models=models, weights={}).only(list(models), tasks)


@contextmanager
def ending_as_commands() -> Iterator[None]:
    """Ends the script with one line after a mistake or Ctrl-C, like a command of clew."""
    try:
        yield
    except ENDINGS as error:
        sys.exit(report_error(error))


@ending_as_commands()
def run_plan(
    about: str | None,
    plans: Mapping[str, Callable[[], Study]],
    *,
    first: int = 0,
    seeds: int = 5,
    sizes: Mapping[str, Mapping[str, Any]] | None = None,
    draws: bool = False,
) -> StudyResult:
    """Runs the missing parts of the plan that the command line names, by default the first.

    An added memory gets the sizes of its plan, if there are any, else those of POPGym's study. A
    script that draws the rows has --redraw, with which nothing is trained.
    """
    parser = described(about, draws=draws)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plan", choices=plans, default=next(iter(plans)))
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument(
        "--add-memory", nargs="+", default=[], help="one of yours, as for clew study"
    )
    parser.add_argument("--first", type=int, default=first, help="the first seed")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if draws and given.redraw:
        return StudyResult(given.folder, read_results(given.folder), [])
    plan, added = plans[given.plan](), GridOptions(add_memory=tuple(given.add_memory))
    study = added.narrow(plan, (sizes or {}).get(given.plan, SIZES))
    new = [name for name in study.models if name not in plan.models]
    study = study.only(given.models and [*given.models, *new])
    study = replace(study, seeds=tuple(range(given.first, given.first + given.seeds)))
    return run_study(study, given.folder, workers=given.workers)
