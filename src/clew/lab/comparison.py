"""Memories or learners on one task: trained, plotted and compared."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.agents.learners import LEARNERS
from clew.errors import UserError, counted, unknown_name
from clew.files import read_json, write_text
from clew.memory import MEMORIES, options_among, options_of
from clew.names import find, is_reference
from clew.report.curves import curves, draw_curves, plot_runs
from clew.report.document import Block, Cell, Chart, Column, Panel, Table, Text
from clew.report.html import page
from clew.run import folder
from clew.run.build import make_parts
from clew.run.config import TrainConfig, differences
from clew.run.defaults import DefaultOptions
from clew.run.folder import by_reference
from clew.run.metrics import Row, final_text, over_seeds, read_rows
from clew.run.progress import Progress
from clew.run.runner import TrainingInterrupted
from clew.run.start import read_start
from clew.run.train import train
from clew.stats import Interval, probability_of_improvement

METRICS = ("success", "return")


class Kind(NamedTuple):
    """The kind of thing that is compared, in words for the page."""

    one: str
    several: str
    alike: str
    """What its runs have in common."""


MEMORY = Kind("memory", "Memories", "Every memory was trained with the same settings")
LEARNER = Kind(
    "learner", "Learners", "Every learner has its own settings, with the same network, on one task"
)


class ComparisonResult(NamedTuple):
    """The result of a comparison."""

    summaries: dict[str, dict[str, Any]]
    """The summary of each memory's, or each learner's, run; "whole" has the means of its learning
    curves."""
    better: dict[tuple[str, str], Interval]
    """The probability that a seed of the first scores higher than one of the second; with two or
    more seeds."""
    metric: str
    """The compared metric: success if the task defines it, otherwise the return."""
    picture: Path
    page: Path


def settings_of(config: TrainConfig, memories: Sequence[str]) -> dict[str, TrainConfig]:
    """The run of every memory; the runs differ only in the memory.

    Args:
        config: shared by all runs. Its name is the folder of the runs; memory options go to the
            memories that have them.
        memories: at least two names or "package.module:Class", each optionally with a label before
            it, LABEL=.

    Returns:
        Their settings by label, or by memory without one; it names the folder of the run.

    Raises:
        UserError: for fewer than two, an unknown or repeated memory, an option that none of them
            has, or a label that is another memory's name.
    """
    named = _labelled(memories)
    kinds = {label: find("memory", memory, MEMORIES) for label, memory in named.items()}
    known = {label: options_of(kind) for label, kind in kinds.items()}
    given = config.memory_options
    left_out = isinstance(given, DefaultOptions)
    for option in () if left_out else given:
        if not any(option in options for options in known.values()):
            names = {name for options in known.values() for name in options}
            raise unknown_name("option of these memories", option, names)
    place = Path(config.run_dir) / (config.name or f"compare-{folder.slug(config.env)}")
    return {
        label: replace(
            config,
            memory=memory,
            memory_options=given if left_out else options_among(kinds[label], given),
            name=folder.slug(label),
            run_dir=str(place),
        )
        for label, memory in named.items()
    }


def _labelled(memories: Sequence[str]) -> dict[str, str]:
    """Memories by label, from "label=module:Class", or by name."""
    split = [text.rpartition("=") for text in memories]
    _require_several("memories", [memory for *_, memory in split])
    named = {label or memory: memory for label, _, memory in split}
    for label, memory in named.items():
        if label in MEMORIES and memory != label:
            raise UserError(f"clew already has a memory {label!r}; give {memory} another label")
    _require_several("labels", [folder.slug(label or memory) for label, _, memory in split])
    return named


def learners_of(config: TrainConfig, learners: Sequence[str]) -> dict[str, TrainConfig]:
    """The run of every learner, with its own settings; the runs are otherwise the same.

    Args:
        config: shared by all runs, with the settings of each learner; learner options go to the
            user's own learners. Its name is the folder of the runs.
        learners: at least two names or "package.module:Class".

    Raises:
        UserError: for fewer than two, or an unknown or repeated learner.
    """
    _require_several("learners", learners)
    for learner in learners:
        find("learner", learner, LEARNERS)
    place = Path(config.run_dir) / (config.name or f"compare-learners-{folder.slug(config.env)}")
    own = [*filter(is_reference, learners)] or learners  # without any the options are refused
    unused = {name: kind.settings() for name, kind in LEARNERS.items()}
    return {
        learner: replace(
            config,
            algorithm=learner,
            learner_options=config.learner_options if learner in own else {},
            name=folder.slug(learner),
            run_dir=str(place),
            **{name: default for name, default in unused.items() if name != learner},
        )
        for learner in learners
    }


def _require_several(what: str, names: Sequence[str]) -> None:
    joined = any("," in name for name in names)
    if joined or len(names) < 2 or len(set(names)) < len(names):
        hint = "; spaces separate them" if joined else ""
        raise UserError(f"give two or more different {what}, got {' '.join(names) or 'none'}{hint}")


def train_once(config: TrainConfig, progress: Progress, *, trust: bool = False) -> Path:
    """Trains a run, resumes it if it was stopped, or leaves it alone if it is complete.

    Args:
        trust: consent to import the code named by the run to start from.

    Raises:
        UserError: if its folder holds a run with other settings.
    """
    path = Path(config.run_dir) / config.name
    if folder.is_bare(path):
        return train(config, progress=progress, trust=trust).path
    if differences(folder.read_config(path), by_reference(config).config):
        raise UserError(
            f"{path} holds a run with other settings; choose another --name or --run-dir"
        )
    return train(config, resume=True, progress=progress, trust=trust).path


def compare(
    configs: Mapping[str, TrainConfig],
    progress: Callable[[str], Progress],
    kind: Kind = MEMORY,
    *,
    trust: bool = False,
) -> ComparisonResult:
    """Trains what is not trained yet, and writes compare.png and compare.html beside the runs.

    Args:
        configs: as returned by `settings_of` or `learners_of`.
        progress: returns the listener of a run, given its label.
        kind: of the compared things, for the page.
        trust: as in `train_once`.

    Raises:
        UserError: as in `train_once`.
        TrainingInterrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    for config in configs.values():
        read_start(make_parts(config), Path(config.run_dir) / config.name, trust=trust)
    paths: dict[str, Path] = {}
    for memory, config in configs.items():
        try:
            paths[memory] = train_once(config, progress(memory), trust=trust)
        except TrainingInterrupted as stop:
            more = "or, all of the comparison, with the same clew compare again"
            raise TrainingInterrupted(f"{memory}: {stop}\n{more}") from None
    summaries = {memory: read_json(path / folder.SUMMARY) for memory, path in paths.items()}
    has = [m for m in METRICS if all(m in found["final"] for found in summaries.values())]
    metric = has[0] if has else METRICS[-1]
    scores = {m: _scores(found, metric) for m, found in summaries.items()}
    better = {
        (one, other): probability_of_improvement(scores[one], scores[other])
        for one, other in itertools.permutations(scores, 2)
        if min(len(scores[one]), len(scores[other])) > 1
    }
    config = next(iter(configs.values()))
    place = Path(config.run_dir)
    title = f"{config.env}, {counted(config.seeds, 'seed')}"
    rows = {memory: read_rows(path) for memory, path in paths.items()}
    for memory, found in summaries.items():
        found["whole"] = {m: _mean_of_curve(rows[memory], m) for m in has}
    picture = plot_runs(rows, place / "compare.png", title)
    result = ComparisonResult(summaries, better, metric, picture, place / "compare.html")
    blocks = _blocks(result, rows, has, kind)
    made_by = f"Made by clew compare, clew {version('clew')}."
    write_text(result.page, page(f"{kind.several} on {title}", blocks, {}, made_by))
    return result


def _mean_of_curve(rows: Sequence[Row], metric: str) -> Row:
    """The mean of every seed's learning curve over its steps, from the end of the first episode."""
    seeds = [values[np.isfinite(values)] for values in curves(rows, metric).values]
    return over_seeds([float(values.mean()) if values.size else None for values in seeds])


def _scores(summary: dict[str, Any], metric: str) -> np.ndarray:
    """The final score of every seed in which an episode ended, [seeds, 1]."""
    final = summary["final"].get(metric, {"per_seed": []})
    return np.array([[value] for value in final["per_seed"] if value is not None]).reshape(-1, 1)


def _blocks(
    result: ComparisonResult, rows: Mapping[str, Any], metrics: Sequence[str], kind: Kind
) -> list[Block]:
    first = next(iter(result.summaries.values()))
    text = (
        f"{kind.alike}, {counted(first['seeds'], 'seed')} each. Scores are means over the last "
        "tenth of training. The mean of the learning curve over all steps is higher for faster "
        "learning. In brackets: the 95% bootstrap interval over seeds, too narrow for fewer than "
        "5. Environment steps are those of one seed, in whole rollouts."
    )
    finals = [
        [
            Cell(name),
            *(Cell(final_text(found[part].get(m))) for m in metrics for part in ("final", "whole")),
            Cell(f"{found['steps']:,}"),
            Cell(f"{found['parameters']:,}"),
        ]
        for name, found in result.summaries.items()
    ]
    further = ("environment steps", "parameters of the agent")
    both = [name for m in metrics for name in (m, f"{m}, all steps")]
    head = [Column(name) for name in (kind.one, *both, *further)]
    blocks: list[Block] = [Text(text), Table("finals", "Final scores", head, finals)]
    panels = [Panel(m, partial(draw_curves, rows=rows, metric=m)) for m in metrics]
    if panels:
        about = "Thin: seeds; thick: their mean, with its 95% bootstrap interval."
        blocks.append(Chart("curves", "Learning curves", about, panels, size=(5.0, 3.4), columns=2))
    if result.better:
        names = list(result.summaries)
        better = {pair: format(found, ".2f") for pair, found in result.better.items()}
        won = [[Cell(a), *(Cell(better.get((a, b), "")) for b in names)] for a in names]
        note = (
            f"The probability that a seed of the row's {kind.one} scores higher than one of the "
            "column's."
        )
        columns = [Column(""), *map(Column, names)]
        blocks.append(Table("better", "Probability of improvement", columns, won, note))
    return blocks
