"""A run that trains for long in separate processes, and the faults that happen to it."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clew.files import write_text
from clew.run import checkpoint, folder, json_lines
from clew.run.checkpoint import CheckpointError
from clew.run.config import TrainConfig
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Lost, damage
from faults.processes import (
    HANGS,
    STOPPED,
    STOPPING,
    Trainer,
    error_line,
    within,
    write_run,
)

TROUBLES = ("raise", "exit", "interrupt", "chdir", "die", "hang", "nan flag", "fraction")
WAIT = 40.0
"""Seconds to wait for events that should happen soon."""


@dataclass
class Endured:
    """A run that is disturbed.

    Args:
        config: of the run.
        temporary: for its processes' temporary files.
        armed: the file that triggers trouble in its environments.
    """

    config: TrainConfig
    temporary: Path
    armed: Path
    path: Path = field(init=False)
    trainer: Trainer = field(init=False)
    may_end: bool = False
    """Whether its process may end by itself with a line, as when environments fail too often."""
    started: int = 0
    """Number of processes that trained it."""
    damaged: set[int] = field(default_factory=set)
    """Updates of rows whose bytes were changed on disk."""

    def __post_init__(self) -> None:
        self.path = write_run(self.config)
        self.start()

    def start(self) -> None:
        """Starts another process that continues."""
        self.trainer = Trainer(self.path, self.temporary)
        self.started += 1

    def go_on(self, *, disturbed: bool = True) -> None:
        """Starts another process if the last one has ended.

        Args:
            disturbed: whether something that may end it has just happened.

        Raises:
            Lost: if it has ended without a reason.
        """
        if self.trainer.running:
            return
        if not self.trainer.collected:
            said = self.trainer.ended((0, 2))
            if not (disturbed or self.may_end):
                raise Lost(f"it ended by itself: {said}")
        self.start()

    def start_anew(self) -> None:
        """Starts another process, whatever state the last one is in."""
        if self.trainer.running:
            self.trainer.process.kill()
            self.trainer.process.wait()
        self.start()

    def line(self) -> str:
        """The line with which the process ends, if its output is read."""
        said = self.trainer.ended((2,))
        return error_line(said) if self.trainer.is_read else "error: which nobody read"

    @property
    def update(self) -> int:
        """The update of the newest checkpoint."""
        return int(self.checkpoints[-1].stem.removeprefix("update-"))

    @property
    def checkpoints(self) -> list[Path]:
        """The run's checkpoints, oldest first."""
        return checkpoint.list_checkpoints(self.path / folder.CHECKPOINTS)

    def wait_until(self, true: Callable[[], bool]) -> bool:
        """Whether a condition became true, while the process ran, within `WAIT` seconds."""
        within(WAIT, lambda: not self.trainer.running or true())
        return true()

    def wait_for_progress(self) -> bool:
        """Whether it saves a checkpoint beyond the one it starts from."""
        before = self.checkpoints[-1:]
        return self.wait_until(
            lambda: self.checkpoints[-1:] not in (before, []) and self.update > 0
        )


def kill(run: Endured, dice: random.Random) -> str:
    """SIGKILL."""
    return SURVIVED if run.trainer.kill() else NO_EFFECT


def kill_in_the_start(run: Endured, dice: random.Random) -> str:
    """SIGKILL, and again while the next process starts."""
    run.trainer.kill()
    run.start()
    time.sleep(dice.uniform(0.0, 4.0))
    return SURVIVED if run.trainer.kill() else NO_EFFECT


def signals(run: Endured, dice: random.Random) -> str:
    """SIGINT, SIGTERM or SIGHUP to the group, one to three of them."""
    run.wait_for_progress()
    alive = run.trainer.running
    for _ in range(dice.randrange(1, 4)):
        run.trainer.signal(dice.choice(STOPPING))
        time.sleep(dice.uniform(0.0, 0.3))
    run.trainer.ended(STOPPED)
    return SURVIVED if alive else NO_EFFECT


def damaged_checkpoint(run: Endured, dice: random.Random) -> str:
    """SIGKILL, and the newest checkpoint is damaged, unless no other one is intact."""
    run.wait_for_progress()
    run.trainer.kill()
    whole = [path for path in run.checkpoints if _is_whole(path)]
    if len(whole) < 2 or whole[-1] != run.checkpoints[-1]:
        return NO_EFFECT
    before = whole[-1].read_bytes()
    damage(whole[-1], dice)
    return SURVIVED if whole[-1].read_bytes() != before else NO_EFFECT


def renamed_checkpoint(run: Endured, dice: random.Random) -> str:
    """SIGKILL, and an older checkpoint gets the name of a newer one."""
    run.trainer.kill()
    if not run.checkpoints:
        return NO_EFFECT
    place = run.checkpoints[-1].with_name(f"update-{run.update + dice.randrange(1, 100):09d}.clew")
    place.write_bytes(run.checkpoints[0].read_bytes())
    return SURVIVED


def torn_row(run: Endured, dice: random.Random) -> str:
    """SIGKILL, and the rows end with a partial one."""
    run.trainer.kill()
    with (run.path / folder.METRICS).open("ab") as file:
        file.write(b'{"update": 99, "steps": 4, "seco'[: dice.randrange(1, 32)])
    return SURVIVED


def damaged_row(run: Endured, dice: random.Random) -> str:
    """SIGKILL, and a bit of a row is flipped: only this row is lost, and it is set aside."""
    run.trainer.kill()
    file = run.path / folder.METRICS
    data = bytearray(file.read_bytes() if file.exists() else b"")
    lines, _ = json_lines.decode(bytes(data))
    if not lines:
        return NO_EFFECT
    line = dice.choice(lines)
    at = data.index(line.raw) + dice.randrange(len(line.raw))
    data[at] ^= 1 << dice.randrange(8)
    file.write_bytes(bytes(data))
    run.damaged.add(line.row["update"])
    return SURVIVED


def files_may_not_grow(run: Endured, dice: random.Random) -> str:
    """The system writes no more to any file: the process ends with a line."""
    return _limited(run, resource.RLIMIT_FSIZE, dice.randrange(0, 4_000))


def few_descriptors(run: Endured, dice: random.Random) -> str:
    """The system opens no more files: the process ends with a line."""
    return _limited(run, resource.RLIMIT_NOFILE, 3)


def unread_output(run: Endured, dice: random.Random) -> str:
    """Its output is no longer read: it continues."""
    if not run.trainer.is_read:
        return NO_EFFECT  # this already happened to the process
    run.trainer.hang_up()
    if not run.trainer.running:
        return NO_EFFECT
    if not run.wait_for_progress():
        raise Lost("it stood still, or ended, when nobody read its output")
    return SURVIVED


def in_use(run: Endured, dice: random.Random) -> str:
    """Another process tries to train the run as well: refused."""
    if not run.wait_for_progress():
        return NO_EFFECT
    command = [sys.executable, "-m", "clew", "train", "--resume", str(run.path)]
    other = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS)
    if not run.trainer.running:
        raise Lost("it ended when another one wanted to train it")
    if other.returncode != 2 or "in use" not in other.stderr:
        raise Accepted(f"two at once: {other.stderr}")
    return other.stderr.strip()


def moved_folder(run: Endured, dice: random.Random) -> str:
    """The run's folder is moved away until the process has ended."""
    if not run.wait_for_progress():
        return NO_EFFECT
    away = run.path.with_name(f"{run.path.name}-away")
    run.path.rename(away)
    try:
        line = run.line()
        if run.path.exists():
            raise Accepted("the folder came back")
    finally:
        away.rename(run.path)
    return line


def suspended(run: Endured, dice: random.Random) -> str:
    """SIGSTOP, and SIGCONT a few seconds later: it continues."""
    if not run.wait_for_progress():
        return NO_EFFECT
    os.kill(run.trainer.process.pid, signal.SIGSTOP)
    time.sleep(dice.uniform(0.5, 4.0))
    os.kill(run.trainer.process.pid, signal.SIGCONT)
    if not run.wait_for_progress():
        raise Lost("it did not go on")
    return SURVIVED


def environment(run: Endured, dice: random.Random) -> str:
    """Trouble in an environment: it is reopened, or the process ends with a line."""
    if not run.wait_for_progress():
        return NO_EFFECT
    write_text(run.armed, f"{dice.choice(TROUBLES)} 0")
    happened = run.wait_until(lambda: not run.armed.exists())
    run.armed.unlink(missing_ok=True)
    run.wait_for_progress()
    return SURVIVED if happened else NO_EFFECT


def kill_worker(run: Endured, dice: random.Random) -> str:
    """SIGKILL of a worker: its environments are reopened, or the process ends with a line."""
    if not run.wait_for_progress():
        return NO_EFFECT
    workers = _workers(run.trainer.process.pid)
    if not workers:
        return NO_EFFECT
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(workers), signal.SIGKILL)
    run.wait_for_progress()
    return SURVIVED


def _limited(run: Endured, what: int, number: int) -> str:
    """Lowers a limit of the process, which must end with a line."""
    if not run.wait_for_progress():
        return NO_EFFECT
    hard = resource.prlimit(run.trainer.process.pid, what)[1]
    resource.prlimit(run.trainer.process.pid, what, (number, hard))
    return run.line()


def _is_whole(path: Path) -> bool:
    try:
        checkpoint.read(path)
    except CheckpointError:
        return False
    return True


def _workers(trainer: int) -> list[int]:
    """The processes of a trainer's group that step environments: children of a fork server."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            found[int(entry.name)] = int(fields[1]), int(fields[2])  # parent, group
    group = {pid for pid, (_, number) in found.items() if number == trainer}
    return [pid for pid in group if found[pid][0] in group - {trainer}]


Fault = Callable[[Endured, random.Random], str]
ANY: tuple[Fault, ...] = (
    kill,
    kill_in_the_start,
    signals,
    damaged_checkpoint,
    renamed_checkpoint,
    torn_row,
    damaged_row,
    files_may_not_grow,
    few_descriptors,
    unread_output,
    in_use,
    moved_folder,
    suspended,
)
"""Faults that may happen to any run."""
HOSTED: tuple[Fault, ...] = (*ANY, environment, environment, kill_worker, kill_worker)
"""Faults that may happen to a run on Gymnasium environments, which are more."""
