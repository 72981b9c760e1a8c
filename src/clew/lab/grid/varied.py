"""Settings of the learning algorithm as numbers of one program: a sweep trained side by side.

The program is that of several seeds, with the numbers along its first axis as well. It is saved
from time to time, so that a worker that is begun anew with the same job goes on.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from clew.lab.grid.lanes import Lane, evaluate_lanes, init_lanes
from clew.lab.grid.packs import Pack
from clew.lab.grid.plugins import registered
from clew.lab.grid.study import Evaluation, Study
from clew.lab.grid.work import (
    Job,
    Row,
    Timed,
    add_point,
    empty_curves,
    lanes_of,
    make_job,
    rows_of_pack,
)
from clew.run import checkpoint, machine
from clew.run.compiled import (
    Parts,
    Program,
    RunState,
    SeedState,
    compile_loop,
    make_parts,
    run_template,
)
from clew.run.compiled import update as update_seed
from clew.run.sharding import sharding_of
from clew.run.stop import TrainingDiverged

WORK = "clew.lab.grid.varied:run_varied"
RUNS = "sweeps"
"""Folder of the programs' checkpoints in a study's folder."""

Numbers = Mapping[str, Float[Array, " lanes"]]
"""Name of a setting of A2C to its value in every lane."""


def make_varied_job(study: Study, pack: Pack, path: Path) -> Job:
    """What a worker must know of a pack whose settings vary numbers of A2C, as JSON values."""
    job = make_job(study, pack)
    names = sorted({name for setting in pack.settings for name in study.settings[setting].a2c})
    digest = hashlib.sha256(json.dumps([job["digests"], job["seeds"]]).encode()).hexdigest()[:12]
    folder = path.resolve() / RUNS / f"{pack.model}-{digest}"
    return job | {"varied": names, "folder": str(folder)}


def run_varied(job: Job, progress: Callable[[float], None] = lambda share: None) -> list[Row]:
    """Trains and evaluates the cells of a pack as lanes of one program, as `run_job` does.

    Raises:
        UserError: for impossible settings.
        TrainingDiverged: if a lane's loss or parameters are no longer finite.
    """
    machine.use_compilation_cache()
    with registered(job["memories"], job["tasks"]):
        config, lanes = lanes_of(job)
        for lane in lanes:
            lane.config.validate()
        parts = make_parts(replace(config, seed=0, seeds=len(lanes)))
        numbers = {
            name: jnp.array([getattr(lane.config.a2c, name) for lane in lanes], jnp.float32)
            for name in job["varied"]
        }
        began = time.perf_counter()
        program = compile_varied(parts, numbers)
        compiled = time.perf_counter()
        state, curves, trained = _train(parts, program, lanes, job, progress)
        measuring = time.perf_counter()
        played = evaluate_lanes(parts, state, lanes, Evaluation(**job["evaluation"]))
        timed = Timed(compiled - began, trained, time.perf_counter() - measuring)
        rows = rows_of_pack(job, lanes, curves, played, timed)
    for path in checkpoint.list_checkpoints(Path(job["folder"])):
        path.unlink(missing_ok=True)
    return rows


def compile_varied(parts: Parts, numbers: Numbers) -> Program:
    """The loop of a run whose lanes have numbers of A2C of their own.

    Args:
        parts: of a run with as many seeds as there are lanes.
        numbers: settings of A2C that a program may compute with: rates and costs.
    """

    def lane(seed: SeedState, fresh_row: Array, own: dict[str, Array]) -> SeedState:
        config = replace(parts.config, a2c=replace(parts.config.a2c, **own))
        own_parts = parts._replace(config=config, learner=config.learner)
        return update_seed(own_parts, seed, fresh_row)

    def all_lanes(seeds: SeedState, fresh_row: Array) -> SeedState:
        if parts.config.seeds == 1:
            return lane(seeds, fresh_row, {n: values[0] for n, values in numbers.items()})
        every = sharding_of(parts.config).each_seed(lane, (0, None, 0))
        return every(seeds, fresh_row, dict(numbers))

    return compile_loop(parts, all_lanes)


def _train(
    parts: Parts,
    program: Program,
    lanes: Sequence[Lane],
    job: Job,
    progress: Callable[[float], None],
) -> tuple[RunState, list[Row], float]:
    """The state after the last update, every lane's curve, and the seconds; from a checkpoint."""
    config, folder = parts.config, Path(job["folder"])
    checkpoint.remove_leftovers(folder)
    template = run_template(parts)
    found = checkpoint.load_newest(folder, lambda read: checkpoint.restore(read, template))
    if found is None:
        state, curves = init_lanes(parts, lanes), empty_curves(job, lanes)
        update, seconds = 0, 0.0
    else:
        loaded, state, passed = found
        checkpoint.set_aside(passed)
        curves, update = loaded.meta["curves"], loaded.meta["update"]
        seconds = loaded.meta["seconds"]
    saved = began = time.monotonic()
    while update < config.updates:
        state = program(state, jnp.int32(min(config.log_every, config.updates - update)))
        update = int(state.update)
        _check_finite(state, lanes, update)
        add_point(curves, state, lanes, job["score"])
        progress(update / config.updates)
        if time.monotonic() - saved >= config.checkpoint_seconds or update == config.updates:
            saved = time.monotonic()
            meta: dict[str, Any] = {"update": update, "seconds": seconds + saved - began}
            checkpoint.save(folder, state, meta | {"curves": curves}, machine.versions())
    return state, curves, seconds + time.monotonic() - began


def _check_finite(state: RunState, lanes: Sequence[Lane], update: int) -> None:
    finite = np.atleast_1d(jax.device_get(state.seed.finite))
    if not finite.all():
        lane = lanes[int(np.argmin(finite))]
        raise TrainingDiverged(
            f"the loss or a parameter of {lane.setting}, seed {lane.seed} is no longer finite at "
            f"update {update}"
        )
