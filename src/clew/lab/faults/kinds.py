"""The kinds of faults, each a function that injects one and says what became of it.

A kind returns "survived" where the run went on or was resumed whole, or the line with which
something was refused; it raises `Lost` or `Accepted`, or whatever escaped.
"""

import contextlib
import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path

from clew.errors import UserError
from clew.lab.faults.bench import (
    LONG,
    SHORT,
    Accepted,
    Bench,
    Lost,
    Watch,
    config_of,
    damage,
    last_state,
    require_history,
    require_refused,
    untimed,
)
from clew.run import checkpoint, folder
from clew.run.progress import Lines, Quiet
from clew.run.record import read_metrics
from clew.run.stop import TrainingInterrupted
from clew.run.train import train

SURVIVED = "survived"
Kind = Callable[[Bench, random.Random], str]


def kill(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a training process at any moment; resumed, it ends bit for bit as another."""
    path = _begun(bench)
    trainer = _trainer(path)
    _wait_for_training(trainer)
    time.sleep(dice.uniform(0.0, 1.5))
    trainer.kill()
    trainer.communicate()
    bench.resume(path, bench.long)
    return SURVIVED


def kill_early(bench: Bench, dice: random.Random) -> str:
    """SIGKILL at any moment of the start: imports, compilation, the first checkpoint."""
    path = _begun(bench)
    trainer = _trainer(path)
    time.sleep(dice.uniform(0.0, 5.0))
    trainer.kill()
    trainer.communicate()
    bench.resume(path, bench.long)
    return SURVIVED


def stop_signals(bench: Bench, dice: random.Random) -> str:
    """SIGINT, SIGTERM or SIGHUP, one or several, to a whole process group: saved, no traceback."""
    path = _begun(bench)
    trainer = _trainer(path)
    _wait_for_training(trainer)
    for _ in range(dice.randrange(1, 4)):
        time.sleep(dice.uniform(0.0, 0.4))
        if trainer.poll() is None:
            number = dice.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
            os.killpg(trainer.pid, number)
    # Another one may come when all is saved and Python is about to end.
    _require_quiet(trainer, (0, 130, -signal.SIGTERM, -signal.SIGHUP))
    bench.resume(path, bench.long)
    return SURVIVED


def kill_worker(bench: Bench, dice: random.Random) -> str:
    """SIGKILL or SIGTERM of a worker of environments: the run goes on in the same process."""
    config = bench.hosted(bench.new_name(), bench.path / "nothing", processes=2)

    def end_one() -> None:
        workers = [worker.pid for worker in active_children() if worker.pid]
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(workers), dice.choice([signal.SIGKILL, signal.SIGSEGV]))

    watch = Watch(dice.randrange(4, SHORT - 4), end_one)
    return _whole_history(lambda: train(config, progress=watch).path)


def environment(bench: Bench, dice: random.Random) -> str:
    """An environment that raises, exits, is interrupted, dies, hangs or changes the folder."""
    name = dice.choice(["raise", "exit", "interrupt", "chdir", "die", "hang", "close"])
    processes = 2 if name in ("die", "hang") else dice.choice([0, 2])
    armed = bench.path / f"armed-{bench.trials}"
    armed.write_text(f"{name} {dice.randrange(5, 8 * SHORT - 50)}")
    config = bench.hosted(bench.new_name(), armed, processes)
    with contextlib.chdir(bench.path):
        return _whole_history(lambda: train(config, progress=Quiet()).path)


def wrong_values(bench: Bench, dice: random.Random) -> str:
    """NaN, a category or a number that the space does not have: refused, or opened anew."""
    name = dice.choice(["nan reward", "category", "fraction", "nan flag"])
    armed = bench.path / f"armed-{bench.trials}"
    armed.write_text(f"{name} {dice.randrange(5, 8 * SHORT - 50)}")
    config = bench.hosted(bench.new_name(), armed, dice.choice([0, 2]))
    watch = Watch()
    try:
        path, said = train(config, progress=watch).path, watch.messages
    except UserError as error:
        path, said = bench.path / config.name, [str(error)]
        train(resume=path, progress=Quiet())
    require_history(path, SHORT, 4)
    if not any("environment" in text and "steps into its episode" in text for text in said):
        raise Accepted(f"{name}: {said}")
    return said[0]


def damaged_checkpoint(bench: Bench, dice: random.Random) -> str:
    """The newest checkpoint changed on the disk: the run resumes from the one before it."""
    path = bench.interrupted(dice)
    kept = checkpoint.list_checkpoints(path / folder.CHECKPOINTS)
    before = kept[-1].read_bytes()
    damage(kept[-1], dice)
    same = kept[-1].read_bytes() == before
    with _warnings_off():
        bench.resume(path, bench.short)
    return SURVIVED if same or len(kept) > 1 else "the only one"


def foreign_checkpoint(bench: Bench, dice: random.Random) -> str:
    """A checkpoint of another run, of the same shapes, as the newest: it is not resumed from."""
    path = bench.interrupted(dice)
    config = replace(bench.compiled(bench.new_name(), SHORT), seed=1)
    other = train(config, progress=Quiet()).path / folder.CHECKPOINTS
    newest = checkpoint.list_checkpoints(other)[-1]
    shutil.copy(newest, path / folder.CHECKPOINTS / f"update-{SHORT - 1:09d}.clew")
    with _warnings_off():
        bench.resume(path, bench.short)
    return SURVIVED


def all_checkpoints_damaged(bench: Bench, dice: random.Random) -> str:
    """Every checkpoint cut short: refused, naming each."""
    path = bench.interrupted(dice)
    for kept in checkpoint.list_checkpoints(path / folder.CHECKPOINTS):
        os.truncate(kept, dice.randrange(kept.stat().st_size))
    return require_refused(lambda: train(resume=path, progress=Quiet()), "no checkpoint is whole")


def damaged_metrics(bench: Bench, dice: random.Random) -> str:
    """metrics.jsonl changed on the disk: no other row is lost by it, and none is made up."""
    path = bench.copy()
    file, whole = path / folder.METRICS, untimed(read_metrics(path))
    before = file.read_bytes().splitlines(keepends=True)
    damage(file, dice)
    left = file.read_bytes().splitlines(keepends=True)
    with _warnings_off():
        rows = untimed(read_metrics(path))
    if any(row not in whole for row in rows):
        raise Accepted("a row that nobody wrote")
    for row, line in zip(whole, before, strict=True):
        if line in left and row not in rows:
            raise Lost(f"the row of update {row['update']}, which was not damaged")
    return SURVIVED


def damaged_config(bench: Bench, dice: random.Random) -> str:
    """config.json changed on the disk: refused, or of no effect."""
    path = bench.copy()
    before = config_of(path)
    damage(path / folder.CONFIG, dice)
    try:
        after = folder.read_config(path).to_json()
    except UserError as error:
        return str(error)
    if after != before:
        raise Accepted("other settings")
    return SURVIVED


def full_disk(bench: Bench, dice: random.Random) -> str:
    """Files that may not grow, as on a full disk: a line, and afterwards the run goes on."""
    config = bench.compiled(bench.new_name(), SHORT)
    train_to = bench.path / config.name
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (dice.randrange(2_000, 60_000), limits[1]))
    said = ""
    try:
        train(config, progress=Quiet())
    except UserError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if not (train_to / folder.CONFIG).exists():
        return said
    bench.resume(train_to, bench.short)
    return said or SURVIVED


def few_descriptors(bench: Bench, dice: random.Random) -> str:
    """Too few file descriptors for worker processes: a line, and afterwards the run goes on."""
    config = bench.hosted(bench.new_name(), bench.path / "nothing", processes=2)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + dice.randrange(2, 20), limits[1]))
    said = ""
    try:
        train(config, progress=Quiet())
    except UserError as error:
        said = str(error)
    except OSError as error:
        said = f"line of the command line: {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    path = bench.path / config.name
    if (path / folder.CONFIG).exists():
        train(resume=path, progress=Quiet())
        require_history(path, SHORT, 4)
    return said or SURVIVED


def unread_output(bench: Bench, dice: random.Random) -> str:
    """Output closed or full from some moment on: the run ends as the undisturbed one."""
    reader, writer = os.pipe()
    stream = open("/dev/full" if dice.random() < 0.5 else writer, "w", buffering=1)
    os.close(reader)
    path = train(bench.compiled(bench.new_name(), SHORT), progress=Lines(0.0, stream)).path
    for close in (stream.close, partial(os.close, writer)):
        with contextlib.suppress(OSError):
            close()
    bench.require_same(path, bench.short)
    return SURVIVED


def removed_folder(bench: Bench, dice: random.Random) -> str:
    """The run's folder removed while it trains: a line, and nothing comes back."""
    config = bench.compiled(bench.new_name(), SHORT)
    path = bench.path / config.name
    watch = Watch(dice.randrange(1, SHORT - 4), lambda: shutil.rmtree(path))
    line = require_refused(lambda: train(config, progress=watch), "a run without a folder")
    if path.exists():
        raise Accepted("the folder came back")
    return line


def error_of_a_listener(bench: Bench, dice: random.Random) -> str:
    """An error that nobody foresees, between two updates: saved first."""
    config = bench.compiled(bench.new_name(), SHORT)
    update = dice.randrange(1, SHORT - 4)

    def fail() -> None:
        raise MemoryError

    with contextlib.suppress(MemoryError):
        train(config, progress=Watch(update, fail))
    path = bench.path / config.name
    made = checkpoint.list_checkpoints(path / folder.CHECKPOINTS)[-1]
    if int(made.stem.removeprefix("update-")) < update:
        raise Lost(f"saved {made.name}, made {update}")
    bench.resume(path, bench.short)
    return SURVIVED


def in_use(bench: Bench, dice: random.Random) -> str:
    """A run that another process holds: refused, and nothing of it changes."""
    path = bench.interrupted(dice)
    before = last_state(path)
    with open(path / ".lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        line = require_refused(lambda: train(resume=path, progress=Quiet()), "two at once")
    if any(before[name].tobytes() != array.tobytes() for name, array in last_state(path).items()):
        raise Lost(str(path))
    bench.resume(path, bench.short)
    return line


KINDS: dict[str, Kind] = {
    kind.__name__.replace("_", " "): kind
    for kind in (
        kill,
        kill_early,
        stop_signals,
        kill_worker,
        environment,
        wrong_values,
        damaged_checkpoint,
        foreign_checkpoint,
        all_checkpoints_damaged,
        damaged_metrics,
        damaged_config,
        full_disk,
        few_descriptors,
        unread_output,
        removed_folder,
        error_of_a_listener,
        in_use,
    )
}
"""Every kind by name."""


def _begun(bench: Bench) -> Path:
    """The folder of a long run without any update, for another process to resume."""
    config = bench.compiled(bench.new_name(), LONG)

    def stop() -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt, TrainingInterrupted):
        train(config, progress=Watch(1, stop))
    return bench.path / config.name


def _trainer(path: Path) -> "subprocess.Popen[str]":
    """A process that resumes a run, in a process group of its own."""
    command = [sys.executable, "-m", "clew", "train", "--resume", str(path)]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait_for_training(trainer: "subprocess.Popen[str]") -> None:
    assert trainer.stderr is not None
    for line in trainer.stderr:
        if "steps/s" in line:
            return


def _require_quiet(trainer: "subprocess.Popen[str]", codes: tuple[int, ...]) -> None:
    said = trainer.communicate(timeout=60)[1]
    if "Traceback" in said or trainer.returncode not in codes:
        raise RuntimeError(f"code {trainer.returncode}: {said}")


def _whole_history(run: Callable[[], Path]) -> str:
    require_history(run(), SHORT, 4)
    return SURVIVED


@contextlib.contextmanager
def _warnings_off() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
