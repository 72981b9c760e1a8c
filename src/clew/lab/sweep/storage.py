"""Trials in a database that processes share: Optuna's, with its heartbeats.

The process that trains a trial records its heartbeat. Once the heartbeat has stopped for `GRACE`
seconds, the next process to look requeues the trial under its number, for any process to take.
"""

import contextlib
import datetime
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import UserError, system_error
from clew.files import open_to_append
from clew.lab.sweep.space import Range, Values, Vary, declared, is_whole
from clew.run.config import TrainConfig
from clew.run.folder import locked

if TYPE_CHECKING:
    import optuna

INSTALL = "pip install 'clew[sweep]'"
DATABASE = "sweep.db"
BATCH, TAKEN, REFUSED, ERROR = "batch", "taken", "refused", "error"
"""Attributes of a trial: the first trial of its batch, the attempt in progress, and why it has no
score."""
HEARTBEAT, GRACE = 10, 60
"""Seconds between two heartbeats, and seconds without one until a trial counts as lost."""


def import_optuna() -> Any:
    """Imports the package.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import optuna  # optional: optuna
    except ImportError as error:
        raise UserError(f"clew sweep needs Optuna: {INSTALL}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", "Heartbeat of storage")  # `TrialDatabase.leased` records it
    return optuna


@contextlib.contextmanager
def open_storage(path: Path, url: str = "") -> Iterator[Any]:
    """The database of a sweep: SQLite in its folder, or another that SQLAlchemy has a URL for.

    Raises:
        UserError: if it cannot be opened, or is a link or not a regular file.
    """
    optuna = import_optuna()
    try:
        if not url:
            os.close(open_to_append(path / DATABASE))
        storage = optuna.storages.RDBStorage(
            url or f"sqlite:///{path / DATABASE}",
            engine_kwargs={} if url else {"connect_args": {"timeout": 60}},
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
        )
    except Exception as error:  # SQLAlchemy's and the drivers' own kinds
        own = isinstance(error, OSError)
        line = system_error(error) if own else str(error).strip().partition("\n")[0]
        raise UserError(
            f"cannot open the sweep's database {url or path / DATABASE}: {line}"
        ) from error
    try:
        yield storage
    finally:  # Optuna leaves this to the garbage collector, about which Python 3.13 warns
        storage.remove_session()
        storage.engine.dispose()


class SweepTrial(NamedTuple):
    """A trial as stored in the database."""

    number: int
    values: dict[str, Any]
    score: float | None
    state: str
    """"complete", "running", "waiting", "failed", or "refused" if its settings exclude each
    other."""
    error: str = ""


class Batch(NamedTuple):
    """Trials that were started together, so that some of them can be lanes of one program."""

    number: int
    """Number of the first trial."""
    values: dict[int, dict[str, Any]]
    """Maps the number of every trial to its values, including trials that have ended."""
    attempts: dict[int, int]
    """Maps the number of each trial taken by this process to its latest attempt in the database."""


@dataclass
class TrialDatabase:
    """The trials of one memory."""

    storage: Any
    """Of `open_storage`."""
    name: str
    config: TrainConfig
    """Of every trial, except for the varied settings."""
    vary: Vary
    trials: int
    """How many to run; refused ones do not count."""
    _study: "optuna.study.Study" = field(init=False)

    def __post_init__(self) -> None:
        self._optuna = import_optuna()
        with self._readable():
            self._study = self._optuna.create_study(
                storage=self.storage,
                study_name=self.name,
                direction="maximize",
                load_if_exists=True,
            )
            if self._study.directions != [self._optuna.study.StudyDirection.MAXIMIZE]:
                raise UserError(f"the sweep's database does not maximize the score of {self.name}")
        self._space = {name: self._distribution(name, own) for name, own in self.vary.items()}

    def _distribution(self, name: str, space: Range | Sequence[Any]) -> Any:
        distributions = self._optuna.distributions
        if not isinstance(space, Range):
            return distributions.CategoricalDistribution(tuple(space))
        if is_whole(self.config, name, space):
            return distributions.IntDistribution(int(space.low), int(space.high), log=space.log)
        return distributions.FloatDistribution(space.low, space.high, log=space.log)

    def begin(self, first: Sequence[Values]) -> None:
        """Queues settings to try first; those outside the space are left out."""
        self.tried()  # reports a damaged database
        for values in first:
            try:
                known = {
                    n: declared(self.config, n, space, values.get(n))
                    for n, space in self.vary.items()
                }
            except ValueError:
                continue
            with self._readable():
                self._study.enqueue_trial(known, skip_if_exists=True)

    def tried(self) -> list[SweepTrial]:
        """Every trial, in order."""
        return [self._tried(number, trial) for number, trial in self._trials().items()]

    def _tried(self, number: int, trial: Any) -> SweepTrial:
        attributes = trial.user_attrs
        words = {"COMPLETE": "complete", "RUNNING": "running", "WAITING": "waiting"}
        state = "refused" if REFUSED in attributes else words.get(trial.state.name, "failed")
        score = trial.value if state == "complete" else None
        error = str(attributes.get(ERROR) or attributes.get(REFUSED, ""))
        return SweepTrial(number, self._values(trial), score, state, error)

    def _trials(self) -> dict[int, Any]:
        """Maps the number of every trial to its latest attempt; Optuna numbers the attempts.

        Raises:
            UserError: if the database cannot be read.
        """
        first_attempt = self._optuna.storages.RetryHeartbeatStaleTrialCallback.retried_trial_number
        numbers: dict[int, int] = {}
        newest: dict[int, Any] = {}
        with self._readable():
            for trial in self._study.get_trials(deepcopy=False):
                first = first_attempt(trial)
                number = len(numbers) if first is None else numbers[first]
                numbers.setdefault(trial.number if first is None else first, number)
                if trial.state.name != "FAIL":
                    newest[number] = trial
        return dict(sorted(newest.items()))

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # SQLAlchemy's, and Optuna's for a damaged row
            line = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            raise UserError(f"cannot read the trials of {self.name}: {line}") from error

    def _values(self, trial: Any) -> dict[str, Any]:
        """The values of a trial, checked against the sweep's declaration.

        Values may name code to import, and others may have written to the database.

        Raises:
            UserError: for a setting that does not vary, a value that it cannot have, or a finished
                trial without a value for each setting.
        """
        values = {}
        where = f"trial {trial.number} of {self.name} in the sweep's database"
        for name, value in trial.params.items():
            if name not in self.vary:
                raise UserError(f"{where} has a value of {name}, which does not vary here")
            text = self._optuna.distributions.distribution_to_json
            try:
                values[name] = declared(self.config, name, self.vary[name], value)
                if text(trial.distributions[name]) != text(self._space[name]):
                    raise ValueError("it was drawn from another space")
            except ValueError as error:
                raise UserError(
                    f"{where} has a value of {name} that this sweep does not declare: {error}"
                ) from error
        missing = [name for name in self.vary if name not in values]
        if missing and trial.state.is_finished():
            raise UserError(f"{where} has no value of {missing[0]}")
        return values

    @property
    def left(self) -> int:
        """Number of trials that no process has started."""
        begun = [
            trial
            for trial in self._trials().values()
            if REFUSED not in trial.user_attrs
            and (trial.state.name != "WAITING" or BATCH in trial.user_attrs)
        ]
        return max(0, self.trials - len(begun))

    @property
    def stale(self) -> int:
        """Number of trials to take in order to get all waiting ones of a batch that a process
        left."""
        self._requeue_stale()
        # In Optuna's order of asking.
        trials = sorted(self._trials().values(), key=lambda trial: trial.number)
        waiting = [t.user_attrs.get(BATCH) for t in trials if t.state.name == "WAITING"]
        first = next((batch for batch in waiting if batch is not None), None)
        return 0 if first is None else len(waiting) - waiting[::-1].index(first)

    def _requeue_stale(self) -> None:
        """Requeues trials whose process was lost: no heartbeat, or a kill before the first one."""
        with self._readable():
            self._optuna.storages.fail_stale_trials(self._study)
            long_ago = datetime.datetime.now() - datetime.timedelta(seconds=GRACE)
            for trial in self._trials().values():
                if trial.state.name == "RUNNING" and trial.user_attrs.get(TAKEN) != trial.number:
                    if trial.datetime_start < long_ago:
                        self._retry(trial.number)

    def _retry(self, attempt: int) -> None:
        """Requeues a trial for another process, unless it has ended."""
        with self._readable():
            identifier, failed = self._identifier(attempt), self._optuna.trial.TrialState.FAIL
            with contextlib.suppress(self._optuna.exceptions.UpdateFinishedTrialError):
                self.storage.set_trial_state_values(identifier, failed)
                retry = self.storage.get_heartbeat_stale_trial_callback()
                retry(self._study, self.storage.get_trial(identifier))

    def ask(self, count: int, seed: int) -> list[Batch]:
        """Takes waiting trials, and new ones, the most promising given all scores so far.

        The sampler's draws follow from the seed, but are not those from before a kill.
        """
        self._study.sampler = self._optuna.samplers.TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=max(1, min(10, self.trials // 2)),
            seed=(seed * 1_000_003 + len(self._trials())) % 2**32,
        )
        with self._readable():
            begun = [self._study.ask(self._space) for _ in range(count)]
            for trial in begun:
                self.storage.record_heartbeat(self._identifier(trial.number))
            attempts = {trial.number: trial for trial in begun}
            numbers = {
                t.number: number for number, t in self._trials().items() if t.number in attempts
            }
            new = [n for attempt, n in numbers.items() if BATCH not in attempts[attempt].user_attrs]
            for attempt, number in numbers.items():
                if number in new:
                    attempts[attempt].set_user_attr(BATCH, min(new))
                attempts[attempt].set_user_attr(TAKEN, attempt)
        return self._batches({number: attempt for attempt, number in numbers.items()})

    def _batches(self, attempts: Mapping[int, int]) -> list[Batch]:
        batches: dict[int, Batch] = {}
        for number, trial in self._trials().items():
            batch = trial.user_attrs.get(BATCH)
            if isinstance(batch, int):
                found = batches.setdefault(batch, Batch(batch, {}, {}))
                found.values[number] = self._values(trial)
                if number in attempts:
                    found.attempts[number] = attempts[number]
        return [batch for batch in batches.values() if batch.attempts]

    @contextlib.contextmanager
    def leased(self, batches: Sequence[Batch]) -> Iterator[None]:
        """Records heartbeats of trials, and at the end requeues those that have not ended."""
        attempts = [attempt for batch in batches for attempt in batch.attempts.values()]
        stop = threading.Event()
        thread = threading.Thread(target=self._beat, args=(attempts, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.requeue(attempts)

    def _beat(self, attempts: Sequence[int], stop: threading.Event) -> None:
        identifiers = [self._identifier(attempt) for attempt in attempts]
        while not stop.wait(HEARTBEAT):
            for identifier in identifiers:
                with contextlib.suppress(Exception):  # a busy or unavailable database
                    self.storage.record_heartbeat(identifier)

    def requeue(self, attempts: Sequence[int]) -> None:
        """Requeues those of the trials that have not ended for another process."""
        for attempt in attempts:
            self._retry(attempt)

    def end(
        self, attempt: int, scores: Sequence[float] = (), error: str = "", *, refused: bool = False
    ) -> None:
        """Records the result of a trial.

        Args:
            attempt: of the trial.
            scores: of its seeds; a trial without any counts as the worst.
            error: why it has none.
            refused: whether it was not trained, as its settings exclude each other.
        """
        states = self._optuna.trial.TrialState
        why = {REFUSED if refused else ERROR: error}
        with self._readable():
            for name, value in ({"scores": list(scores)} if scores else why).items():
                with contextlib.suppress(self._optuna.exceptions.UpdateFinishedTrialError):
                    self.storage.set_trial_user_attr(self._identifier(attempt), name, value)
            # The sampler treats a trial pruned without a value as worse than all others.
            mean = sum(scores) / len(scores) if scores else None
            state = states.COMPLETE if scores else states.PRUNED
            self._study.tell(attempt, mean, state, skip_if_finished=True)

    def _identifier(self, attempt: int) -> int:
        study = self.storage.get_study_id_from_name(self.name)
        return self.storage.get_trial_id_from_study_id_trial_number(study, attempt)


@contextlib.contextmanager
def locked_when_free(path: Path) -> Iterator[None]:
    """Waits until no other process of this folder counts or takes trials."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path))
                break
            except UserError as error:
                if not isinstance(error.__cause__, BlockingIOError):
                    raise
            time.sleep(0.05)
        yield
