"""The work of a worker: a job in, the rows of its cells out.

A pack of cells is trained as the lanes of one run and measured together. A cell of a resumable
study is a separate run, with a folder like that of `clew train`. A job and its rows are JSON values
and `run_job` is a function of them, so any process anywhere can do the work. A worker that is
started again with the same job, for example after it died, resumes from the newest checkpoint.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import require_choice
from clew.files import finite
from clew.lab.costs import parameters
from clew.lab.grid.measure import Played, evaluate_lanes, measure_run
from clew.lab.grid.packs import Pack
from clew.lab.grid.results import FORMAT, Row
from clew.lab.grid.sources import SOURCES, imported_hash, own_files
from clew.lab.grid.study import Cell, Evaluation, Study, registered
from clew.memory.kernels import provenance_of
from clew.run import checkpoint, folder, machine
from clew.run.build import abstract_agent, make_parts, make_task
from clew.run.config import TrainConfig, config_from_json
from clew.run.lanes import SIZES, Curve, Curves, Lane, compile_lanes, init_lanes, lanes_config
from clew.run.metrics import mean_of_rows, read_metrics
from clew.run.progress import Progress, Report
from clew.run.runner import Runner, TrainingDiverged
from clew.run.train import train

Job = dict[str, Any]
Share = Callable[[float], None]
"""Called with the fraction of the training that is complete, from time to time."""

RUNS, PACKS = "runs", "packs"
"""Subfolders of a study's folder: the runs of a resumable study's cells, and the checkpoints of
packs in training."""


def make_job(study: Study, pack: Pack, path: Path | None) -> Job:
    """Everything that a worker needs to know about a pack, as JSON values.

    Args:
        pack: of the study; one cell if the study is resumable.
        path: the study's folder; None saves nothing while a pack is trained.
    """
    common = {
        "study": study.name,
        "model": pack.model,
        "settings": list(pack.settings),
        "seeds": list(pack.seeds),
        "digests": [study.digest(pack.model, setting) for setting in pack.settings],
        "evaluation": dataclasses.asdict(study.evaluation),
        "score": study.score,
        "memories": dict(study.memories),
        "tasks": dict(study.tasks),
    }
    if study.resumable:
        assert path is not None, "a resumable cell is a run in the study's folder"
        return common | _cell_job(study, pack.cells[0], path)
    return common | _pack_job(study, pack, path)


def _pack_job(study: Study, pack: Pack, path: Path | None) -> Job:
    configs = [study.config(pack.model, setting, pack.seeds) for setting in pack.settings]
    mix = study.settings[pack.settings[0]].mix if len(pack.settings) > 1 else ""
    learning = [study.settings[setting].learning for setting in pack.settings]
    return {
        "configs": [config.to_json() for config in configs],
        "mix": mix,
        "hyperparameters": sorted(set().union(*learning)),
        "folder": "" if path is None else str(_pack_folder(study, pack, path)),
    }


def checkpoints_of(study: Study, pack: Pack, path: Path) -> list[Path]:
    """The checkpoints in a study's folder from which a pack continues, oldest first; none if it
    starts from scratch."""
    own = path / RUNS / run_name(pack.cells[0]) / folder.CHECKPOINTS
    return checkpoint.list_checkpoints(own if study.resumable else _pack_folder(study, pack, path))


def _pack_folder(study: Study, pack: Pack, path: Path) -> Path:
    """The folder of a pack's checkpoints: the same for the same pack of a resumed study."""
    digests = [study.digest(pack.model, setting) for setting in pack.settings]
    stem = folder.slug(pack.model)
    others = [form for name, form in study.settings.items() if name not in pack.settings]
    alike = any(study.settings[name] in others for name in pack.settings)
    # Only where they distinguish packs, so that studies stopped earlier find theirs.
    names = [pack.model, *pack.settings] if alike or stem != pack.model else []
    identity = json.dumps([digests, list(pack.seeds), *names])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return path.resolve() / PACKS / f"{stem}-{digest}"


def _cell_job(study: Study, cell: Cell, path: Path) -> Job:
    task = study.settings[cell.setting]
    config = replace(
        study.config(cell.model, cell.setting, (cell.seed,)),
        name=run_name(cell),
        run_dir=str(path.resolve() / RUNS),
    )
    return {
        "run": config.to_json(),
        "further": {name: dict(options) for name, options in task.further.items()},
        "further_needs": task.further_needs,
        "last_steps": study.last_steps,
        "curve_bins": study.curve_bins,
    }


def run_name(cell: Cell) -> str:
    """The name of the run of a resumable study's cell."""
    return f"{cell.model}-{cell.setting}-seed-{cell.seed}"


def run_job(job: Job, progress: Share = lambda share: None) -> list[Row]:
    """Trains and measures the cells of a job, see `make_job`.

    Returns:
        One row per cell, setting by setting and seed by seed; see `docs/studies.md`.

    Raises:
        UserError: for impossible settings, or a run that was started with others.
        TrainingDiverged: if a cell's loss or parameters are no longer finite.
    """
    sizes = {SIZES: job["mix"]} if job.get("mix") else {}
    with registered(job["memories"], job["tasks"] | sizes):
        job = job | {SOURCES: _sources(job)}
        return _run_cell(job, progress) if "run" in job else _run_pack(job, progress)


def _sources(job: Job) -> list[dict[str, str]]:
    """For each of a job's settings, the hashes of the user's code, as imported here."""
    configs = map(config_from_json, job["configs"] if "configs" in job else [job["run"]])
    files = [own_files(config, job["memories"], job["tasks"]) for config in configs]
    return [{name: imported_hash(file) for name, file in own.items()} for own in files]


class _Shares(Progress):
    """Reports the fraction of a run that is complete; messages are for the worker's log.

    Reports between multiples of `every` environment steps are skipped.
    """

    def __init__(self, progress: Share, every: int = 1):
        self._progress, self._every = progress, every

    def report(self, report: Report) -> None:
        if report.steps % self._every == 0 or report.steps == report.total_steps:
            self._progress(report.steps / report.total_steps)

    def message(self, text: str) -> None:
        print(text, flush=True)


def _run_pack(job: Job, progress: Share) -> list[Row]:
    machine.use_compilation_cache()
    lanes = lanes_of(job)
    for lane in lanes[:: len(job["seeds"])]:
        make_parts(lane.config)
    config = lanes_config(lanes)
    parts = make_parts(config)
    require_choice("score", job["score"], parts.task.metric_names)
    curves = Curves(lanes, job["score"])
    checkpoints = Path(job["folder"]) if job["folder"] else None
    if checkpoints is not None:
        checkpoints.parent.mkdir(parents=True, exist_ok=True)
    runner = Runner(
        parts,
        lanes,
        curves,
        make_program=partial(compile_lanes, parts, lanes, job["hyperparameters"]),
        init_state=partial(init_lanes, parts, lanes),
        progress=_Shares(progress, config.log_every * config.steps_per_update),
        checkpoints=checkpoints,
        identity=checkpoint.Identity(checkpoints.name if checkpoints else "", (config.digest(),)),
    )
    with contextlib.closing(runner):
        runner.prepare()
        progress(runner.update / config.updates)
        try:
            runner.run()
            began = time.perf_counter()
            played = evaluate_lanes(parts, runner.state, lanes, Evaluation(**job["evaluation"]))
        except Exception as error:
            if len(lanes) > 1 or isinstance(error, TrainingDiverged):
                _remove(checkpoints)  # never resumed: its cells are tried one by one
            raise
    timed = {"compile": runner.compile_seconds, "train": runner.seconds}
    timed["evaluate"] = time.perf_counter() - began
    _remove(checkpoints)
    return _pack_rows(job, lanes, curves.curves, played, timed)


def _remove(checkpoints: Path | None) -> None:
    if checkpoints is not None:
        shutil.rmtree(checkpoints, ignore_errors=True)


def lanes_of(job: Job) -> list[Lane]:
    """The lanes of a pack's job, setting by setting and seed by seed."""
    configs = [config_from_json(values) for values in job["configs"]]
    return [
        Lane(
            replace(config, seed=seed, seeds=1),
            size=index if job["mix"] else 0,
            name=f"{setting}, seed {seed}",
        )
        for index, (setting, config) in enumerate(zip(job["settings"], configs, strict=True))
        for seed in job["seeds"]
    ]


def _pack_rows(
    job: Job,
    lanes: Sequence[Lane],
    curves: Sequence[Curve],
    played: Sequence[Played],
    timed: Mapping[str, float],
) -> list[Row]:
    """The rows of a pack's cells, each with its share of the seconds that its parts took."""
    count = len(job["seeds"])
    agents = [agent_of(lane.config) for lane in lanes[::count]]
    steps = sum(lane.config.steps for lane in lanes)
    seconds = {name: round(value, 3) for name, value in timed.items()}
    pack = {"settings": job["settings"], "seeds": job["seeds"], **seconds}
    rows = []
    for index, (lane, curve, own) in enumerate(zip(lanes, curves, played, strict=True)):
        size, kernels = agents[index // count]
        rows.append(
            _identity(job, index // count, lane.config, kernels)
            | _measured(job, own)
            | {
                "curve": curve,
                "parameters": size,
                "seconds": round(sum(timed.values()) * lane.config.steps / steps, 3),
                "pack": pack,
            }
        )
    return rows


def agent_of(config: TrainConfig) -> tuple[int, str]:
    """A cell's number of parameters and its kernels, see `provenance_of`; nothing is computed."""
    task = make_task(config)
    agent, kernels = provenance_of(lambda: abstract_agent(config, task))
    return parameters(agent), kernels


def _run_cell(job: Job, progress: Share) -> list[Row]:
    """Trains a cell to its end and measures it.

    The last checkpoint of its run is kept, for further steps and for `clew inspect`.
    """
    config = config_from_json(job["run"])
    require_choice("score", job["score"], make_task(config).metric_names)
    path = Path(config.run_dir) / config.name
    resume = path if (path / folder.CONFIG).is_file() else False
    result = train(config, resume=resume, progress=_Shares(progress))
    began = time.perf_counter()
    own, further = measure_run(path, config, job)
    measured = time.perf_counter() - began
    for old in checkpoint.list_checkpoints(path / folder.CHECKPOINTS)[:-1]:
        old.unlink(missing_ok=True)
    return [_cell_row(job, config, result.summary, own, further, measured)]


def _cell_row(
    job: Job,
    config: TrainConfig,
    summary: Row,
    own: Played | None,
    further: Mapping[str, Played] | None,
    measured: float,
) -> Row:
    rows = read_metrics(Path(config.run_dir) / config.name)
    names, begin = make_task(config).metric_names, rows[-1]["steps"] - job["last_steps"]
    last = _pooled([row for row in rows if row["steps"] > begin], names)
    _, kernels = agent_of(config)
    row = _identity(job, 0, config, kernels) | _measured(job, own)
    if own is None:
        row["mean"] = last[job["score"]]
    return row | {
        "last": {"steps": job["last_steps"]} | last,
        "further": None if further is None else {n: _means(p) for n, p in further.items()},
        "curve": learning_curve(rows, names, job["curve_bins"]),
        "parameters": summary["parameters"],
        "seconds": round(summary["seconds"] + measured, 3),
        "timed": {"train": summary["seconds"], "evaluate": round(measured, 3)},
        "rate": summary["rate"],
    }


def learning_curve(rows: list[Row], names: tuple[str, ...], bins: int) -> Curve:
    """A run's rows of one seed, pooled into at most `bins` bins of equally many steps.

    A bin without a row is left out.

    Returns:
        "steps" at the end of each bin, "episodes" that ended in it, and the mean over them of each
        metric of episodes, None where none ended.
    """
    end = rows[-1]["steps"]
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(-(-row["steps"] * bins // end), []).append(row)
    points = [{"steps": group[-1]["steps"]} | _pooled(group, names) for group in groups.values()]
    return {key: [point[key] for point in points] for key in ("steps", "episodes", *names)}


def _pooled(rows: list[Row], names: tuple[str, ...]) -> Row:
    """The number of episodes that ended in some rows, and each metric's mean over them."""
    found: Row = {"episodes": sum(row["episodes"][0] for row in rows)}
    for name in names:
        mean = mean_of_rows((row[name][0], row["episodes"][0]) for row in rows)
        found[name] = finite(mean, 4)
    return found


def _identity(job: Job, index: int, config: TrainConfig, kernels: str) -> Row:
    """Identifies a row's cell: which one, how long it was trained, with which software."""
    sources = job[SOURCES][index]
    return {
        "format": FORMAT,
        "model": job["model"],
        "setting": job["settings"][index],
        "seed": config.seed,
        "score": job["score"],
        "steps": config.updates * config.steps_per_update,
        "digest": job["digests"][index],
        **({SOURCES: sources} if sources else {}),
        **provenance(kernels),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _measured(job: Job, played: Played | None) -> Row:
    """The evaluation entries of a row; None where nothing was played."""
    evaluation = {key: job["evaluation"][key] for key in ("greedy", "stream", "seed")}
    if played is None:
        none: Row = {"mean": None, "standard_error": None, "episodes": 0}
        return none | {"evaluation": evaluation | {"means": None}}
    scores = played[job["score"]].astype(np.float64)
    error = float(scores.std(ddof=1)) / math.sqrt(scores.size) if scores.size > 1 else None
    return {
        "mean": finite(scores.mean(), 6),
        "standard_error": finite(error, 6),
        "episodes": scores.size,
        "evaluation": evaluation | {"means": _means(played)},
    }


def _means(played: Played) -> dict[str, float]:
    return {name: finite(values.mean(), 6) for name, values in played.items()}


def provenance(kernels: str) -> Row:
    """The provenance of a row: the same in every worker, whatever it has run before."""
    versions, commit = _machine()
    versions = {name: version for name, version in versions.items() if name != "kernels"}
    return {"versions": versions | ({"kernels": kernels} if kernels else {}), "git_commit": commit}


@lru_cache(maxsize=1)
def _machine() -> tuple[dict[str, str], str | None]:
    return machine.versions(), machine.git_commit()
