"""Runs a study: finished cells stay, the others are given to workers."""

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clew.errors import UserError, require_choice
from clew.files import make_folder
from clew.lab.grid import results
from clew.lab.grid.jobs import PACKS, checkpoints_of, make_job, run_name
from clew.lab.grid.measure import require_fixed_stream
from clew.lab.grid.packs import Pack, make_packs, pack_cost, pack_steps, split
from clew.lab.grid.progress import Standing, StudyLines, StudyProgress
from clew.lab.grid.sources import changed_code
from clew.lab.grid.study import Cell, Study, registered
from clew.lab.grid.worker import ACTIVE
from clew.lab.grid.workers import Event, LocalWorkers, Workers
from clew.run.build import make_parts, make_task
from clew.run.folder import locked
from clew.run.json_lines import Row, RowFile
from clew.run.metrics import refuse_taken_names
from clew.run.runner import stop_signals
from clew.run.start import read_shared_start

ATTEMPTS = 2
"""How often a pack is started if its worker dies."""
REPORT_SECONDS = 1.0
"""Minimum time between two reports to the listener."""


class Failure(NamedTuple):
    """A pack that could not be run."""

    pack: Pack
    error: str


class StudyResult(NamedTuple):
    """The result of a study."""

    path: Path
    """The study's folder."""
    rows: list[Row]
    """One row for every finished cell of the study, in the order of `Study.cells`."""
    failures: list[Failure]
    """Packs that failed; running the study again retries them."""


class StudyInterrupted(KeyboardInterrupt):
    """The study was stopped; the message says what is saved and how to resume."""


@dataclass
class _Session:
    """One call of `run_study`."""

    study: Study
    path: Path
    file: RowFile
    rows: list[Row]
    """The rows of the file."""
    queue: list[Pack]
    """Waiting packs, longest first."""
    finished: Counter[str]
    """Cells by model."""
    saves: bool = True
    """Whether packs are saved while they are trained."""
    attempts: Counter[Pack] = field(default_factory=Counter)
    shares: dict[Pack, float] = field(default_factory=dict)
    """Packs that are running, and the fraction of their training that is complete."""
    bases: dict[Pack, float] = field(default_factory=dict)
    """The fraction of a saved pack that was complete when this session started it."""
    failures: list[Failure] = field(default_factory=list)
    cost: float = 0.0
    """Cost of the packs finished in this session."""
    steps: float = 0.0
    began: float = field(default_factory=time.monotonic)


def run_study(
    study: Study,
    run_dir: str | Path = "runs",
    *,
    workers: int | Workers | None = None,
    keep_workers: bool = False,
    trust: bool = False,
    progress: StudyProgress | None = None,
    how_to_go_on: str = "the same call again",
) -> StudyResult:
    """Runs the cells of a study that have no result yet.

    Args:
        study: the study to run.
        run_dir: the study's folder; created, or resumed if it exists.
        workers: number of processes, by default one per core, or one if each uses the whole
            machine; or any other `Workers`.
        keep_workers: leave given `Workers` open, for another study.
        trust: consent to import the code named by the runs in the models' `start_from`; it is
            remembered, see `clew.run.trust`.
        progress: the listener; by default lines on standard error.
        how_to_go_on: the command that resumes it, for the message when it is stopped.

    Raises:
        UserError: for impossible settings, a folder in use or with results of other settings, or a
            full disk. A cell that fails does not raise; the result lists it.
        StudyInterrupted: after Ctrl-C or SIGTERM, with every finished cell saved.
    """
    if os.environ.get(ACTIVE):
        raise UserError(
            "a study was started while a worker imported this script; put the call under "
            "if __name__ == '__main__':"
        )
    given = Path(run_dir)
    path = given.absolute()
    check_study(study)
    # Building a third-party environment may have changed the current folder.
    path = given if given.absolute() == path else path
    make_folder(path)
    listener = progress or StudyLines()
    with locked(path), stop_signals() as stop, closing(RowFile(path / results.RESULTS)) as file:
        session = _open(study, path, file)
        _read_starts(session, trust)
        try:
            listener.start(path, study, _standing(session))
            for line in [*file.mended, *changed_code(study, file.rows, path)]:
                listener.message(line)
            if session.queue:
                if workers is None or isinstance(workers, int):
                    workers = LocalWorkers(path / results.LOGS, workers, whole=study.whole_machine)
                session.saves = study.resumable or workers.saves
                with nullcontext() if keep_workers else closing(workers):
                    _work(session, workers, listener, stop.is_set, how_to_go_on)
            listener.report(_standing(session))
        finally:
            listener.close()
            with suppress(OSError):  # it has checkpoints, or never had any
                (path / PACKS).rmdir()
        return StudyResult(path, results.rows_of(study, session.rows), session.failures)


def check_study(study: Study) -> None:
    """Refuses a study with an impossible model or setting; nothing is compiled or computed.

    Every setting's task is built, and every model on the first setting.

    Raises:
        UserError: naming the model or setting, and what is wrong with it.
    """
    _require_folders(study)
    first, seeds = next(iter(study.settings)), study.seeds[: 1 if study.resumable else None]
    with registered(study.memories, study.tasks):
        for model in study.models:
            try:
                make_parts(study.config(model, first, seeds))
            except UserError as error:
                raise UserError(f"{model} on {first}: {error}") from error
        for setting, form in study.settings.items():
            try:
                config = study.config(next(iter(study.models)), setting)
                task = make_task(config)
                refuse_taken_names(config, task.metric_names)
                require_choice("score", study.score, task.metric_names)
                if form.further_needs:
                    require_choice("further_needs", form.further_needs, task.metric_names)
                if study.evaluation.stream:
                    require_fixed_stream(task)
            except UserError as error:
                raise UserError(f"{setting}: {error}") from error


def _require_folders(study: Study) -> None:
    """Refuses a resumable study in which two runs would share a folder, or one would have none."""
    cells: dict[str, Cell] = {}
    for cell in study.cells() if study.resumable else []:
        name = run_name(cell)
        if cells.setdefault(name, cell) != cell:
            raise UserError(
                f"in a resumable study each run has a folder, but {cells[name].model!r} on "
                f"{cells[name].setting!r} and {cell.model!r} on {cell.setting!r} would share "
                f"{name!r}: rename one of them"
            )
        if {*name} & {*"/\\\0"}:
            raise UserError(
                f"in a resumable study each run has a folder: names of models and settings must "
                f"have no slashes, got {cell.model!r} on {cell.setting!r}"
            )


def _open(study: Study, path: Path, file: RowFile) -> _Session:
    results.refuse_other_study(study, path)
    finished = results.finished_cells(study, file.rows, path)
    results.write_study(path, study)
    packs, counts = make_packs(study, finished), Counter(cell.model for cell in finished)
    return _Session(study, path, file, list(file.rows), packs, counts)


def _read_starts(session: _Session, trust: bool) -> None:
    """Reads the runs to start from, so that a mistake is found once and not by every worker."""
    study = session.study
    fresh = [p for p in session.queue if not checkpoints_of(study, p, session.path)]
    with registered(study.memories, study.tasks):
        for pack in {pack.model: pack for pack in fresh}.values():
            config = study.config(pack.model, pack.settings[0], pack.seeds)
            if config.start_from:
                read_shared_start(make_parts(config), trust=trust)


def _work(
    session: _Session,
    pool: Workers,
    listener: StudyProgress,
    stopped: Callable[[], bool],
    how_to_go_on: str,
) -> None:
    """Keeps the workers busy until nothing is left."""
    reported = 0.0
    while session.queue or session.shares:
        if stopped():
            raise _interrupted(session, how_to_go_on)
        while session.queue and len(session.shares) < pool.size:
            pack = session.queue.pop(0)
            session.shares[pack] = 0.0
            folder = session.path if session.saves else None
            pool.submit(pack, make_job(session.study, pack, folder))
        event = pool.next(0.2)
        if event is not None and not (event.kind == "died" and stopped()):
            _take(session, event, listener)
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            listener.report(_standing(session))


def _take(session: _Session, event: Event, listener: StudyProgress) -> None:
    """Updates the session with an event."""
    pack = event.pack
    if event.kind == "progress":
        session.shares[pack] = event.share
        if session.saves:
            session.bases.setdefault(pack, event.share)
        return
    del session.shares[pack]
    made = 1.0 - session.bases.pop(pack, 0.0)
    if event.kind == "rows":
        session.file.append(event.rows)
        session.file.sync()
        session.rows += event.rows
        session.finished[pack.model] += len(event.rows)
        session.cost += made * pack_cost(session.study, pack)
        session.steps += made * pack_steps(session.study, pack)
        return
    # What cannot even start with several seeds cannot start with one of them.
    may_spare_seeds = len(pack.seeds) > 1 and (event.begun or event.kind == "died")
    session.attempts[pack] += 1
    attempts = session.attempts[pack]
    if event.kind == "died" and attempts < ATTEMPTS:
        listener.message(f"{event.error}, while at {pack}; trying that again")
        session.queue.insert(0, pack)
    elif len(pack.settings) > 1 or may_spare_seeds:
        listener.message(f"{pack}: {event.error}; trying its parts one by one")
        session.queue[:0] = split(pack)
    else:
        listener.message(f"failed: {pack}: {event.error}")
        session.failures.append(Failure(pack, event.error))
        for line in results.record_failure(session.path, pack, event.error, attempts):
            listener.message(line)


def _standing(session: _Session) -> Standing:
    study, seconds = session.study, time.monotonic() - session.began
    per_model = len(study.settings) * len(study.seeds)
    made = {pack: share - session.bases.get(pack, 0.0) for pack, share in session.shares.items()}
    cost = session.cost + sum(share * pack_cost(study, pack) for pack, share in made.items())
    steps = session.steps + sum(share * pack_steps(study, pack) for pack, share in made.items())
    waiting = sum(pack_cost(study, pack) for pack in session.queue)
    waiting += sum((1.0 - share) * pack_cost(study, p) for p, share in session.shares.items())
    return Standing(
        finished=session.finished.total(),
        total=len(study.models) * per_model,
        failed=sum(len(failure.pack.cells) for failure in session.failures),
        models={model: (session.finished[model], per_model) for model in study.models},
        working={str(pack): share for pack, share in session.shares.items()},
        rate=steps / seconds if seconds else 0.0,
        seconds=seconds,
        seconds_left=waiting * seconds / cost if cost else None,
    )


def _interrupted(session: _Session, how_to_go_on: str) -> StudyInterrupted:
    saved = begun_again = 0
    for pack in session.shares:
        if session.saves and checkpoints_of(session.study, pack, session.path):
            saved += len(pack.cells)
        else:
            begun_again += len(pack.cells)
    total = len(session.study.cells())
    parts = [f"{session.finished.total()} of {total} runs are finished and saved in {session.path}"]
    if saved:
        parts.append(f"{saved} in progress will go on from the last checkpoint")
    if begun_again:
        why = "have no checkpoint yet and " if session.saves else ""
        parts.append(f"{begun_again} in progress {why}will be begun again")
    return StudyInterrupted(f"stopped: {', '.join(parts)}; go on with: {how_to_go_on}")
