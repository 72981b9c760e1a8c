"""Training from the command to the summary: the host's side of the loop."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.interact.tasks import HostSide
from clew.run import checkpoint, cluster, folder, machine, record
from clew.run.advice import advice
from clew.run.compiled import (
    Parts,
    Program,
    RunState,
    compile_program,
    init_run,
    make_parts,
    run_template,
)
from clew.run.config import TrainConfig
from clew.run.loggers.listen import with_loggers
from clew.run.progress import Lines, Progress
from clew.run.running import Running
from clew.run.stop import stop_signals

CALL_SECONDS = 1.0
"""What one call of the compiled program should take: how long Ctrl-C waits."""


class RunResult(NamedTuple):
    """A finished run."""

    path: Path
    summary: dict[str, Any]


def train(
    config: TrainConfig | None = None,
    *,
    resume: bool | str | Path = False,
    progress: Progress | None = None,
) -> RunResult:
    """Trains an agent, or goes on training it.

    Args:
        config: the settings; the default ones if None.
        resume: True goes on with the run that `config` names, a path or a run's name with that
            one; `config` may then be None. A folder's own settings hold; only `steps` may be
            raised, and loggers, devices and Ray cluster changed.
        progress: who is told; by default lines on standard error.

    Returns:
        The run's folder and its summary.

    Raises:
        UserError: for impossible settings, an existing or missing run, a run in use, unusable
            checkpoints, a full disk.
        EnvironmentFailed: where environments of others fail too often; what was made is saved.
        TrainingDiverged: at the first update with a loss or parameter that is not finite.
        TrainingInterrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    machine.use_compilation_cache()
    if resume is False:
        config = config or TrainConfig()
        config.validate()
        path = None
    else:
        path, config = folder.to_resume(config, resume)
        config.validate()
    with cluster.joined(config.asynchronous.ray):  # before there is a folder, if there is none
        path = path or folder.new_folder(config)
        listener = with_loggers(progress or Lines(), config)
        with folder.locked(path), stop_signals() as stop:
            try:
                listener.start(path, config)
                return _train(path, config, listener, stop, fresh=resume is False)
            finally:
                listener.close()


def resume_run(
    path: str | Path, *, steps: int | None = None, progress: Progress | None = None
) -> RunResult:
    """Goes on with the run at `path`, to `steps` environment steps if given; see `train`."""
    found = folder.find_run(path)
    config = folder.read_config(found)
    return train(replace(config, steps=steps or config.steps), resume=found, progress=progress)


def _train(
    path: Path, config: TrainConfig, progress: Progress, stop: threading.Event, *, fresh: bool
) -> RunResult:
    if fresh:
        folder.write_new_config(path, config)
    parts = make_parts(config)
    program, run = _prepare(path, config, parts, progress)
    if config != folder.read_config(path):
        folder.write_config(path, config)
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(contextlib.closing(record.MetricsFile(path)))
        stack.callback(getattr(program, "close", lambda: None))
        if run.saved < 0:
            run.save(metrics)
        if program is not None:
            progress.phase("training")
            _loop(run, program, metrics, stop)
        if run.saved < run.update:
            run.save(metrics)
    rows = record.read_metrics(path)
    summary = record.summarise(
        rows,
        config,
        seconds=run.seconds,
        parameters=count_parameters(run.state, config.seeds),
    )
    folder.write_json(path / folder.SUMMARY, summary)
    _draw_curve(path)
    told = advice(rows, config)
    if told:
        progress.message(told)
    return RunResult(path, summary)


def _prepare(
    path: Path, config: TrainConfig, parts: Parts, progress: Progress
) -> tuple[Program | None, Running]:
    """The run as its newest good checkpoint left it, and its program; None if it is complete."""
    checkpoints = path / folder.CHECKPOINTS
    checkpoint.remove_leftovers(checkpoints)
    template = run_template(parts)
    found = checkpoint.load_newest(checkpoints, lambda read: checkpoint.restore(read, template))
    if found is None:
        record.cut_back(path, 0, config.log_every)
        progress.phase("compiling")
        # The first state takes long to compile as well; both at once take two processors.
        with ThreadPoolExecutor(1) as pool:
            program = pool.submit(_make_program, parts, progress)
            state = init_run(parts)
            return program.result(), Running(path, config, progress, state)
    loaded, state, passed = found
    checkpoint.set_aside(passed)
    update, seconds = loaded.meta["update"], loaded.meta["seconds"]
    run = Running(path, config, progress, state, update, seconds, update)
    if update >= config.updates:
        progress.message(
            f"{path} has made its {config.steps} steps already; raise steps to train it further"
        )
        return None, run
    record.cut_back(path, update, config.log_every)
    progress.message(f"going on from {loaded.path.name}, {seconds:.0f} s of training")
    progress.phase("compiling")
    return _make_program(parts, progress), run


def _make_program(parts: Parts, progress: Progress) -> Program:
    if parts.config.runner == "async":
        from clew.run.asynchronous.program import AsyncProgram

        return AsyncProgram(parts, progress.message)
    if isinstance(parts.stream, HostSide):
        from clew.run.hosted import HostProgram

        return HostProgram(parts, progress.message)
    return compile_program(parts)


def _loop(
    run: Running, program: Program, metrics: record.MetricsFile, stop: threading.Event
) -> None:
    """Calls the compiled program until the run is complete."""
    config = run.config
    rate, per_update = 0.0, CALL_SECONDS
    run.begin()
    while run.update < config.updates:
        if stop.is_set():
            run.interrupted(metrics)
        boundary = config.log_every - run.update % config.log_every
        count = min(boundary, config.updates - run.update, max(1, int(CALL_SECONDS / per_update)))
        began = time.perf_counter()
        try:
            run.state = program(run.state, jnp.int32(count))
        except EnvironmentFault as fault:
            raise run.failed(program, metrics, fault) from fault
        finite = np.atleast_1d(jax.device_get(run.state.seed.finite))
        elapsed = time.perf_counter() - began
        run.update = int(run.state.update)
        run.seconds += elapsed
        if not finite.all():
            raise run.diverged(finite)
        per_update = elapsed / count
        rate = config.steps_per_update * config.seeds / per_update
        row = run.row(metrics, getattr(program, "measured", dict))
        rate = row["rate"] if row else rate
        run.progress.report(run.report(rate, row))
        if run.seconds - run.saved_at >= config.checkpoint_seconds:
            run.save(metrics)


def count_parameters(state: RunState, seeds: int) -> int:
    """Trained numbers of one seed's agent."""
    arrays = jax.tree.leaves(eqx.filter(state.seed.agent, eqx.is_inexact_array))
    return sum(leaf.size for leaf in arrays) // seeds


def _draw_curve(path: Path) -> None:
    """Draws curve.png; matplotlib is imported only here."""
    from clew.report.curves import draw_curve

    draw_curve(path)
