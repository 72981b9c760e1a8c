"""Faults of whole processes: kills, signals to groups, closed readers, leftovers."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clew.run import folder, trust
from clew.run.config import TrainConfig
from clew.run.metrics import read_metrics
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import (
    HOSTED,
    LONG,
    NO_EFFECT,
    SURVIVED,
    VARIANTS,
    Bench,
    Lost,
    begin,
    require_history,
    require_refused,
)

ENDING, GONE = 60, 20
"""Most seconds for a process to end, and for its child processes afterwards."""
HANGS = 600.0
"""Seconds of the clock for a process that is not checked meanwhile."""
FEW = 8, 25
"""Descriptors that are too few for workers, or barely enough."""
STOPPED = (0, 130, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes after them: another signal may come when Python is about to end, after saving."""
FAULTS = re.compile(
    r"steps into its episode: .*?(; reopened|The run is saved)[^\n]*\n?"
    r"(Traceback \(most recent call last\):\n( .*?\n)+[^\n]*\n)?",
    re.DOTALL,
)
"""The report of an environment that raised, with the traceback of foreign code."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Trainer:
    """A process that resumes a run, in a process group of its own.

    Args:
        path: the run's folder.
        temporary: for its temporary files; a separate folder.
        descriptors: how many it may have; 0 for those of this process.
    """

    def __init__(self, path: Path, temporary: Path, descriptors: int = 0):
        temporary.mkdir(exist_ok=True)
        self._path, self._temporary = path, temporary
        self._said: str | None = None
        limit = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors else []
        self.process = subprocess.Popen(
            [*limit, sys.executable, "-m", "clew", "train", "--resume", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONFAULTHANDLER": "1"},
        )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def wait_for_training(self) -> None:
        """Returns at its first line of progress, or at its end."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "steps/s" in line:
                return

    @property
    def is_read(self) -> bool:
        """Whether its output is still read."""
        return self.process.stderr is not None

    @property
    def collected(self) -> bool:
        """Whether its end was collected, by `kill` or by `ended`."""
        return self._said is not None

    def kill(self) -> bool:
        """Ends it at once; returns whether it was still running."""
        self.process.kill()
        self._collect()
        self.require_gone()
        return self.process.returncode == -signal.SIGKILL

    def signal(self, number: int) -> None:
        """Sends a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def hang_up(self) -> None:
        """Stops reading its output."""
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process.stderr = None

    def ended(self, codes: tuple[int, ...]) -> str:
        """Waits for its end, with one of these codes and no traceback; returns its output."""
        said = self._collect()
        if "Traceback" in FAULTS.sub("", said) or self.process.returncode not in codes:
            raise RuntimeError(f"code {self.process.returncode}: {said}")
        self.require_gone()
        return said

    def _collect(self) -> str:
        """Waits for its end; returns the output since the last reading.

        Raises:
            Lost: if it does not end; the message has its stack frames.
        """
        seconds = 0
        while self._said is None:
            try:
                self._said = self.process.communicate(timeout=1.0)[1] or ""
            except subprocess.TimeoutExpired:
                seconds += 1
                if seconds == ENDING:
                    self.process.send_signal(signal.SIGABRT)
        if seconds >= ENDING:
            raise Lost(f"{self._path}: it did not end: {self._said}")
        return self._said

    def require_gone(self) -> None:
        """Raises `Lost` if a process or a temporary file of it remains."""
        if not within(GONE, lambda: not (self._is_group() or any(self._temporary.iterdir()))):
            left = [path.name for path in self._temporary.iterdir()]
            raise Lost(f"{self._path}: left behind: {left or 'processes'}")

    def _is_group(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


def kill(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a training process at any moment; resumed, it equals another bit for bit."""
    return _killed(bench, dice, 1.2)


def kill_early(bench: Bench, dice: random.Random) -> str:
    """SIGKILL at any moment of the start: imports, compilation, the first checkpoint."""
    return _killed(bench, dice, 4.0, from_start=True)


def kill_twice(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a run that resumes from another SIGKILL, and again."""
    return _killed(bench, dice, 0.0, 0.3, 0.3)


def stop_signals(bench: Bench, dice: random.Random) -> str:
    """SIGINT, SIGTERM or SIGHUP, one or several, to a whole process group: saved, no traceback."""
    variant, path, trainer = _compiled(bench, dice)
    trainer.wait_for_training()
    sent = _send_signals(trainer, dice)
    trainer.ended(STOPPED)
    stopped = len(read_metrics(path)) < LONG // 50
    bench.resume(path, bench.long(variant))
    return SURVIVED if sent and stopped else NO_EFFECT


def closed_pipe(bench: Bench, dice: random.Random) -> str:
    """The output is no longer read, as with `| head`: the training continues to its end."""
    variant, path, trainer = _compiled(bench, dice)
    trainer.wait_for_training()
    alive = trainer.running
    trainer.hang_up()
    trainer.ended((0,))
    bench.require_same(path, bench.long(variant))
    return SURVIVED if alive else NO_EFFECT


def kill_hosted(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a run on Gymnasium environments: no row is lost, no process or file left."""
    path, trainer = _hosted(bench, dice, bench.path / "nothing")
    trainer.wait_for_training()
    time.sleep(dice.uniform(0.0, 0.8))
    killed = trainer.kill()
    _resume_hosted(path)
    return SURVIVED if killed else NO_EFFECT


def signals_to_hosted(bench: Bench, dice: random.Random) -> str:
    """Signals to the group of a run and its workers: saved, and no environment counts as failed."""
    path, trainer = _hosted(bench, dice, bench.path / "nothing")
    trainer.wait_for_training()
    sent = _send_signals(trainer, dice)
    said = trainer.ended(STOPPED)
    if "of at most" in said:
        raise Lost(f"{path}: {said}")
    stopped = len(read_metrics(path)) < HOSTED // 50
    _resume_hosted(path)
    return SURVIVED if sent and stopped else NO_EFFECT


def kill_while_hanging(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a run whose environment hangs in a worker: the worker ends as well."""
    armed = bench.path / f"armed-{bench.trials}"
    armed.write_text(f"hang {dice.randrange(300, 600)}")
    path, trainer = _hosted(bench, dice, armed, processes=2)
    within(ENDING, lambda: not (armed.exists() and trainer.running))
    hangs = not armed.exists()
    killed = trainer.kill()
    _resume_hosted(path)
    return SURVIVED if killed and hangs else NO_EFFECT


def few_descriptors(bench: Bench, dice: random.Random) -> str:
    """Too few descriptors for worker processes: a line; with more of them the run is complete."""
    config = bench.hosted(bench.new_name(), bench.path / "nothing", 2, HOSTED)
    path = write_run(config)
    trainer = Trainer(path, bench.temporary, descriptors=dice.randrange(*FEW))
    said = trainer.ended((0, 2))
    _resume_hosted(path)
    if trainer.process.returncode == 0:
        return NO_EFFECT
    return error_line(said)


def in_use(bench: Bench, dice: random.Random) -> str:
    """A run that another process trains: refused, and the other one ends normally."""
    variant, path, trainer = _compiled(bench, dice)
    trainer.wait_for_training()
    if not trainer.running:
        return NO_EFFECT
    line = require_refused(lambda: train(resume=path, progress=Quiet()), "two at once")
    trainer.ended((0,))
    bench.require_same(path, bench.long(variant))
    return line


def full_file_system(bench: Bench, dice: random.Random) -> str:
    """A file system without room: a line; with room again the run ends like another.

    Without effect on systems where users cannot mount one.
    """
    variant = "a2c"
    path = begin(bench.compiled(bench.new_name(), LONG, **VARIANTS[variant]))
    small, kept = bench.path / "small", bench.path / bench.new_name()
    small.mkdir(exist_ok=True)
    size = _used(path) + dice.randrange(4, 60)
    shell = (
        f'mount -t tmpfs -o size={size}k none "{small}" || exit 77; cp -r "{path}/." "{small}" && '
        f'"{sys.executable}" -m clew train --resume "{small}"; code=$?; '
        f'cp -r "{small}" "{kept}"; exit $code'
    )
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    if ran.returncode in (1, 77) or not kept.exists():
        return NO_EFFECT
    if "Traceback" in ran.stderr or ran.returncode not in (0, 2):
        raise RuntimeError(f"code {ran.returncode}: {ran.stderr}")
    bench.resume(kept, bench.long(variant))
    if ran.returncode == 0:
        return NO_EFFECT
    line = error_line(ran.stderr)
    if "No space left" not in line:
        raise Lost(line)
    return line


def within(seconds: float, true: Callable[[], bool], every: float = 0.02) -> bool:
    """Whether a condition becomes true.

    Args:
        seconds: most seconds to wait; those in which this process is stopped do not count, since
            the processes that it waits for may be stopped as well.
        true: the condition.
        every: seconds between two checks.
    """
    for _ in range(round(seconds / every)):
        if true():
            return True
        time.sleep(every)
    return true()


def error_line(said: str) -> str:
    """The line of the mistake or fault that ended a command; raises `Lost` if there is none."""
    for line in reversed(said.splitlines()):
        if line.startswith("error: "):
            return line
    raise Lost(f"it ended without a line: {said}")


def _used(path: Path) -> int:
    """Kilobytes that a folder takes, in pages of four."""
    files = [found.stat().st_size for found in path.rglob("*")]
    return sum(4 * -(-size // 4096) for size in files) + 4


def _compiled(bench: Bench, dice: random.Random) -> tuple[str, Path, Trainer]:
    """A long run of some variant without any update, and a process that trains it."""
    variant = dice.choice(list(VARIANTS))
    path = begin(bench.compiled(bench.new_name(), LONG, **VARIANTS[variant]))
    return variant, path, Trainer(path, bench.temporary)


def _killed(bench: Bench, dice: random.Random, *seconds: float, from_start: bool = False) -> str:
    """Kills a run's process, and the next one; resumed, it must end like an undisturbed one.

    Args:
        bench: the campaign's runs.
        dice: random numbers for the moments.
        seconds: for each process, the time within which it is killed.
        from_start: whether that time counts from its start, not from its first progress.
    """
    variant, path, trainer = _compiled(bench, dice)
    killed = True
    for number, longest in enumerate(seconds):
        if number:
            trainer = Trainer(path, bench.temporary)
        if not from_start:
            trainer.wait_for_training()
        time.sleep(dice.uniform(0.0, longest))
        killed = trainer.kill() and killed
    bench.resume(path, bench.long(variant))
    return SURVIVED if killed else NO_EFFECT


def _hosted(
    bench: Bench, dice: random.Random, armed: Path, processes: int | None = None
) -> tuple[Path, Trainer]:
    """The same on Gymnasium environments: in the trainer, in workers, or with actors."""
    if processes is None:
        processes = dice.choice([0, 2])
    asynchronous = dice.random() < 1 / 4
    changes: dict[str, Any] = {"algorithm": "ppo", "runner": "async"} if asynchronous else {}
    name = bench.new_name()
    config = bench.hosted(name, armed, 0 if asynchronous else processes, HOSTED, **changes)
    path = write_run(config)
    return path, Trainer(path, bench.temporary)


def write_run(config: TrainConfig) -> Path:
    """A run's folder before any update: the process that resumes it begins the training."""
    path = folder.new_folder(config)
    folder.write_new_config(path, config, {})
    trust.remember(path, config)
    return path


def _resume_hosted(path: Path) -> None:
    train(resume=path, progress=Quiet())
    require_history(path, HOSTED, 50)


def _send_signals(trainer: Trainer, dice: random.Random) -> bool:
    """Sends one to three signals; returns whether it ran at the first."""
    ran = trainer.running
    for _ in range(dice.randrange(1, 4)):
        time.sleep(dice.uniform(0.0, 0.4))
        if trainer.running:
            trainer.signal(dice.choice(STOPPING))
    return ran
