"""One pack of a study from job to rows: compile, train all its cells, evaluate each of them.

A job and its rows are plain JSON values and `run_job` is a plain function, so that any process
anywhere can do the work.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from clew.errors import require_choice
from clew.lab.costs import parameters
from clew.lab.grid.lanes import MIXED, Lane, evaluate_lanes, init_lanes, mixed_config
from clew.lab.grid.packs import Pack
from clew.lab.grid.plugins import registered
from clew.lab.grid.study import Evaluation, Study
from clew.run import machine
from clew.run.build import abstract_agent, jax_stream
from clew.run.compiled import Program, RunState, compile_program, make_parts
from clew.run.config import TrainConfig, config_from_json
from clew.run.stop import TrainingDiverged

FORMAT = 1

Job = dict[str, Any]
Row = dict[str, Any]


class Timed(NamedTuple):
    """Seconds that the parts of a pack took."""

    compile: float
    train: float
    evaluate: float


def make_job(study: Study, pack: Pack) -> Job:
    """Everything that a worker must know of a pack, as JSON values."""
    configs = [study.config(pack.model, setting, pack.seeds) for setting in pack.settings]
    return {
        "study": study.name,
        "model": pack.model,
        "settings": list(pack.settings),
        "seeds": list(pack.seeds),
        "configs": [config.to_json() for config in configs],
        "digests": [study.digest(pack.model, setting) for setting in pack.settings],
        "evaluation": dataclasses.asdict(study.evaluation),
        "score": study.score,
        "memories": dict(study.memories),
        "tasks": dict(study.tasks),
        "mix": study.settings[pack.settings[0]].mix if len(pack.settings) > 1 else "",
    }


def run_job(job: Job, progress: Callable[[float], None] = lambda share: None) -> list[Row]:
    """Trains and evaluates the cells of a pack.

    Args:
        job: of `make_job`.
        progress: is told the share of the training that is behind, from time to time.

    Returns:
        One row a cell, setting by setting and seed by seed; see `docs/studies.md`.

    Raises:
        UserError: for impossible settings.
        TrainingDiverged: if a cell's loss or parameters are no longer finite.
    """
    machine.use_compilation_cache()
    mix = {MIXED: job["mix"]} if job["mix"] else {}
    with registered(job["memories"], job["tasks"] | mix):
        config, lanes = lanes_of(job)
        config.validate()
        parts = make_parts(config)
        require_choice("score", job["score"], parts.stream.metric_names)
        began = time.perf_counter()
        program = compile_program(parts)
        state = init_lanes(parts, lanes)
        compiled = time.perf_counter()
        state, curves = _train(config, program, state, lanes, job["score"], progress)
        trained = time.perf_counter()
        played = evaluate_lanes(parts, state, lanes, Evaluation(**job["evaluation"]))
        timed = Timed(compiled - began, trained - compiled, time.perf_counter() - trained)
        return rows_of_pack(job, lanes, curves, played, timed)


def rows_of_pack(
    job: Job,
    lanes: Sequence[Lane],
    curves: Sequence[Row],
    played: Sequence[dict[str, np.ndarray]],
    timed: Timed,
) -> list[Row]:
    """The rows of a pack's cells, each with its share of the time."""
    sizes = {lane.setting: _parameters(lane.config) for lane in lanes}
    steps = sum(lane.config.steps for lane in lanes)
    return [
        _row(job, lane, curve, scores)
        | {"parameters": sizes[lane.setting]}
        | {"seconds": round(sum(timed) * lane.config.steps / steps, 3)}
        | {"pack": _pack(job, timed)}
        for lane, curve, scores in zip(lanes, curves, played, strict=True)
    ]


def lanes_of(job: Job) -> tuple[TrainConfig, list[Lane]]:
    """The settings of the program, and the cells in it."""
    seeds = job["seeds"]
    configs = [config_from_json(values) for values in job["configs"]]
    lanes = [
        Lane(setting, index, seed, replace(config, seed=seed, seeds=1))
        for index, (setting, config) in enumerate(zip(job["settings"], configs, strict=True))
        for seed in seeds
    ]
    return (mixed_config(configs, len(lanes)) if job["mix"] else configs[0]), lanes


def _train(
    config: TrainConfig,
    program: Program,
    state: RunState,
    lanes: list[Lane],
    score: str,
    progress: Callable[[float], None],
) -> tuple[RunState, list[Row]]:
    """The state after the last update and the learning curve of every lane."""
    curves = empty_curves({"score": score}, lanes)
    update = 0
    while update < config.updates:
        count = min(config.log_every, config.updates - update)
        state = program(state, jnp.int32(count))
        finite = np.atleast_1d(jax.device_get(state.seed.finite))
        update = int(state.update)
        if not finite.all():
            lane = lanes[int(np.argmin(finite))]
            raise TrainingDiverged(
                f"the loss or a parameter of {lane.setting}, seed {lane.seed} is no longer finite "
                f"at update {update}"
            )
        add_point(curves, state, lanes, score)
        progress(update / config.updates)
    return state, curves


def empty_curves(job: Job, lanes: Sequence[Lane]) -> list[Row]:
    """A learning curve without a point for every lane."""
    return [{"steps": [], "episodes": [], job["score"]: []} for _ in lanes]


def add_point(curves: Sequence[Row], state: RunState, lanes: Sequence[Lane], score: str) -> None:
    """Adds what has been summed up since the last point to every lane's learning curve."""
    sums = state.seed.sums
    seen = jax.device_get((sums["episodes"], sums[score]))
    episodes, totals = (np.atleast_1d(values) for values in seen)
    for lane, curve, number, total in zip(lanes, curves, episodes, totals, strict=True):
        curve["steps"].append(int(state.update) * lane.config.steps_per_update)
        curve["episodes"].append(int(number))
        curve[score].append(short(total / number) if number else None)


def _parameters(config: TrainConfig) -> int:
    return parameters(abstract_agent(config, jax_stream(config)))


def _row(job: Job, lane: Lane, curve: Row, played: dict[str, np.ndarray]) -> Row:
    scores, evaluation = played[job["score"]].astype(np.float64), job["evaluation"]
    error = float(scores.std(ddof=1)) / math.sqrt(scores.size) if scores.size > 1 else None
    return {
        "format": FORMAT,
        "model": job["model"],
        "setting": lane.setting,
        "seed": lane.seed,
        "mean": short(scores.mean()),
        "standard_error": None if error is None else short(error),
        "episodes": scores.size,
        "score": job["score"],
        "evaluation": {k: evaluation[k] for k in ("greedy", "stream", "seed")}
        | {"means": {name: short(values.mean()) for name, values in played.items()}},
        "curve": curve,
        "steps": lane.config.updates * lane.config.steps_per_update,
        "digest": job["digests"][lane.variant],
        **provenance(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _pack(job: Job, timed: Timed) -> Row:
    seconds = {name: round(value, 3) for name, value in timed._asdict().items()}
    return {"settings": job["settings"], "seeds": job["seeds"], **seconds}


@lru_cache(maxsize=1)
def provenance() -> Row:
    """What a row was made with."""
    return {"versions": machine.versions(), "git_commit": machine.git_commit()}


def short(value: Any) -> float:
    """Six digits, enough for every plot and table."""
    return float(f"{float(value):.6g}")
