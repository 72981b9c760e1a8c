"""Trials as cells of a grid: lanes of one program where they can be, else runs of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clew.lab.grid import (
    Evaluation,
    Event,
    Pack,
    Setting,
    Study,
    StudyProgress,
    Workers,
    read_results,
    run_study,
)
from clew.lab.grid.jobs import Job
from clew.lab.grid.results import Row
from clew.lab.sweep.space import Values, value_of
from clew.run.build import make_task
from clew.run.config import TrainConfig
from clew.run.folder import slug

TASK = "task"
LAST = 10
"""A score is the mean over the episodes that ended in the last tenth of training."""


class Trained(NamedTuple):
    """What a training came to, seed by seed."""

    scores: list[float]
    error: str = ""
    """Why there are none; a run that diverges, or in which no episode ends, has none."""


class Crew(NamedTuple):
    """Who trains, and who hears of it."""

    workers: int | Workers | None
    progress: StudyProgress
    score: str
    how_to_go_on: str
    on_ray: bool = False
    """Whether the workers are those of a cluster, which has no part in this disk."""


class Kept:
    """Workers that a study's end does not end: the next round has them again.

    Args:
        workers: that somebody else closes.
    """

    def __init__(self, workers: Workers):
        self._workers = workers
        self.size = workers.size

    def submit(self, pack: Pack, job: Job) -> None:
        """Passes it on."""
        self._workers.submit(pack, job)

    def next(self, timeout: float) -> Event | None:
        """Passes it on; a cluster may have grown."""
        self.size = self._workers.size
        return self._workers.next(timeout)

    def close(self) -> None:
        """Does nothing."""


def is_compiled(config: TrainConfig) -> bool:
    """Whether acting and learning are one program."""
    task = make_task(config)
    return task.program(compiled=lambda task: True, hosted=lambda task: False)


def train_trials(
    configs: Mapping[int, TrainConfig], lanes: Sequence[str], path: Path, crew: Crew
) -> dict[int, Trained]:
    """Trains every trial with all its seeds; what is finished in the folder is not run again.

    Args:
        configs: of every trial by its number; `seed` and `seeds` say which seeds.
        lanes: settings, "LEARNER.NAME", that may differ within one program.
        path: the folder of their rows and runs.
        crew: who trains.

    Returns:
        What each came to.
    """
    found = _finished(configs, path, crew)
    left = {number: config for number, config in configs.items() if number not in found}
    for study, numbers in _studies(left, lanes, crew) if left else ():
        result = run_study(
            study,
            path,
            workers=crew.workers,
            progress=crew.progress,
            how_to_go_on=crew.how_to_go_on,
        )
        errors = {
            (failure.pack.model, setting): failure.error
            for failure in result.failures
            for setting in failure.pack.settings
        }
        for (model, setting), number in numbers.items():
            rows = [r for r in result.rows if (r["model"], r["setting"]) == (model, setting)]
            error = errors.get((model, setting), "")
            found[number] = trained(rows, len(study.seeds), crew.score, error)
    return found


def _finished(configs: Mapping[int, TrainConfig], path: Path, crew: Crew) -> dict[int, Trained]:
    """Trials whose rows are all there: a kill came between them and the database.

    What a trial shared a program with may have its score already, so it is found by its number.
    """
    rows: dict[int, list[Row]] = {}
    memory = slug(next(iter(configs.values())).memory)
    for row in read_results(path):
        model, _, first = row["model"].rpartition("-")
        if model == memory:
            number = first if row["setting"] == TASK else row["setting"].rpartition("-")[2]
            rows.setdefault(int(number), []).append(row)
    return {
        number: trained(rows[number], config.seeds, crew.score)
        for number, config in configs.items()
        if len(rows.get(number, [])) == config.seeds
    }


def trained(rows: Sequence[Row], seeds: int, score: str, error: str = "") -> Trained:
    """The scores of a trial's rows, one for each of its seeds."""
    scores = [last_tenth(row, score) for row in rows]
    known = [value for value in scores if value is not None]
    if len(known) == seeds:
        return Trained(known)
    return Trained([], error or "no episode ended in the last tenth of training")


def last_tenth(row: Row, score: str) -> float | None:
    """The mean score of the episodes in the last tenth of a row's curve; None without any."""
    curve = row["curve"]
    begin = curve["steps"][-1] * (1 - 1 / LAST)
    ended = [
        (number, value)
        for steps, number, value in zip(
            curve["steps"], curve["episodes"], curve[score], strict=True
        )
        if steps > begin and number and value is not None
    ]
    total = sum(number for number, _ in ended)
    return float(np.dot(*np.transpose(ended)) / total) if total else None


Numbers = dict[tuple[str, str], int]
"""Model and setting of a study to the number of a trial."""


def _studies(
    configs: Mapping[int, TrainConfig], lanes: Sequence[str], crew: Crew
) -> list[tuple[Study, Numbers]]:
    """The trials as studies: each group of lanes, and then those that are trained alone."""
    groups: dict[str, list[int]] = {}
    for number, config in configs.items():
        groups.setdefault(_beside(config, lanes), []).append(number)
    compiled = is_compiled(next(iter(configs.values())))
    together = [
        group for group in groups.values() if compiled and lanes and not crew.on_ray and group[1:]
    ]
    studies = [_lanes_study(configs, group, lanes, crew) for group in together]
    alone = [n for n in configs if not any(n in group for group in together)]
    if alone:
        names = {number: name_of(configs[number], number) for number in alone}
        study = runs_study({names[n]: configs[n] for n in alone}, crew)
        studies.append((study, {(names[n], TASK): n for n in alone}))
    return studies


def _beside(config: TrainConfig, lanes: Sequence[str]) -> str:
    """All settings but those that lanes may have of their own."""
    learning = {name.partition(".")[2]: 0.0 for name in lanes}
    same = replace(config, **{config.algorithm: replace(config.learning, **learning)})  # pyright: ignore[reportArgumentType]
    return repr(same)


def _lanes_study(
    configs: Mapping[int, TrainConfig], group: Sequence[int], lanes: Sequence[str], crew: Crew
) -> tuple[Study, Numbers]:
    """A group of trials as settings of a study, which trains them as lanes, seed by seed."""
    first = configs[group[0]]
    model = name_of(first, group[0])

    def setting(config: TrainConfig) -> Setting:
        own: Values = {name.partition(".")[2]: value_of(config, name) for name in lanes}
        a2c, ppo = (own if config.algorithm == name else {} for name in ("a2c", "ppo"))
        return Setting(first.env, first.env_options, a2c=a2c, ppo=ppo)

    settings = {f"trial-{number}": setting(configs[number]) for number in group}
    study = _study({model: first}, settings, crew, Evaluation(episodes=1), resumable=False)
    return study, {(model, name): n for name, n in zip(settings, group, strict=True)}


def runs_study(
    models: Mapping[str, TrainConfig], crew: Crew, evaluation: Evaluation | None = None
) -> Study:
    """Trainings of one task as models of a study: runs of their own, or programs of a cluster."""
    first = next(iter(models.values()))
    settings = {TASK: Setting(first.env, first.env_options)}
    played = evaluation or Evaluation(episodes=int(crew.on_ray))
    return _study(models, settings, crew, played, resumable=not crew.on_ray)


def _study(
    models: Mapping[str, TrainConfig],
    settings: Mapping[str, Setting],
    crew: Crew,
    evaluation: Evaluation,
    *,
    resumable: bool,
) -> Study:
    first = next(iter(models.values()))
    return Study(
        name="sweep",
        models=models,
        settings=settings,
        seeds=tuple(range(first.seed, first.seed + first.seeds)),
        steps=first.steps,
        evaluation=evaluation,
        score=crew.score,
        resumable=resumable,
        last_steps=max(1, first.steps // LAST),
    )


def name_of(config: TrainConfig, number: int) -> str:
    """What a trial is called in rows and folders."""
    return f"{slug(config.memory)}-{number}"
