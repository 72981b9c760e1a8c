"""Trials in a database that a kill leaves whole, and that processes share: Optuna's."""

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import UserError
from clew.lab.sweep.space import Range, Values, Vary, is_whole
from clew.run.config import TrainConfig
from clew.run.folder import locked, write_text

if TYPE_CHECKING:
    import optuna

INSTALL = "pip install 'clew[sweep]'"
DATABASE, PARTS = "sweep.db", "parts"
PART, REFUSED, ERROR = "part", "refused", "error"
"""Attributes of a trial: whose it is, and why it has no score."""


def import_optuna() -> Any:
    """The package.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import optuna  # optional: optuna
    except ImportError as error:
        raise UserError(f"clew sweep needs Optuna: {INSTALL}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(path: Path, url: str = "") -> Any:
    """The database of a sweep: SQLite in its folder, or another that SQLAlchemy has a URL for.

    Raises:
        UserError: if it cannot be opened.
    """
    optuna = import_optuna()
    waiting = {} if url else {"connect_args": {"timeout": 60}}
    try:
        return optuna.storages.RDBStorage(
            url or f"sqlite:///{path / DATABASE}", engine_kwargs=waiting
        )
    except Exception as error:  # SQLAlchemy's and the drivers' own kinds
        line = str(error).strip().partition("\n")[0]
        raise UserError(
            f"cannot open the sweep's database {url or path / DATABASE}: {line}"
        ) from error


class Tried(NamedTuple):
    """A trial as the database has it."""

    number: int
    values: dict[str, Any]
    score: float | None
    state: str
    """"complete", "running", "waiting", "failed", or "refused" if its settings exclude each
    other."""
    error: str = ""


@dataclass
class Search:
    """The trials of one memory.

    Args:
        storage: of `open_storage`.
        name: of the memory.
        config: of every trial, but for what varies.
        vary: the space.
        trials: how many there are to be; refused ones do not count.
    """

    storage: Any
    name: str
    config: TrainConfig
    vary: Vary
    trials: int
    _study: "optuna.study.Study" = field(init=False)

    def __post_init__(self) -> None:
        self._optuna = import_optuna()
        self._study = self._optuna.create_study(
            storage=self.storage, study_name=self.name, direction="maximize", load_if_exists=True
        )
        self._space = {name: self._distribution(name, own) for name, own in self.vary.items()}

    def _distribution(self, name: str, space: Range | Sequence[Any]) -> Any:
        distributions = self._optuna.distributions
        if not isinstance(space, Range):
            return distributions.CategoricalDistribution(tuple(space))
        if is_whole(self.config, name, space):
            return distributions.IntDistribution(int(space.low), int(space.high), log=space.log)
        return distributions.FloatDistribution(space.low, space.high, log=space.log)

    def begin(self, first: Sequence[Values]) -> None:
        """Puts settings in front of what is searched; those outside of the space are left out."""
        for values in first:
            known = {name: values.get(name) for name in self._space}
            if all(contains(space, known[name]) for name, space in self.vary.items()):
                self._study.enqueue_trial(self._typed(known), skip_if_exists=True)

    def _typed(self, values: Values) -> dict[str, Any]:
        """Values as the database gives them back: 0 of a range of numbers is 0.0."""
        numbers = {n for n, space in self.vary.items() if isinstance(space, Range)}
        whole = self._optuna.distributions.IntDistribution
        return {
            name: value
            if name not in numbers
            else (int if isinstance(self._space[name], whole) else float)(value)
            for name, value in values.items()
        }

    def tried(self) -> list[Tried]:
        """Every trial, in order."""
        return [self._tried(trial) for trial in self._study.get_trials(deepcopy=False)]

    def _tried(self, trial: Any) -> Tried:
        attributes = trial.user_attrs
        words = {"COMPLETE": "complete", "RUNNING": "running", "WAITING": "waiting"}
        state = "refused" if REFUSED in attributes else words.get(trial.state.name, "failed")
        score = trial.value if state == "complete" else None
        error = attributes.get(ERROR) or attributes.get(REFUSED, "")
        return Tried(trial.number, dict(trial.params), score, state, error)

    @property
    def left(self) -> int:
        """Trials that are not begun."""
        begun = [t for t in self.tried() if t.state not in ("refused", "waiting")]
        return max(0, self.trials - len(begun))

    def ask(self, count: int, part: str, seed: int) -> dict[int, dict[str, Any]]:
        """New trials: number to values, the most promising given all scores so far.

        Args:
            count: how many.
            part: whose they are.
            seed: of the sampler, which must not draw again what it drew before a kill.
        """
        begun = len(self._study.get_trials(deepcopy=False))
        sampler = self._optuna.samplers.TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=max(1, min(10, self.trials // 2)),
            seed=(seed * 1_000_003 + begun) % 2**32,
        )
        study = self._optuna.load_study(storage=self.storage, study_name=self.name, sampler=sampler)
        asked = {}
        for _ in range(count):
            trial = study.ask(self._space)
            trial.set_user_attr(PART, part)
            asked[trial.number] = dict(trial.params)
        return asked

    def running(self, part: str, *, orphans: bool = False) -> dict[int, dict[str, Any]]:
        """Trials of a part that have no score yet; after a kill these are gone on with.

        Args:
            part: whose.
            orphans: whether to refuse what a kill has left without all values or without a part:
                nothing was trained of it.
        """
        found = {}
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.name != "RUNNING":
                continue
            if trial.user_attrs.get(PART) == part:
                found[trial.number] = dict(trial.params)
            elif orphans and PART not in trial.user_attrs:
                self.refuse(trial.number, "stopped before it had begun")
        return found

    def tell(self, number: int, scores: Sequence[float], error: str = "") -> None:
        """The scores of a trial's seeds; one without any counts as the worst."""
        if scores:
            self._attribute(number, "scores", list(scores))
            self._study.tell(number, sum(scores) / len(scores), skip_if_finished=True)
        else:
            self._attribute(number, ERROR, error)
            self._worst(number)

    def refuse(self, number: int, error: str) -> None:
        """A trial that was not trained: its settings exclude each other."""
        self._attribute(number, REFUSED, error)
        self._worst(number)

    def _worst(self, number: int) -> None:
        """What is pruned without a value the sampler takes for worse than all others."""
        self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED, skip_if_finished=True)

    def _attribute(self, number: int, name: str, value: Any) -> None:
        study = self.storage.get_study_id_from_name(self.name)
        trial = self.storage.get_trial_id_from_study_id_trial_number(study, number)
        self.storage.set_trial_user_attr(trial, name, value)


def contains(space: Range | Sequence[Any], value: Any) -> bool:
    """Whether a value is one of a range or of some values."""
    if not isinstance(space, Range):
        return value in space
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and space.low <= value <= space.high


class Part(NamedTuple):
    """The place of one process, which is free again when it ends in whatever way."""

    path: Path
    identifier: str
    """Of its trials in the database."""


@contextlib.contextmanager
def own_part(path: Path) -> Iterator[Part]:
    """The first place in a sweep's folder that no process has."""
    number = 0
    while True:
        with contextlib.ExitStack() as stack:
            part = enter_part(stack, path / PARTS / str(number))
            if part is not None:
                yield part
                return
        number += 1


def other_parts(path: Path, own: Part) -> list[Path]:
    """The folders of the places that other processes have or had."""
    return [p for p in sorted((path / PARTS).iterdir()) if p.is_dir() and p != own.path]


def enter_part(stack: contextlib.ExitStack, folder: Path) -> Part | None:
    """Takes a place until the stack closes; None if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _entered(stack, folder):
        return None
    file = folder / "identifier"
    if not file.exists():
        write_text(file, secrets.token_hex(8))
    return Part(folder, file.read_text(encoding="utf-8"))


def _entered(stack: contextlib.ExitStack, folder: Path) -> bool:
    try:
        stack.enter_context(locked(folder))
    except UserError as error:
        if isinstance(error.__cause__, BlockingIOError):
            return False
        raise
    return True


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process of this sweep counts or asks."""
    with contextlib.ExitStack() as stack:
        while not _entered(stack, path):
            time.sleep(0.05)
        yield
