"""Faults of the system around a run: no room, no descriptors, no reader, no folder, no memory."""

import contextlib
import os
import random
import resource
import shutil
from collections.abc import Iterator

from clew.errors import UserError
from clew.run.progress import Lines
from clew.run.train import train
from faults.bench import (
    NO_EFFECT,
    SHORT,
    SURVIVED,
    Accepted,
    Bench,
    Lost,
    Watch,
    require_refused,
)
from small_run import newest


def files_may_not_grow(bench: Bench, dice: random.Random) -> str:
    """A limit to the size of files, from some update on: a line, and later the run continues."""
    config = bench.compiled(bench.new_name(), SHORT)
    path, said = bench.path / config.name, ""
    with contextlib.ExitStack() as stack:
        size = dice.randrange(100, 4_500)

        def begin() -> None:
            stack.enter_context(no_larger_files(size))

        try:
            train(config, progress=Watch(dice.randrange(1, SHORT - 4), begin))
        except UserError as error:
            said = str(error)
    bench.resume(path, bench.short)
    return said or NO_EFFECT


def unread_output(bench: Bench, dice: random.Random) -> str:
    """Output whose reader ends at some update, or on a full disk: the run ends as undisturbed."""
    reader, writer = os.pipe()
    stream = open(writer, "w", buffering=1)
    full = dice.random() < 0.5

    def spoil() -> None:
        if full:
            with open("/dev/full", "w") as device:
                os.dup2(device.fileno(), writer)
        os.close(reader)

    listener = Watch(dice.randrange(1, SHORT - 4), spoil, Lines(0.0, stream))
    path = train(bench.compiled(bench.new_name(), SHORT), progress=listener).path
    try:
        os.write(writer, b"\n")
        effect = False
    except OSError:
        effect = True
    with contextlib.suppress(OSError):
        stream.close()
    bench.require_same(path, bench.short)
    return SURVIVED if effect else NO_EFFECT


def removed_folder(bench: Bench, dice: random.Random) -> str:
    """The run's folder removed while it trains: a line, and the folder is not recreated."""
    config = bench.compiled(bench.new_name(), SHORT)
    path = bench.path / config.name
    watch = Watch(dice.randrange(1, SHORT - 4), lambda: shutil.rmtree(path))
    line = require_refused(lambda: train(config, progress=watch), "a run without a folder")
    if path.exists():
        raise Accepted("the folder came back")
    return line


def moved_folder(bench: Bench, dice: random.Random) -> str:
    """The run's folder moved away while it trains: a line; moved back, the run continues."""
    config = bench.compiled(bench.new_name(), SHORT)
    path = bench.path / config.name
    away = path.with_name(f"{path.name}-away")
    watch = Watch(dice.randrange(1, SHORT - 4), lambda: path.rename(away))
    line = require_refused(lambda: train(config, progress=watch), "a run without a folder")
    if path.exists():
        raise Accepted("the folder came back")
    away.rename(path)
    bench.resume(path, bench.short)
    return line


def error_of_a_listener(bench: Bench, dice: random.Random) -> str:
    """An unexpected error between two updates: the run is saved first."""
    config = bench.compiled(bench.new_name(), SHORT)
    update = dice.randrange(1, SHORT - 4)
    raised = dice.choice([MemoryError, RuntimeError, SystemExit, AssertionError, OSError])

    def fail() -> None:
        raise raised("[/red] 100% broken")

    try:
        train(config, progress=Watch(update, fail))
    except raised:
        pass
    else:
        raise Accepted(f"{raised.__name__} in a listener")
    path = bench.path / config.name
    made = newest(path)
    if int(made.stem.removeprefix("update-")) < update:
        raise Lost(f"saved {made.name}, made {update}")
    bench.resume(path, bench.short)
    return SURVIVED


@contextlib.contextmanager
def no_larger_files(size: int) -> Iterator[None]:
    """Limits the files that this process writes to this many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
