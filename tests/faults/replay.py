"""Faults in a learner's replay, which has its own file beside each checkpoint."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clew.run import folder
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import (
    NO_EFFECT,
    SETTINGS,
    SHORT,
    SURVIVED,
    Accepted,
    Bench,
    begin,
    damage,
    require_refused,
)
from faults.processes import ENDING, Trainer, within
from faults.stored import resumed_past

UPDATES = 2_000
"""Updates of the runs that are killed; a checkpoint is written every four."""
WRITING = 0.01
"""Seconds after its start within which the writing of a replay is cut short."""


def kill_while_a_replay_is_written(bench: Bench, dice: random.Random) -> str:
    """SIGKILL before the last byte of a replay is written, or before its checkpoint exists."""
    path = begin(_config(bench, bench.new_name(), UPDATES, 60_000))
    trainer = Trainer(path, bench.temporary)
    trainer.wait_for_training()
    time.sleep(dice.uniform(0.0, 3.0))
    kept = path / folder.CHECKPOINTS
    within(ENDING, lambda: any(kept.glob(".*.replay.*")) or not trainer.running, every=0.0005)
    time.sleep(dice.uniform(0.0, WRITING))
    killed = trainer.kill()
    alone = [p for p in kept.glob("update-*.replay") if not p.with_suffix(".clew").exists()]
    cut = any(kept.glob(".*.replay.*")) or bool(alone)
    bench.resume(path, _whole(bench, UPDATES, 60_000))
    if any(kept.glob(".*")):
        raise Accepted("half a file, which stays")
    return SURVIVED if killed and cut else NO_EFFECT


def damaged_replay(bench: Bench, dice: random.Random) -> str:
    """The newest replay changed on disk: the run resumes from the checkpoint before it."""
    path, kept = _stopped(bench, dice)
    return _resumed_past(bench, path, partial(damage, kept[-1], dice), kept[-1])


def replay_of_another_checkpoint(bench: Bench, dice: random.Random) -> str:
    """The replay of an older checkpoint, or none, beside the newest one."""
    path, kept = _stopped(bench, dice)
    other = dice.choice([None, *kept[:-1]])

    def put() -> None:
        if other is None:
            kept[-1].unlink()
        else:
            kept[-1].write_bytes(other.read_bytes())

    return _resumed_past(bench, path, put, kept[-1])


def all_replays_damaged(bench: Bench, dice: random.Random) -> str:
    """Every replay changed: refused, naming each."""
    path, kept = _stopped(bench, dice)
    for one in kept:
        one.write_bytes(one.read_bytes()[: dice.randrange(one.stat().st_size)])
    line = require_refused(lambda: train(resume=path, progress=Quiet()), "no replay is whole")
    if any(one.name not in line for one in kept):
        raise Accepted(f"a replay that is not named: {line}")
    return line


def _config(bench: Bench, name: str, updates: int, steps: int) -> Any:
    settings = replace(SETTINGS["r2d2"], replay_steps=steps)
    return bench.compiled(name, updates, algorithm="r2d2", r2d2=settings, log_every=4)


def _whole(bench: Bench, updates: int, steps: int) -> Path:
    """The folder of an undisturbed run."""
    path = bench.path / f"replay-{updates}"
    if not path.exists():
        train(_config(bench, path.name, updates, steps), progress=Quiet())
    return path


def _stopped(bench: Bench, dice: random.Random) -> tuple[Path, list[Path]]:
    """The folder of a run that stopped at any point, and its replays, oldest first."""
    path = bench.interrupted(dice, "r2d2")
    return path, sorted((path / folder.CHECKPOINTS).glob("update-*.replay"))


def _resumed_past(bench: Bench, path: Path, spoil: Callable[[], Any], replay: Path) -> str:
    """Resumes a run after a change of its newest replay, which a warning must name."""
    resume = partial(bench.resume, path, _whole(bench, SHORT, 96))
    return resumed_past(path, spoil, resume, replay.name)
