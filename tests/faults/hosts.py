"""Faults of Gymnasium environments and of their processes."""

import contextlib
import os
import random
import signal
from multiprocessing import active_children
from typing import Any

from clew.errors import UserError
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import (
    NO_EFFECT,
    SHORT,
    SURVIVED,
    Accepted,
    Bench,
    Watch,
    require_history,
)


def kill_worker(bench: Bench, dice: random.Random) -> str:
    """A worker of environments or an actor dies at once: the run continues in the same process."""
    asynchronous = dice.random() < 0.3
    changes: dict[str, Any] = {"algorithm": "ppo", "runner": "async"} if asynchronous else {}
    workers = 0 if asynchronous else 2
    config = bench.hosted(bench.new_name(), bench.path / "nothing", workers, **changes)
    ended: list[int] = []

    def end_one() -> None:
        found = [worker.pid for worker in active_children() if worker.pid]
        with contextlib.suppress(ProcessLookupError, IndexError):
            pid = dice.choice(found)
            os.kill(pid, dice.choice([signal.SIGKILL, signal.SIGSEGV]))
            ended.append(pid)

    watch = Watch(dice.randrange(4, SHORT - 4), end_one)
    require_history(train(config, progress=watch).path, SHORT, 4)
    noticed = any("of at most" in text for text in watch.messages)
    return SURVIVED if ended and noticed else NO_EFFECT


def environment(bench: Bench, dice: random.Random) -> str:
    """An environment that raises, exits, is interrupted, dies, hangs or changes the folder."""
    name = dice.choice(["raise", "exit", "interrupt", "chdir", "die", "hang", "close"])
    processes = 2 if name in ("die", "hang") else dice.choice([0, 2])
    armed = bench.path / f"armed-{bench.trials}"
    armed.write_text(f"{name} {dice.randrange(5, 8 * SHORT - 50)}")
    config = bench.hosted(bench.new_name(), armed, processes)
    with contextlib.chdir(bench.path):
        require_history(train(config, progress=Quiet()).path, SHORT, 4)
    return NO_EFFECT if armed.exists() else SURVIVED


def wrong_values(bench: Bench, dice: random.Random) -> str:
    """NaN, or a category or number outside of the space: refused, or reopened."""
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
    if armed.exists():
        return NO_EFFECT
    lines = [text for text in said if "environment" in text and "steps into its episode" in text]
    if not lines:
        raise Accepted(f"{name}: {said}")
    return lines[0]
