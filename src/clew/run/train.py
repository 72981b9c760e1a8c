"""Trains a run, from the settings to the summary."""

import contextlib
import shlex
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from clew.agents.encoders import is_flattened, is_stack, taken_for_symbols
from clew.envs.spaces import ActionMask, choice_sizes, named_spaces
from clew.envs.wrappers import INFO, NEEDED
from clew.errors import UserError, counted, one_line, system_error
from clew.files import write_json
from clew.interact import default_settings
from clew.interact.hosted_task import HostedTask
from clew.interact.task import HostConfig
from clew.memory.base import count_floats
from clew.names import MASK, refuse_while_importing
from clew.run import checkpoint, cluster, folder, machine, metrics
from clew.run.asynchronous.program import AsyncProgram
from clew.run.best import EPISODES
from clew.run.build import Parts, make_parts
from clew.run.compiled import Program, compile_program
from clew.run.config import EVALUATION, TrainConfig, refuse_unused
from clew.run.evaluation import Evaluation
from clew.run.folder import by_reference, completed
from clew.run.hosted import HostProgram
from clew.run.lanes import seed_lanes
from clew.run.progress import Callback, Lines, Progress, format_seconds, with_loggers
from clew.run.runner import Runner, stop_signals
from clew.run.spaces import recorded_spaces, require_same_spaces
from clew.run.start import Start, read_start
from clew.run.trust import remember, require
from clew.run.updates import init_run
from clew.stats.intervals import over_seeds

FAR = 10.0
"""The factor by which action limits may differ from 1 before a Gaussian policy is questioned."""


class RunResult(NamedTuple):
    """A finished run."""

    path: Path
    summary: dict[str, Any]

    def __str__(self) -> str:
        """The result in a few lines, as printed at the end of `clew train`."""
        summary = self.summary
        seeds = f" x {summary['seeds']} seeds" if summary["seeds"] > 1 else ""
        lines = [
            f"{summary['memory']} on {summary['env']}: {summary['steps']:,} steps{seeds} in "
            f"{format_seconds(summary['seconds'])} ({summary['rate'] or 0:,.0f} steps/s)"
        ]
        ends, evaluated = _ends(summary["final"]), summary.get("evaluation")
        if ends:
            lines.append(f"last tenth of training: {ends}")
            if summary["seeds"] > 1:
                lines.append(f"[..] 95% interval, over {over_seeds(summary['seeds'])}")
        else:
            lines.append(
                "last tenth of training: no episode ended (--wrappers.time-limit STEPS limits "
                "their length)"
            )
        if evaluated:
            came = _ends(evaluated["means"]) or "no episode ended"
            how = f"{counted(evaluated['episodes'], 'episode')}, {evaluated['actions']} actions"
            lines.append(f"evaluation at step {evaluated['steps']:,} ({how}): {came}")
        if best := summary["best"]:
            seeds = [f"{score['return']:.2f} at step {score['steps']:,}" for score in best]
            by = "evaluation" if evaluated else f"{EPISODES} episodes"
            lines.append(f"best {by}: return {', '.join(seeds)}; kept as --checkpoint best")
        curve = self.path / "curve.png"
        if curve.exists():
            lines.append(f"curve: {curve}")
        lines.append(f"next: clew evaluate {shlex.quote(str(self.path))}")
        return "\n".join(lines)


def _ends(means: dict[str, Any]) -> str:
    """Success and return with their intervals, if there are any."""
    known = [n for n in ("success", "return") if means.get(n, {}).get("mean") is not None]
    return ", ".join(f"{n} {metrics.final_text(means[n])}" for n in known)


def train(
    config: TrainConfig | None = None,
    *,
    resume: bool | str | Path = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
) -> RunResult:
    """Trains an agent, or resumes its training.

    Args:
        config: the settings; the default ones if None.
        resume: True resumes the run that `config` names, or begins it if nothing of it exists
            yet; a path or a run's name resumes that run, and `config` may then be None. The
            folder's settings apply; only `steps` may be raised, and loggers, devices, `host` and
            Ray cluster may be changed. If JAX has fewer devices than at the start of the run, the
            run continues with those, and a message says so.
        progress: the listener; by default lines on standard error.
        callbacks: functions that are called with a `Report` about once a second, between calls of
            the compiled program: steps, rate and the row of metrics, if one was written. If one
            returns True, the run ends, saved and with a summary. If one raises an exception, the
            run is saved and ends too. The numbers of a run do not depend on callbacks.
        trust: consent to import the code that a resumed run's settings name; see
            `clew.run.trust`. Settings that are given as `config` are trusted.

    Returns:
        The run's folder and its summary.

    Raises:
        UserError: for impossible settings, an existing or missing run, a run in use, unusable
            checkpoints, or a full disk.
        EnvironmentFailed: if Gymnasium environments fail too often, with everything saved.
        TrainingDiverged: at the first update with a loss or parameter that is not finite.
        TrainingInterrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    _check_call(config)
    machine.use_compilation_cache()
    path, devices, warnings = None, 0, []
    resume = folder.if_begun(config, resume)
    if config is not None or resume is False:
        config, warnings = by_reference(completed(config or TrainConfig()))
    if resume is not False:
        given = config is not None
        path, config = folder.to_resume(config, resume)
        require(path, config, trust=trust or given)
        devices = folder.read_config(path).devices
        if config.devices == devices > len(jax.devices()):
            config = replace(config, devices=0)
    assert config is not None
    parts = make_parts(config)
    if resume is False:  # after unknown names were reported
        refuse_unused(config)
        metrics.refuse_taken_names(config, parts.task.metric_names)
    config = parts.config
    start = read_start(parts, path, trust=trust)
    # First, so that no folder is made if the cluster does not answer.
    with cluster.joined(config.asynchronous.ray):
        shown = path or folder.new_folder(config)
        # Third-party environments may change the current folder.
        path = shown.absolute()
        listener = with_loggers(progress or Lines(), config)
        with folder.locked(path), stop_signals() as stop:
            try:
                listener.start(shown, config)
                if devices not in (0, config.devices):
                    warnings.append(machine.other_machine("devices", devices, config.devices))
                for line in warnings:
                    listener.message(line)
                _announce_beginning(path, shown, listener)
                summary = _train(
                    path, shown, parts, listener, callbacks, stop, start, fresh=resume is False
                )
            finally:
                listener.close()
        return RunResult(shown if shown.absolute() == path else path, summary)


def _check_call(config: object) -> None:
    """Refuses settings that are not a `TrainConfig`, and training in a module being imported."""
    refuse_while_importing()
    if config is not None and not isinstance(config, TrainConfig):
        raise UserError(f"config must be a clew.TrainConfig, got {one_line(config)}")


def resume_run(
    path: str | Path,
    *,
    steps: int | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
) -> RunResult:
    """Resumes the run at `path`, to `steps` environment steps if given; see `train`."""
    found = folder.find_run(path)
    config = folder.read_config(found)
    require(found, config, trust=trust)
    steps = config.steps if steps is None else steps
    return train(
        replace(config, steps=steps),
        resume=found,
        progress=progress,
        callbacks=callbacks,
        trust=trust,
    )


def _train(
    path: Path,
    shown: Path,
    parts: Parts,
    progress: Progress,
    callbacks: Sequence[Callback],
    stop: threading.Event,
    start: Start | None,
    *,
    fresh: bool,
) -> dict[str, Any]:
    """Trains in the folder `path`, which messages call `shown`, and returns the summary."""
    config = parts.config
    if start is not None:
        progress.message(start.message)
    if fresh:
        for line in _remarks(parts):
            progress.message(line)
        spaces = recorded_spaces(parts.task)
        saved = folder.SavedRun(config, folder.write_new_config(path, config, spaces), spaces)
    else:
        saved = folder.read_run(path)
        require_same_spaces(str(shown), saved.spaces, parts.task)
    if warning := remember(path, config):
        progress.message(warning)
    identity = saved.identity.going_on(config.digest())
    runner = Runner(
        parts,
        seed_lanes(config),
        metrics.MetricsFile(path, config, progress.message),
        make_program=partial(make_program, parts, progress, stop),
        init_state=partial(init_run, parts, start=start),
        progress=progress,
        callbacks=callbacks,
        evaluation=Evaluation(parts, progress.message) if config.evaluate_every else None,
        checkpoints=path / folder.CHECKPOINTS,
        identity=identity,
        stop=stop,
        resume_with=f"clew train --resume {shlex.quote(str(shown))}",
    )
    with contextlib.closing(runner):
        runner.prepare()
        if runner.complete:
            progress.message(
                f"{shown} has already made its {config.steps} steps; raise steps to train it "
                "further"
            )
        if (config, identity) != saved[:2]:
            folder.write_config(path, config, identity, recorded_spaces(parts.task))
        runner.run()
    return _summary(path, config, runner, progress)


def _summary(path: Path, config: TrainConfig, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Writes the summary of a run that has ended, and draws its curve."""
    rows = metrics.read_metrics(path)
    parameters = count_floats(runner.state.seed.agent) // config.seeds
    summary = metrics.summarise(
        rows,
        config,
        seconds=runner.seconds,
        parameters=parameters,
        update=runner.update,
        best=runner.best,
    )
    write_json(path / folder.SUMMARY, summary)
    if rows:  # a callback may end a run before its first
        _draw_curve(path, rows, progress)
    if advice := metrics.advice(rows, config):
        progress.message(advice)
    return summary


def _remarks(parts: Parts) -> Iterator[str]:
    """Remarks for the user before a new run begins."""
    for remarks in (_too_short, _unused, _no_scale, _unread, _pictures, _unasked):
        yield from remarks(parts)


def _too_short(parts: Parts) -> Iterator[str]:
    """Warns if the run ends before its first episode, learning or evaluation."""
    config, gathering = parts.config, parts.learner.gathering
    steps = config.updates * config.steps_per_update
    of_one, shortest = config.updates * config.learning.rollout_length, parts.task.shortest_episode
    if shortest > of_one and not gathering.whole_episodes:
        yield (
            f"warning: no episode ends within this run: one of {config.env} takes at least "
            f"{shortest:,} steps, but each of {config.learning.num_envs:,} environments makes "
            f"only {of_one:,}; raise steps, or shorten the episodes"
        )
    if gathering.starts > steps:
        yield (
            f"warning: nothing is learned in this run: {config.algorithm} begins after "
            f"{gathering.starts:,} steps, but the run has {steps:,}; raise steps, or lower "
            f"{config.algorithm}.learning_starts"
        )
    if config.evaluate_every > steps:
        yield (
            f"warning: no evaluation in this run, and so no best agent: evaluate_every is "
            f"{config.evaluate_every:,}, but the run has {steps:,} steps"
        )


def _unused(parts: Parts) -> Iterator[str]:
    """Names settings that have no effect, on this task or without another setting."""
    config, wrappers = parts.config, parts.config.wrappers
    for name in EVALUATION if not config.evaluate_every else ():
        if getattr(config, name) != getattr(TrainConfig, name):
            yield f"{name} changes nothing without evaluate_every"
    if parts.task.acts_on_device and config.host != HostConfig():
        yield f"host settings change nothing: {config.env} is written in JAX, and compiled"
    for name, needed in NEEDED.items():
        if name in wrappers.changed and not getattr(wrappers, needed):
            yield f"wrappers.{name} changes nothing without wrappers.{needed}"


def _no_scale(parts: Parts) -> Iterator[str]:
    """Tells if the given wrappers replace the default ones, which normalise rewards.

    If the algorithm was chosen too, the encoder is not the default either, and the command line
    reports both.
    """
    config, fit = parts.config, default_settings(parts.config.env)
    wrappers = config.wrappers
    scaled = wrappers.normalise_rewards or {"reward_scale", "reward_clip"} & wrappers.changed.keys()
    default = (config.algorithm, config.network.encoder) == (fit.algorithm, fit.encoder)
    if fit.normalise_rewards and default and wrappers.changed and not scaled:
        yield (
            f"rewards are not normalised, although those of {config.env} are by default: the "
            "given wrappers replace the default ones; to have both: "
            "WrapperConfig(..., normalise_rewards=True)"
        )


def _unread(parts: Parts) -> Iterator[str]:
    """Names parts of observations that the agent does not see: texts, and masks in `info`."""
    for name in parts.task.unread:
        yield (
            f"{name!r} is text, which the agent does not see; a wrapper can turn it into numbers"
        )
    if parts.task.unused_mask():
        yield (
            f'info["{MASK}"] says which actions are allowed, but is not used; to restrict the '
            f"agent to them: --wrappers.action-mask {INFO}"
        )


def _pictures(parts: Parts) -> Iterator[str]:
    """Names pictures without a convolution, and bytes that may be a small picture."""
    for name, space in named_spaces(parts.task.observation_space).items():
        if is_flattened(space, parts.config.network):
            yield (
                f"{name!r} is a picture, {list(space.shape or ())}, and without an encoder it is "
                "flattened; for convolutions: --network.encoder auto, or nature, which is faster "
                "without a GPU"
            )
        if is_stack(space, parts.config.network):
            yield (
                f"{name!r}, {list(space.shape or ())}, is read as a flat vector: a picture has "
                "three axes, so put stacked frames side by side into its channels, or leave them "
                "to the memory"
            )
        if taken_for_symbols(space, parts.config.network):
            yield (
                f"{name!r}, bytes {list(space.shape or ())}, is read as numbers up to 255, like "
                "symbols; if it is a picture: --network.encoder impala"
            )


def _unasked(parts: Parts) -> Iterator[str]:
    """Suggestions from the task's spaces that the settings do not use: masks, limits of actions."""
    config, actions = parts.config, parts.task.action_space
    named = named_spaces(parts.task.observation_space)
    if isinstance(actions, Discrete | MultiDiscrete) and config.wrappers.action_mask is None:
        size = sum(choice_sizes(actions))
        for name, space in named.items():
            if "mask" in name and space.shape == (size,) and not isinstance(space, ActionMask):
                yield (
                    f"{name!r} is observed like any other entry; if it says which actions are "
                    f"allowed: --wrappers.action-mask {name}"
                )
    gaussian = config.network.continuous == "gaussian" and config.algorithm != "sac"
    if isinstance(actions, Box) and gaussian and actions.is_bounded():
        widest, narrowest = (of(actions.high - actions.low) / 2 for of in (np.max, np.min))
        if widest > FAR or narrowest < 1 / FAR:
            yield (
                f"actions reach {narrowest:g} to {widest:g} from the middle of their limits, but a "
                "Gaussian policy begins with a deviation of 1; --network.continuous tanh scales to "
                "the limits"
            )


def _announce_beginning(path: Path, shown: Path, progress: Progress) -> None:
    """Reports that a run without checkpoints starts anew, and which rows are dropped."""
    checkpoints = checkpoint.list_checkpoints(path / folder.CHECKPOINTS)
    if checkpoints or not (path / folder.CONFIG).exists():
        return
    rows = metrics.read_metrics(path)
    dropped = f", without its rows up to update {rows[-1]['update']}" if rows else ""
    progress.message(f"{shown} has no checkpoint to resume from: it starts anew{dropped}")


def make_program(parts: Parts, progress: Progress, stop: threading.Event) -> Program:
    """The program of a run, by its runner and its kind of task."""

    def hosted(task: HostedTask) -> Program:
        if parts.config.runner == "async":
            return AsyncProgram(parts, task, progress.message)
        return HostProgram(parts, task, progress.message, stop.is_set)

    return parts.task.program(compiled=lambda task: compile_program(parts), hosted=hosted)


def _draw_curve(path: Path, rows: list[metrics.Row], progress: Progress) -> None:
    """Draws curve.png; if it cannot be written, the run is complete nevertheless."""
    from clew.report.curves import plot_runs  # start: matplotlib takes 0.4 s

    try:
        plot_runs({path.name: rows}, path / "curve.png")
    except OSError as error:
        progress.message(f"warning: no curve.png: {system_error(error)}")
