"""The loop of every run: calls its program until the last update, logs, saves, handles early ends.

`clew train` runs one with rows of metrics; a study runs one for every pack of its cells.
"""

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.processes import stopping_signals
from clew.envs.spaces import NOTHING_ALLOWED
from clew.errors import StoppedAtOnce, UserError
from clew.interact.host_rollout import RolloutStopped
from clew.names import is_reference
from clew.run import checkpoint, machine
from clew.run.best import Best, Score
from clew.run.build import Parts
from clew.run.compiled import Program
from clew.run.config import TrainConfig
from clew.run.evaluation import Evaluation, is_due
from clew.run.lanes import Lane
from clew.run.metrics import LogPoint, Row, RunLog
from clew.run.progress import Callback, Progress, Report
from clew.run.updates import RunState, run_template

CALL_SECONDS = 1.0
"""How long one call of the program should take, and so how long Ctrl-C waits."""
THREADS = "threads"
"""Key in the meta values of a checkpoint: the number of threads that computed."""


class TrainingDiverged(UserError):
    """The loss or a parameter became infinite or NaN."""


class EnvironmentFailed(UserError):
    """Gymnasium environments failed more often than the run allows; the run was saved."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped and saved; the message says how to resume."""


class Runner:
    """One run, from its newest checkpoint or its beginning to its last update.

    Call `prepare`, then `run`, then `close`; call `close` also after an error.

    Args:
        parts: task, network and optimiser of the run.
        lanes: the agents that train side by side, for the message if one diverges.
        run_log: records the measures at the log points.
        make_program: compiles or opens the run's program.
        init_state: makes the state before the first update.
        progress: the listener.
        callbacks: called with every report; one that returns True ends the run.
        evaluation: plays evaluations during training, as often as the settings say; None for none.
        checkpoints: their folder; None saves nothing.
        identity: of the run; a checkpoint must match it to be resumed from.
        stop: an event that ends the run after the current call of the program, or within it if a
            rollout can be dropped.
        resume_with: the command that resumes the run, for messages; without it they name no
            checkpoint.

    Attributes:
        state: after the last call of the program; `prepare` sets it.
        update: number of updates made.
        seconds: of training, including those before a resumption.
        compile_seconds: the duration of `prepare`.
    """

    state: RunState

    def __init__(
        self,
        parts: Parts,
        lanes: Sequence[Lane],
        run_log: RunLog,
        *,
        make_program: Callable[[], Program],
        init_state: Callable[[], RunState],
        progress: Progress,
        callbacks: Sequence[Callback] = (),
        evaluation: Evaluation | None = None,
        checkpoints: Path | None = None,
        identity: checkpoint.Identity | None = None,
        stop: threading.Event | None = None,
        resume_with: str = "",
    ):
        self._parts, self._config, self._lanes = parts, parts.config, lanes
        self._run_log, self._progress, self._callbacks = run_log, progress, callbacks
        self._make_program, self._init_state = make_program, init_state
        self._checkpoints, self._stop = checkpoints, stop or threading.Event()
        self._resume_with = resume_with
        self._identity = identity or checkpoint.Identity("", (parts.config.digest(),))
        self._evaluation = evaluation
        self._best = Best(parts.config.seeds, evaluated=evaluation is not None)
        self._program: Program | None = None
        self.update, self.seconds, self.compile_seconds = 0, 0.0, 0.0
        self._saved: int | None = None  # the newest checkpoint's update
        self._saved_at = 0.0
        self._loaded: dict[str, Any] = {}  # meta values of the checkpoint
        self._calling = False
        self._all_logged = True  # whether every row that was due is written
        self._logged = 0, 0.0  # update and seconds of the last log point, or of the beginning

    @property
    def complete(self) -> bool:
        """Whether every update is made."""
        return self.update >= self._config.updates

    @property
    def best(self) -> Sequence[Score]:
        """The scores of the best agents, one for each seed; empty until every seed has one."""
        return self._best.scores if self._best.complete else ()

    def prepare(self) -> None:
        """Loads the newest usable checkpoint, if there is any, and makes the program.

        Raises:
            CheckpointError: if there are checkpoints but none is usable.
        """
        began = time.perf_counter()
        found = None
        if self._checkpoints is not None:
            checkpoint.remove_leftovers(self._checkpoints)
            found = checkpoint.load_newest(self._checkpoints, self._restore)
        if found is None:
            self._begin()
            self._say_replay()
        else:
            self._resume(*found)
        self.compile_seconds = time.perf_counter() - began

    def run(self) -> None:
        """Trains from the state after `prepare` to the last update.

        Raises:
            TrainingDiverged: at the first update with a loss or parameter that is not finite.
            TrainingInterrupted: after the stop event, with everything saved.
            EnvironmentFailed: if Gymnasium environments fail too often, with everything saved.
        """
        self._run_log.open(self.update, self._loaded)
        for row in self._run_log.rows():
            self._best.follow(row)
        self._save()
        if self._program is not None:
            self._progress.phase("training")
            with self._rescued(self._program):
                self._loop(self._program)
        self._save()

    def close(self) -> None:
        """Closes the program, which may have environments open, and the log."""
        if self._program is not None:
            self._program.close()
        self._run_log.close()

    def _restore(self, read: checkpoint.Checkpoint) -> RunState:
        template = run_template(self._parts)
        state = checkpoint.restore(self._identity.check(read), template.with_replay(()))
        if not jax.tree.leaves(template.replay):
            return state
        return state.with_replay(checkpoint.restore(checkpoint.read_replay(read), template.replay))

    def _begin(self) -> None:
        self._progress.phase("compiling")
        # The first state takes long to compile too, so both compile at once on two cores. The
        # program is made on this thread, where JAX settings in a caller's `with` block apply.
        with ThreadPoolExecutor(1) as pool:
            state = pool.submit(self._init_state)
            self._program = self._make_program()
            self.state = state.result()

    def _say_replay(self) -> None:
        """Reports the size of the replay buffer, and refuses one whose checkpoints do not fit.

        Raises:
            UserError: if the disk is too small for the kept checkpoints and a new one.
        """
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.replay))
        if not size:
            return
        where = "memory"
        if self._checkpoints is not None:
            files = checkpoint.KEEP + 1
            free = shutil.disk_usage(self._checkpoints.parent).free
            # The files that a resumed run already has will make room for its new ones.
            room = free + checkpoint.size_of_replays(self._checkpoints)
            if files * size > room:
                raise UserError(
                    f"checkpoints of the replay buffer take {files * size / 1e6:,.0f} MB "
                    f"({files} files of {size / 1e6:,.0f} MB), but the disk of "
                    f"{self._checkpoints.parent} has {room / 1e6:,.0f} MB; choose a smaller "
                    "replay, or another --run-dir"
                )
            where += f", and {files * size / 1e6:,.0f} MB of checkpoints at most"
        self._progress.message(f"replay: {size / 1e6:,.1f} MB of {where}")

    def _resume(self, loaded: checkpoint.Checkpoint, state: RunState, unusable: list[Path]) -> None:
        checkpoint.set_aside(unusable)
        self.state, meta = state, loaded.meta
        try:
            self._best.load(loaded.path.parent, self._identity)
        except checkpoint.CheckpointError as error:
            self._progress.message(f"{error}; the best agents are kept from here on")
        self.update, self.seconds = meta["update"], meta.get("seconds", 0.0)
        self._saved, self._saved_at = self.update, self.seconds
        self._logged = self.update, self.seconds
        self._loaded = meta
        if self.complete:
            return
        self._progress.message(
            f"resuming from {loaded.path.name}, {self.seconds:.0f} s of training"
        )
        before, now = meta.get(THREADS), machine.threads_used()
        if isinstance(before, int) and before != now:
            self._progress.message(machine.other_machine("threads", before, now))
        self._progress.phase("compiling")
        self._program = self._make_program()

    def _loop(self, program: Program) -> None:
        config = self._config
        rate, per_update = 0.0, CALL_SECONDS
        while self.update < config.updates:
            if self._stop.is_set():
                raise self._interrupted()
            to_log_point = config.log_every - self.update % config.log_every
            in_time = max(1, int(CALL_SECONDS / per_update))
            count = min(to_log_point, config.updates - self.update, in_time)
            elapsed = self._call(program, count)
            per_update = elapsed / count
            rate = config.steps_per_update * config.seeds / per_update
            self._all_logged = False
            row = self._log(program)
            if row:
                self._best.see(row, self.state)
            self._all_logged = True
            rate = row["rate"] if row else rate
            report = self._report(rate, row)
            self._progress.report(report)
            ended = [callback(report) is True for callback in self._callbacks]
            if any(ended):
                return
            if self.seconds - self._saved_at >= config.checkpoint_seconds:
                self._save()

    def _call(self, program: Program, count: int) -> float:
        """Makes `count` updates and returns the seconds that they took."""
        began = time.perf_counter()
        self._calling = True
        try:
            self.state = program(self.state, jnp.int32(count))
        except RolloutStopped:
            self._take_whole(program)
            raise self._interrupted() from None
        except EnvironmentFault as fault:
            self._take_whole(program)
            if self._stop.is_set():  # the signal may have reached the environments too
                raise self._interrupted() from fault
            raise self._failed(fault) from fault
        finite = np.atleast_1d(jax.device_get(self.state.seed.finite))
        elapsed = time.perf_counter() - began
        self._calling = False
        self.update = int(self.state.update)
        self.seconds += elapsed
        if not finite.all():
            raise self._diverged(int(np.argmin(finite)))
        return elapsed

    def _log(self, program: Program) -> Row | None:
        """Logs this update if it is due, and returns the row of metrics, if there is one."""
        config = self._config
        if self.update % config.log_every and not self.complete:
            return None
        update, seconds = self._logged
        steps = (self.update - update) * config.steps_per_update * config.seeds
        self._logged = self.update, self.seconds
        rate = steps / (self.seconds - seconds)
        sums, measured = self.state.seed.sums, program.measured() | self._evaluated()
        return self._run_log.log(LogPoint(self.update, self.seconds, rate, sums, measured))

    def _evaluated(self) -> dict[str, Any]:
        """The metrics of an evaluation after this update, if one is due."""
        if self._evaluation is None or not is_due(self._config, self.update):
            return {}
        self._progress.phase("evaluating")
        found = self._evaluation(self.update, self.state.seed)
        self._progress.phase("training")
        return found

    def _report(self, rate: float, row: Row | None) -> Report:
        """The progress of the run, with a rate in environment steps of all seeds per second."""
        config, per_update = self._config, self._config.steps_per_update
        seconds_left = (config.updates - self.update) * per_update * config.seeds / rate
        if self._evaluation is not None:
            seconds_left += self._evaluation.seconds_left(self.update)
        steps, total = self.update * per_update, config.updates * per_update
        return Report(steps, total, rate, self.seconds, seconds_left, row)

    def _save(self) -> None:
        """Writes a checkpoint, after the rows before it, unless it is already written."""
        if self._saved == self.update:
            return
        if self._checkpoints is not None:
            self._progress.phase("saving")
            self._run_log.sync()
            meta: dict[str, Any] = {"update": self.update, "seconds": self.seconds}
            meta[THREADS] = machine.threads_used()
            meta |= self._identity.meta() | self._run_log.meta()
            self._best.save(self._checkpoints, self._identity)
            state, replay = self.state.with_replay(()), self.state.replay
            checkpoint.save(self._checkpoints, state, meta, machine.versions(), replay)
            self._progress.phase("training")
        self._saved, self._saved_at = self.update, self.seconds

    def _interrupted(self) -> TrainingInterrupted:
        self._save()
        return TrainingInterrupted(
            f"stopped after {self._steps} steps, everything is saved; resume with: "
            f"{self._resume_with}"
        )

    @contextlib.contextmanager
    def _rescued(self, program: Program) -> Iterator[None]:
        """Saves the run before an unforeseen error ends it.

        It is not saved if rows before the state are missing on disk, since a resumed run would
        never write them, nor at a second Ctrl-C, which must not wait. If a compiled function
        raised, its state was donated, and only the newest checkpoint is left.
        """
        try:
            yield
        except (KeyboardInterrupt, EnvironmentFailed, TrainingDiverged, checkpoint.CheckpointError):
            raise  # everything that could be saved is saved
        except BaseException as error:
            with contextlib.suppress(Exception):
                if self._calling:
                    self._take_whole(program)
                if self._all_logged:
                    self._save()
            if self._saved is not None and self._checkpoints is not None and self._resume_with:
                steps = self._saved * self._config.steps_per_update
                error.add_note(
                    f"The run is saved after {steps} steps; resume with: {self._resume_with}"
                )
            raise

    def _take_whole(self, program: Program) -> None:
        """Takes the state after the last complete update of a call that raised."""
        if program.state is None:
            raise ValueError("no update was made")
        self.state = program.state
        self.update = int(self.state.update)

    def _failed(self, fault: EnvironmentFault) -> EnvironmentFailed:
        """Saves the state before an environment failed, and returns the error to raise."""
        self._save()
        half = _in_half(self._config) if isinstance(self._parts.task.action_space, Box) else []
        acted = f"; if its actions were NaN, look for {half[0]}" if half else ""
        return EnvironmentFailed(
            f"{fault}{acted}. The run is saved after {self._steps} steps; "
            f"resume with: {self._resume_with}"
        )

    def _diverged(self, index: int) -> TrainingDiverged:
        lane = self._lanes[index]
        if self._checkpoints is not None:
            self._best.save(self._checkpoints, self._identity)
        which = f" of {lane.name}" if lane.name else ""
        kept = []
        if self._checkpoints is not None and self._resume_with:
            kept = checkpoint.list_checkpoints(self._checkpoints)
        where = f"; the last good checkpoint is {kept[-1]}" if kept else ""
        return TrainingDiverged(
            f"the loss or a parameter{which} is no longer finite at update {self.update}{where}; "
            f"{self._cause(index)}"
        )

    def _cause(self, index: int) -> str:
        """Why a lane diverged: because of the task's numbers or, possibly, the settings."""
        seed, task, config = self.state.seed, self._parts.task, self._lanes[index].config
        if len(self._lanes) > 1:
            seed = jax.tree.map(lambda leaf: leaf[index], seed)
        learning, algorithm = config.learning, config.algorithm
        smaller = (
            f"try a smaller {algorithm}.learning_rate (now {learning.learning_rate:g}) or "
            f"{algorithm}.max_grad_norm (now {learning.max_grad_norm})"
        )
        look = _in_half(config)
        if self._parts.static.mask is not None:
            look.append(NOTHING_ALLOWED)
        if is_reference(config.memory):
            look.append(f"outputs of {config.memory} that are not finite (clew check tries it)")
        try:
            task.require_finite(seed.actor, float(seed.sums["return"]))
        except EnvironmentFault as fault:
            # Nearly infinite parameters may have produced actions that are NaN.
            acted = f"; if its actions were NaN, {smaller}"
            cause = f"{fault}{acted if isinstance(task.action_space, Box) else ''}"
        else:
            cause = smaller
            if is_reference(config.env) and task.acts_on_device:
                look.append(f"observations of {config.env} that are not finite")
        return cause + (f"; look for {' and for '.join(look)}" if look else "")

    @property
    def _steps(self) -> int:
        return self.update * self._config.steps_per_update


def _in_half(config: TrainConfig) -> list[str]:
    """What half precision cannot represent; nothing for other precisions."""
    half = config.network.precision == "float16"
    return ["numbers beyond 65,504, the limit of network.precision=float16"] if half else []


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set.

    A second Ctrl-C stops at once, without saving. Further signals of other kinds have no effect,
    since a closing terminal and a scheduler send several for one stop. If SIGHUP is ignored, as
    with `nohup`, it stays ignored.

    On a thread other than the main one, signals are left alone and the event is never set.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise StoppedAtOnce
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, handle) for number in stopping_signals()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
