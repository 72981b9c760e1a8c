"""One cell of a resumable study: a run with checkpoints of its own, from job to row.

A worker that dies, or is begun anew with the same job, goes on from the run's newest checkpoint.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import require_choice
from clew.lab.grid.measuring import Played, measure
from clew.lab.grid.plugins import registered
from clew.lab.grid.study import Cell, Study
from clew.lab.grid.work import FORMAT, Job, Row, provenance, short
from clew.run import checkpoint, folder
from clew.run.build import make_stream
from clew.run.config import TrainConfig, config_from_json
from clew.run.progress import Quiet, Report
from clew.run.record import read_metrics
from clew.run.train import train

WORK = "clew.lab.grid.cells:run_cell"
RUNS = "runs"
"""Folder of the cells' runs in a study's folder."""


def make_cell_job(study: Study, cell: Cell, path: Path) -> Job:
    """Everything that a worker must know of a cell, as JSON values.

    Args:
        study: whose cell.
        cell: one of its cells.
        path: the study's folder.
    """
    task = study.settings[cell.setting]
    config = replace(
        study.config(cell.model, cell.setting, (cell.seed,)),
        name=run_name(cell),
        run_dir=str(path.resolve() / RUNS),
    )
    return {
        "study": study.name,
        "model": cell.model,
        "setting": cell.setting,
        "seed": cell.seed,
        "config": config.to_json(),
        "digest": study.digest(cell.model, cell.setting),
        "evaluation": dataclasses.asdict(study.evaluation),
        "score": study.score,
        "further": {name: dict(options) for name, options in task.further.items()},
        "further_needs": task.further_needs,
        "last_steps": study.last_steps,
        "curve_bins": study.curve_bins,
        "memories": dict(study.memories),
        "tasks": dict(study.tasks),
    }


def run_name(cell: Cell) -> str:
    """The name of a cell's run."""
    return f"{cell.model}-{cell.setting}-seed-{cell.seed}"


def run_cell(job: Job, progress: Callable[[float], None] = lambda share: None) -> list[Row]:
    """Trains a cell to its end, from wherever its run stands, and measures it.

    Only the run's last checkpoint is kept then, for more steps and for `clew inspect`.

    Args:
        job: of `make_cell_job`.
        progress: is told the share of the training that is behind, from time to time.

    Returns:
        The one row; see `docs/studies.md`.

    Raises:
        UserError: for impossible settings, or a run that was begun with others.
        TrainingDiverged: if its loss or parameters are no longer finite.
    """
    with registered(job["memories"], job["tasks"]):
        config = config_from_json(job["config"])
        require_choice("score", job["score"], make_stream(config).metric_names)
        path = Path(config.run_dir) / config.name
        begun = (path / folder.CONFIG).is_file()
        result = train(config, resume=path if begun else False, progress=_Shares(progress))
        began = time.perf_counter()
        own, further = measure(path, config, job)
        measured = time.perf_counter() - began
    for old in checkpoint.list_checkpoints(path / folder.CHECKPOINTS)[:-1]:
        old.unlink(missing_ok=True)
    return [_row(job, config, result.summary, own, further, measured)]


class _Shares(Quiet):
    """Hands on the share of a run that is behind; messages are for the worker's log."""

    def __init__(self, progress: Callable[[float], None]):
        self._progress = progress

    def report(self, report: Report) -> None:
        """After every call of the compiled program."""
        self._progress(report.steps / report.total_steps)

    def message(self, text: str) -> None:
        """Prints it."""
        print(text, flush=True)


def _row(
    job: Job,
    config: TrainConfig,
    summary: Row,
    own: Played | None,
    further: Mapping[str, Played] | None,
    measured: float,
) -> Row:
    evaluation, rows = job["evaluation"], read_metrics(Path(config.run_dir) / config.name)
    names, begin = make_stream(config).metric_names, rows[-1]["steps"] - job["last_steps"]
    last = _pooled([row for row in rows if row["steps"] > begin], names)
    mean, error, episodes = last[job["score"]], None, 0
    if own is not None:
        scores = own[job["score"]].astype(np.float64)
        mean, episodes = short(scores.mean()), scores.size
        error = short(scores.std(ddof=1) / math.sqrt(episodes)) if episodes > 1 else None
    return {
        "format": FORMAT,
        "model": job["model"],
        "setting": job["setting"],
        "seed": job["seed"],
        "mean": mean,
        "standard_error": error,
        "episodes": episodes,
        "score": job["score"],
        "evaluation": {k: evaluation[k] for k in ("greedy", "stream", "seed")}
        | {"means": None if own is None else _means(own)},
        "last": {"steps": job["last_steps"]} | last,
        "further": None if further is None else {n: _means(p) for n, p in further.items()},
        "curve": learning_curve(rows, names, job["curve_bins"]),
        "steps": config.updates * config.steps_per_update,
        "parameters": summary["parameters"],
        "seconds": round(summary["seconds"] + measured, 3),
        "timed": {"train": summary["seconds"], "evaluate": round(measured, 3)},
        "rate": summary["rate"],
        "digest": job["digest"],
        **provenance(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def learning_curve(rows: list[Row], names: tuple[str, ...], bins: int) -> dict[str, list[Any]]:
    """A run's rows of metrics, pooled into at most so many bins of equally many steps.

    Args:
        rows: of the run's metrics.jsonl, of one seed.
        names: the metrics of episodes.
        bins: how many at most; a bin without a row is left out.

    Returns:
        "steps" at the end of each bin, "episodes" that ended in it, and the mean of each metric
        over them, None where none ended.
    """
    end = rows[-1]["steps"]
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(-(-row["steps"] * bins // end), []).append(row)
    points = [{"steps": group[-1]["steps"]} | _pooled(group, names) for group in groups.values()]
    return {key: [point[key] for point in points] for key in ("steps", "episodes", *names)}


def _pooled(rows: list[Row], names: tuple[str, ...]) -> Row:
    """The number of episodes that ended in some rows, and each metric's mean over them."""
    number = sum(row["episodes"][0] for row in rows)
    found: Row = {"episodes": number}
    for name in names:
        total = sum(row[name][0] * row["episodes"][0] for row in rows if row["episodes"][0])
        found[name] = float(f"{total / number:.4g}") if number else None
    return found


def _means(played: Played) -> dict[str, float]:
    return {name: short(values.mean()) for name, values in played.items()}
