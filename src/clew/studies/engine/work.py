"""One pack of a study from job to rows: compile, train all its seeds, evaluate each of them.

A job and its rows are plain JSON values and `run_job` is a plain function, so that any process
anywhere can do the work.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from clew.errors import UserError, require_choice
from clew.run import machine
from clew.run.config import TrainConfig, config_from_json
from clew.run.evaluate import play
from clew.run.rollout import begin, init_actor
from clew.run.stop import TrainingDiverged
from clew.run.sync import Parts, RunState, compile_program, init_run, make_parts
from clew.run.train import count_parameters
from clew.studies.engine.plugins import registered
from clew.studies.engine.study import Evaluation, Pack, Study

FORMAT = 1
BATCH = 128
"""Episodes evaluated side by side, at most."""

Job = dict[str, Any]
Row = dict[str, Any]


class Timed(NamedTuple):
    """Seconds that the parts of a pack took."""

    compile: float
    train: float
    evaluate: float


def make_job(study: Study, pack: Pack) -> Job:
    """Everything that a worker must know of a pack, as JSON values."""
    return {
        "study": study.name,
        "model": pack.model,
        "setting": pack.setting,
        "seeds": list(pack.seeds),
        "config": study.config(pack.model, pack.setting, pack.seeds).to_json(),
        "digest": study.digest(pack.model, pack.setting),
        "evaluation": dataclasses.asdict(study.evaluation),
        "score": study.score,
        "memories": dict(study.memories),
        "tasks": dict(study.tasks),
    }


def run_job(job: Job, progress: Callable[[float], None] = lambda share: None) -> list[Row]:
    """Trains and evaluates the seeds of a pack.

    Args:
        job: of `make_job`.
        progress: is told the share of the training that is behind, from time to time.

    Returns:
        One row a seed, see `docs/studies.md`.

    Raises:
        UserError: for impossible settings.
        TrainingDiverged: if a seed's loss or parameters are no longer finite.
    """
    machine.use_compilation_cache()
    with registered(job["memories"], job["tasks"]):
        config = config_from_json(job["config"])
        config.validate()
        parts = make_parts(config)
        require_choice("score", job["score"], parts.stream.metric_names)
        began = time.perf_counter()
        program = compile_program(parts)
        state = init_run(parts, job["seeds"])
        compiled = time.perf_counter()
        state, curves = _train(config, program, state, job, progress)
        trained = time.perf_counter()
        scores = evaluate_seeds(parts, state, job["seeds"], Evaluation(**job["evaluation"]))
        ended = time.perf_counter()
    timed = Timed(compiled - began, trained - compiled, ended - trained)
    parameters = count_parameters(state, config.seeds)
    return [
        _row(job, index, curve, scores[index], timed, config, parameters)
        for index, curve in enumerate(curves)
    ]


def _train(
    config: TrainConfig,
    program: Callable[[RunState, Array], RunState],
    state: RunState,
    job: Job,
    progress: Callable[[float], None],
) -> tuple[RunState, list[Row]]:
    """The state after the last update and the learning curve of every seed."""
    name, update = job["score"], 0
    curves: list[Row] = [{"steps": [], "episodes": [], name: []} for _ in job["seeds"]]
    while update < config.updates:
        count = min(config.log_every, config.updates - update)
        state = program(state, jnp.int32(count))
        seen = jax.device_get(
            (state.seed.finite, state.seed.sums["episodes"], state.seed.sums[name])
        )
        finite, episodes, totals = (np.atleast_1d(values) for values in seen)
        update = int(state.update)
        if not finite.all():
            seed = job["seeds"][int(np.argmin(finite))]
            raise TrainingDiverged(
                f"the loss or a parameter of seed {seed} is no longer finite at update {update}"
            )
        for curve, number, total in zip(curves, episodes, totals, strict=True):
            curve["steps"].append(update * config.steps_per_update)
            curve["episodes"].append(int(number))
            curve[name].append(_short(total / number) if number else None)
        progress(update / config.updates)
    return state, curves


def evaluate_seeds(
    parts: Parts, state: RunState, seeds: Sequence[int], evaluation: Evaluation
) -> list[dict[str, np.ndarray]]:
    """The metrics of every evaluation episode, by name, for each seed.

    Raises:
        UserError: if an episode does not end, or the task has no fixed stream to play.
    """
    count = min(BATCH, evaluation.episodes)
    batches = math.ceil(evaluation.episodes / count)
    one = jax.jit(partial(_play_batch, parts, evaluation, count))
    found = []
    for index, number in enumerate(seeds):
        params = state.seed.agent
        if len(seeds) > 1:
            params = jax.tree.map(lambda leaf, i=index: leaf[i], params)
        key = jax.random.fold_in(jax.random.key(evaluation.seed), number)
        keys = jax.random.split(key, batches)
        played = [
            jax.device_get(one(params, jnp.int32(batch * count), keys[batch]))
            for batch in range(batches)
        ]
        if not all(ended.all() for _, ended in played):
            raise UserError(f"an episode did not end within {evaluation.max_steps} steps")
        names = parts.stream.metric_names
        whole = {n: np.concatenate([metrics[n] for metrics, _ in played]) for n in names}
        found.append({n: values[: evaluation.episodes] for n, values in whole.items()})
    return found


def _play_batch(
    parts: Parts, evaluation: Evaluation, count: int, params: Any, first: Array, key: Array
) -> tuple[dict[str, Array], Array]:
    agent = eqx.combine(params, parts.static)
    reset_key, key = jax.random.split(key)
    if evaluation.stream:
        reset_at = getattr(parts.stream.env, "reset_at", None)
        if reset_at is None:
            raise UserError(f"{parts.config.env} has no fixed stream; set evaluation.stream off")
        opened = jax.vmap(reset_at)(first + jnp.arange(count, dtype=jnp.int32))
        actor = begin(agent, *jax.vmap(parts.stream.opened)(*opened))
    else:
        actor = init_actor(agent, parts.stream, count, reset_key)
    return play(agent, parts.stream, actor, evaluation.greedy, evaluation.max_steps, key)


def _row(
    job: Job,
    index: int,
    curve: Row,
    played: dict[str, np.ndarray],
    timed: Timed,
    config: TrainConfig,
    parameters: int,
) -> Row:
    scores, count = played[job["score"]].astype(np.float64), len(job["seeds"])
    error = float(scores.std(ddof=1)) / math.sqrt(scores.size) if scores.size > 1 else None
    evaluation = job["evaluation"]
    return {
        "format": FORMAT,
        "model": job["model"],
        "setting": job["setting"],
        "seed": job["seeds"][index],
        "mean": _short(scores.mean()),
        "standard_error": None if error is None else _short(error),
        "episodes": scores.size,
        "score": job["score"],
        "evaluation": {k: evaluation[k] for k in ("greedy", "stream", "seed")}
        | {"means": {name: _short(values.mean()) for name, values in played.items()}},
        "curve": curve,
        "steps": config.updates * config.steps_per_update,
        "parameters": parameters,
        "seconds": round(sum(timed) / count, 3),
        "pack": {"seeds": job["seeds"], **{k: round(v, 3) for k, v in timed._asdict().items()}},
        "digest": job["digest"],
        **_provenance(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@lru_cache(maxsize=1)
def _provenance() -> Row:
    return {"versions": machine.versions(), "git_commit": machine.git_commit()}


def _short(value: Any) -> float:
    """Six digits, enough for every plot and table."""
    return float(f"{float(value):.6g}")
