"""Trials as cells of a grid: lanes of one program if possible, otherwise separate runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.lab.grid import Evaluation, Setting, Study, StudyResult, Workers, run_study
from clew.lab.grid.results import Row, mean_at_end
from clew.lab.sweep.progress import SweepProgress
from clew.lab.sweep.space import value_of, with_settings
from clew.run.build import make_task
from clew.run.config import TrainConfig
from clew.run.folder import slug

TASK = "task"
LAST = 10
"""A score is the mean over the episodes that ended in the last tenth of training."""


class Trained(NamedTuple):
    """The result of a training, seed by seed."""

    scores: list[float]
    error: str = ""
    """Why there are no scores, for example since the run diverged or no episode ended."""


class StudyRunner(NamedTuple):
    """Runs the studies of a sweep one after the other, on the same workers."""

    workers: Workers
    """The workers; their creator closes them."""
    progress: SweepProgress
    score: str
    how_to_go_on: str

    def run(self, study: Study, path: Path) -> StudyResult:
        """Runs the rest of a study."""
        return run_study(
            study,
            path,
            workers=self.workers,
            keep_workers=True,
            progress=self.progress,
            how_to_go_on=self.how_to_go_on,
        )


def is_compiled(config: TrainConfig) -> bool:
    """Whether acting and learning are one program."""
    task = make_task(config)
    return task.program(compiled=lambda task: True, hosted=lambda task: False)


def train_trials(
    configs: Mapping[int, TrainConfig],
    wanted: Collection[int],
    lanes: Sequence[str],
    path: Path,
    runner: StudyRunner,
) -> Iterator[tuple[int, Trained]]:
    """Trains trials with all their seeds; finished ones in the folder are not run again.

    Args:
        configs: of every trial of a batch by its number; `seed` and `seeds` give the seeds.
        wanted: the trials to train. Which trials of a batch share a program, and so their names,
            does not depend on which have ended.
        lanes: settings of the learner, with their group, that may differ within a program.
        path: the folder of their rows and runs.
        runner: trains them.

    Yields:
        Each trial's number and result.
    """
    for study, numbers in _studies(configs, wanted, lanes, runner):
        result = runner.run(study, path)
        errors = {
            (failure.pack.model, setting): failure.error
            for failure in result.failures
            for setting in failure.pack.settings
        }
        for key, number in numbers.items():
            rows = [r for r in result.rows if (r["model"], r["setting"]) == key]
            yield number, trained(rows, len(study.seeds), runner.score, errors.get(key, ""))


def trained(rows: Sequence[Row], seeds: int, score: str, error: str = "") -> Trained:
    """The scores of a trial's rows, one for each of its seeds."""
    scores = [last_tenth(row, score) for row in rows]
    known = [value for value in scores if value is not None]
    if len(known) == seeds:
        return Trained(known)
    return Trained([], error or "no episode ended in the last tenth of training")


def last_tenth(row: Row, score: str) -> float | None:
    """The mean score of the episodes in the last tenth of a row's curve; None if there are none."""
    return mean_at_end(row, score, row["curve"]["steps"][-1] / LAST)


Numbers = dict[tuple[str, str], int]
"""Maps model and setting of a study to the number of a trial."""


def _studies(
    configs: Mapping[int, TrainConfig],
    wanted: Collection[int],
    lanes: Sequence[str],
    runner: StudyRunner,
) -> Iterator[tuple[Study, Numbers]]:
    """The trials as studies: each group of lanes, then those trained alone."""
    groups: dict[str, list[int]] = {}
    for number, config in configs.items():
        alike = with_settings(config, dict.fromkeys(lanes, 0.0))  # but for what may differ
        groups.setdefault(repr(alike), []).append(number)
    mixable = lanes and runner.workers.saves and is_compiled(next(iter(configs.values())))
    alone = []
    for group in groups.values():
        left = [number for number in group if number in wanted]
        if mixable and group[1:] and left:
            yield _lanes_study({number: configs[number] for number in left}, lanes, runner)
        else:
            alone += left
    if alone:
        names = {number: f"{slug(configs[number].memory)}-{number}" for number in sorted(alone)}
        study = runs_study({name: configs[number] for number, name in names.items()}, runner)
        yield study, {(name, TASK): number for number, name in names.items()}


def _lanes_study(
    configs: Mapping[int, TrainConfig], lanes: Sequence[str], runner: StudyRunner
) -> tuple[Study, Numbers]:
    """A group of trials as settings of a study, which trains them as lanes, seed by seed."""
    first = next(iter(configs.values()))
    settings = {
        f"trial-{number}": Setting(
            first.env,
            first.env_options,
            learning={name.partition(".")[2]: value_of(config, name) for name in lanes},
        )
        for number, config in configs.items()
    }
    model = slug(first.memory)
    study = _study({model: first}, settings, runner, Evaluation(episodes=1), resumable=False)
    return study, {(model, name): n for name, n in zip(settings, configs, strict=True)}


def runs_study(
    models: Mapping[str, TrainConfig], runner: StudyRunner, evaluation: Evaluation | None = None
) -> Study:
    """Trainings of one task as models of a study: separate runs, or programs on a cluster."""
    first = next(iter(models.values()))
    settings = {TASK: Setting(first.env, first.env_options)}
    saves = runner.workers.saves
    played = evaluation or Evaluation(episodes=int(not saves))
    return _study(models, settings, runner, played, resumable=saves)


def _study(
    models: Mapping[str, TrainConfig],
    settings: Mapping[str, Setting],
    runner: StudyRunner,
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
        score=runner.score,
        resumable=resumable,
        last_steps=max(1, first.steps // LAST),
    )
