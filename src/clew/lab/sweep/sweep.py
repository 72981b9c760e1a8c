"""A sweep from its declaration to its winner: trials, then fresh seeds."""

import contextlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import UserError, counted, one_line, require_at_least, require_choice
from clew.files import make_folder, read_json, write_json
from clew.lab.comparison import METRICS, settings_of
from clew.lab.grid import Evaluation, LocalWorkers, StudyProgress, Workers
from clew.lab.grid.results import LOGS
from clew.lab.sweep.progress import SweepProgress
from clew.lab.sweep.space import (
    Values,
    Vary,
    applicable,
    check_space,
    lane_names,
    text_of,
    unknown_setting,
    value_of,
    with_settings,
)
from clew.lab.sweep.storage import (
    GRACE,
    HEARTBEAT,
    Batch,
    SweepTrial,
    TrialDatabase,
    locked_when_free,
    open_storage,
)
from clew.lab.sweep.trials import (
    TASK,
    StudyRunner,
    Trained,
    is_compiled,
    last_tenth,
    runs_study,
    train_trials,
)
from clew.run import folder
from clew.run.build import make_parts, make_task
from clew.run.config import (
    TrainConfig,
    config_from_json,
    differences,
    keep_python_numbers,
    require_types,
)
from clew.run.folder import by_reference
from clew.run.start import read_shared_start

DECLARATION, TRIALS, FINAL = "sweep.json", "trials", "final"
BEST, DEFAULT = "best", "default"
LANES = 8
"""Number of trials that are chosen together if they can be lanes of one program."""
REFUSED = 20
"""A search ends with an error after this many consecutive settings that exclude each other."""


@dataclass(frozen=True)
class Sweep:
    """A search over training settings.

    Every trial trains `config.seeds` agents for `config.steps` steps with settings from the space;
    its score is the mean over the last tenth of training. Every memory has the same number of
    trials. The best of each is then trained with fresh seeds, beside the default.

    Raises:
        UserError: for an impossible or contradictory value.
    """

    config: TrainConfig
    """Settings of all trainings: every trial has its seeds, and its values of the varied settings
    are the default with which the best is compared."""
    vary: Vary
    """The search space: names of settings to a `Range` or values."""
    memories: tuple[str, ...] = ()
    """Memories to search and compare; by default only that of `config`."""
    trials: int = 20
    """Number of choices of settings (Optuna's trials) that are tried for every memory."""
    fresh_seeds: int = 5
    """Number of agents with which the best and the default are trained at the end; their seeds
    follow those of the trials."""
    first: tuple[Values, ...] = ()
    """Settings to try first, after the defaults."""
    score: str = ""
    """The episode metric to maximise; by default success if the task has it, otherwise return."""
    episodes: int = 100
    """Number of greedy episodes of every fresh agent after training."""
    at_once: int = 0
    """Number of trials that are chosen before any of them is scored; 0 for 8 if several can be
    trained in one program, otherwise for the number of workers."""

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        require_types(self)
        for name in ("trials", "fresh_seeds", "episodes"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("at_once", self.at_once, 0)

    def configs(self) -> dict[str, TrainConfig]:
        """The settings of every memory, by its name; they differ only in the memory."""
        config = by_reference(self.config).config
        if len(self.memories) > 1 or "," in "".join(self.memories):
            return settings_of(config, self.memories)
        label, _, memory = (self.memories or (config.memory,))[0].rpartition("=")
        return {label or memory: replace(config, memory=memory)}

    def check(self, *, trust: bool = False) -> str:
        """Refuses an impossible sweep, and returns the name of its score; nothing is trained.

        Raises:
            UserError: naming the setting, its value and what was expected, or the code of the run
                to start from, which needs consent.
        """
        if self.config.evaluate_every:
            raise UserError(
                "a sweep scores the training and evaluates the best at the end: leave "
                f"evaluate_every at 0, got {self.config.evaluate_every}"
            )
        configs = list(self.configs().values())
        for name in self.vary:
            if not any(name in applicable(config, self.vary) for config in configs):
                raise unknown_setting(name, configs[0])
        for config in configs:
            vary = applicable(config, self.vary)
            check_space(config, vary)
            read_shared_start(make_parts(config), trust=trust)
            for values in self.first:
                make_parts(with_settings(config, {n: v for n, v in values.items() if n in vary}))
        unknown = [name for values in self.first for name in values if name not in self.vary]
        if unknown:
            raise UserError(f"{unknown[0]} is in the settings to try first, but does not vary")
        has = make_task(self.config).metric_names
        if self.score:
            require_choice("score", self.score, has)
        return self.score or next(metric for metric in METRICS if metric in has)

    def to_json(self) -> dict[str, Any]:
        """The values that must match when it is resumed, as JSON."""
        return {
            "config": by_reference(self.config).config.to_json(),
            "vary": {
                n: str(v) if not isinstance(v, tuple | list) else list(v)
                for n, v in self.vary.items()
            },
            "memories": list(self.memories),
            "score": self.score,
        }


class Winner(NamedTuple):
    """The best trial of a memory, beside the default on fresh seeds."""

    trial: SweepTrial
    values: dict[str, Any]
    best: Trained
    """Scores of the fresh agents with the best settings."""
    default: Trained
    greedy: dict[str, list[float]]
    """The mean greedy score of every fresh agent, under `BEST` and `DEFAULT`."""
    by_seed: dict[str, list[float | None]]
    """Their scores in training; None where no episode ended in the last tenth."""


class SweepResult(NamedTuple):
    """The result of a sweep."""

    path: Path
    score: str
    tried: dict[str, list[SweepTrial]]
    """Every trial of each memory."""
    winners: dict[str, Winner]
    """The winners by memory; empty while other processes are still searching."""


class _Session(NamedTuple):
    """One process's part of a sweep."""

    sweep: Sweep
    path: Path
    runner: StudyRunner
    searches: dict[str, TrialDatabase]
    at_once: int


def run_sweep(
    sweep: Sweep,
    run_dir: str | Path,
    *,
    storage: str = "",
    workers: int | Workers | None = None,
    trust: bool = False,
    progress: StudyProgress | None = None,
    how_to_go_on: str = "the same call again",
) -> SweepResult:
    """Searches until every memory has its trials, then trains the best and the default again.

    Several processes may run the same sweep: each takes its own trials. Trials of a killed or lost
    process are taken by another one once their heartbeat has stopped for a minute, and continue
    from their checkpoints if these are in the same folder.

    Args:
        sweep: what to search. `trials` may be raised later; everything else is fixed.
        run_dir: the sweep's folder; created, or resumed if it exists.
        storage: the SQLAlchemy URL of a database instead of the folder's own, for machines without
            a shared disk.
        workers: as in `clew.lab.grid.run_study`; those of a cluster are for tasks written in JAX.
        trust: consent to import the code named by the run of `config.start_from`; see
            `clew.run.trust`.
        progress: the listener; by default lines on standard error.
        how_to_go_on: the command that resumes it, for the message when it is stopped.

    Raises:
        UserError: for impossible settings, a folder of another sweep, or if Optuna is missing.
        StudyInterrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    path, score = Path(run_dir).absolute(), sweep.check(trust=trust)
    configs = sweep.configs()
    compiled = is_compiled(next(iter(configs.values())))
    if not (workers is None or isinstance(workers, int) or workers.saves or compiled):
        raise UserError(
            f"--ray is for tasks written in JAX; {sweep.config.env} is resumed from this disk"
        )
    make_folder(path)
    listener = SweepProgress(progress, path)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(open_storage(path, storage))
        searches = {
            memory: TrialDatabase(
                database, folder.slug(memory), config, applicable(config, sweep.vary), sweep.trials
            )
            for memory, config in configs.items()
        }
        stack.callback(listener.leave)
        if workers is None or isinstance(workers, int):
            workers = stack.enter_context(closing(LocalWorkers(path / LOGS, workers)))
        runner = StudyRunner(workers, listener, score, how_to_go_on)
        mixable = any(lane_names(s.config, s.vary) for s in searches.values())
        at_once = sweep.at_once or (LANES if compiled and mixable else max(1, workers.size))
        session = _Session(sweep, path, runner, searches, at_once)
        with locked_when_free(path):
            _agree(path, sweep)
            for search in searches.values():
                defaults = {name: value_of(search.config, name) for name in search.vary}
                search.begin([defaults, *sweep.first])
        _search(session)
        return _finish(session)


def _agree(path: Path, sweep: Sweep) -> None:
    """Writes the declaration, or compares it with the folder's."""
    mine = json.loads(json.dumps(sweep.to_json()))
    if not (path / DECLARATION).exists():
        write_json(path / DECLARATION, mine)
        return
    there = {"config": {}} | read_json(path / DECLARATION)
    # The declaration of an earlier version may lack some settings.
    settings = (config_from_json(values["config"]) for values in (there, mine))
    changed = differences(*settings)
    changed.pop("checkpoint_seconds", None)
    changed |= {
        n: (there.get(n), mine[n]) for n in mine if n != "config" and mine[n] != there.get(n)
    }
    for name, (was, now) in changed.items():
        raise UserError(
            f"{path} holds a sweep with other settings ({name}: {one_line(was)}, now "
            f"{one_line(now)}); choose another --name, or remove that folder"
        )


def _search(session: _Session) -> None:
    """Trains batches of trials until none is left to start, or to take from a lost process."""
    idle: float | None = None
    while True:
        looked = time.monotonic()
        with locked_when_free(session.path):
            memory, batches = _next_batches(session)
        search = session.searches[memory]
        if batches:
            idle = None
            with search.leased(batches):
                for batch in batches:
                    _train(session, memory, batch)
            continue
        running = sum(t.state == "running" for s in session.searches.values() for t in s.tried())
        # By the time before the look, which may take long: what is lost was then found by it.
        if not running or idle is not None and looked - idle > GRACE + HEARTBEAT:
            return
        if idle is None:
            idle = time.monotonic()
            session.runner.progress.message(
                f"{counted(running, 'trial')} with other processes: waiting up to "
                f"{GRACE + HEARTBEAT} seconds to see whether these are still there"
            )
        time.sleep(1)


def _next_batches(session: _Session) -> tuple[str, list[Batch]]:
    """Trials left by a lost process, otherwise new trials of the memory with the most left."""
    seed = session.sweep.config.seed
    for memory, search in session.searches.items():
        if stale := search.stale:
            return memory, search.ask(stale, seed)
    memory = max(session.searches, key=lambda name: session.searches[name].left)
    search = session.searches[memory]
    return memory, search.ask(min(session.at_once, search.left), seed)


def _train(session: _Session, memory: str, batch: Batch) -> None:
    """Trains this process's trials of a batch, and records their results."""
    search = session.searches[memory]
    configs, attempts = {}, dict(batch.attempts)
    for number, values in batch.values.items():
        made = with_settings(search.config, values)
        try:
            make_parts(made)
        except UserError as error:
            if number in attempts:
                search.end(attempts.pop(number), error=str(error), refused=True)
                _require_some(search, str(error))
        else:
            configs[number] = made
    if not attempts:
        return
    session.runner.progress.enter(_standing(session))
    path = session.path / TRIALS / f"{folder.slug(memory)}-{batch.number}"
    lanes = lane_names(search.config, search.vary)
    for number, found in train_trials(configs, attempts, lanes, path, session.runner):
        search.end(attempts[number], found.scores, found.error)
        _report(session, memory, number)


def _standing(session: _Session) -> dict[str, tuple[int, int]]:
    """Finished agents and all agents, by memory."""
    seeds = session.sweep.config.seeds
    return {
        memory: (
            seeds * sum(trial.state in ("complete", "failed") for trial in search.tried()),
            seeds * search.trials,
        )
        for memory, search in session.searches.items()
    }


def _require_some(search: TrialDatabase, error: str) -> None:
    newest = search.tried()[-REFUSED:]
    if len(newest) == REFUSED and all(trial.state == "refused" for trial in newest):
        raise UserError(f"the last {REFUSED} settings exclude each other; the latest: {error}")


def _report(session: _Session, memory: str, number: int) -> None:
    """Prints a line about a trial that has ended."""
    tried = session.searches[memory].tried()
    trial, best = next(trial for trial in tried if trial.number == number), best_of(tried)
    came = trial.error if trial.score is None else f"{session.runner.score} {trial.score:.4g}"
    beside = f" (best {best.score:.4g}, trial {best.number})" if best else ""
    session.runner.progress.message(
        f"{memory}, trial {number}: {came}{beside}: {text_of(trial.values)}"
    )


def best_of(tried: Sequence[SweepTrial]) -> SweepTrial | None:
    """The trial with the highest score."""
    scored = [trial for trial in tried if trial.score is not None]
    return max(scored, key=lambda trial: trial.score or 0.0) if scored else None


def _finish(session: _Session) -> SweepResult:
    """Trains the best and the default with fresh seeds, unless other processes still search."""
    tried = {memory: search.tried() for memory, search in session.searches.items()}
    result = SweepResult(session.path, session.runner.score, tried, {})
    open_still = [t for trials in tried.values() for t in trials if t.state == "running"]
    if open_still:
        session.runner.progress.message(
            f"{counted(len(open_still), 'trial')} with other processes; the last of these trains "
            "the best with fresh seeds"
        )
        return result
    best, models = {}, {}
    for memory, trials in tried.items():
        trial = best_of(trials)
        if trial is None:
            raise UserError(
                f"no trial of {memory} has a score: {trials[-1].error}; none is trained again: fix "
                "that and raise --trials, or choose another --name"
            )
        best[memory] = trial
        config = session.searches[memory].config
        config = replace(config, seed=config.seed + config.seeds, seeds=session.sweep.fresh_seeds)
        default, winner = _model_names(memory, trial)
        models |= {default: config, winner: with_settings(config, trial.values)}
    session.runner.progress.enter({model: (0, config.seeds) for model, config in models.items()})
    evaluation = Evaluation(session.sweep.episodes, greedy=True)
    study = runs_study(models, session.runner, evaluation)
    try:
        found = session.runner.run(study, session.path / FINAL)
    except UserError as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
        session.runner.progress.message("another process trains the best with fresh seeds")
        return result
    if found.failures:
        raise UserError(f"{found.failures[0].pack}: {found.failures[0].error}")
    winners = {m: _winner(m, t, found.rows, study.score) for m, t in best.items()}
    return result._replace(winners=winners)


def _model_names(memory: str, best: SweepTrial) -> tuple[str, str]:
    """The names of the default and of the best trial, which may change with more trials."""
    name = folder.slug(memory)
    return f"{name}-{DEFAULT}", f"{name}-{BEST}-{best.number}"


def _winner(memory: str, trial: SweepTrial, rows: Sequence[dict[str, Any]], score: str) -> Winner:
    scores, greedy = dict[str, list[float | None]](), dict[str, list[float]]()
    for which, name in zip((DEFAULT, BEST), _model_names(memory, trial), strict=True):
        own = [r for r in rows if r["model"] == name and r["setting"] == TASK]
        scores[which] = [last_tenth(row, score) for row in own]
        greedy[which] = [row["mean"] for row in own]
    best, default = (Trained([v for v in scores[w] if v is not None]) for w in (BEST, DEFAULT))
    return Winner(trial, trial.values, best, default, greedy, scores)
