"""A run that is interrupted in any way ends bit for bit like an uninterrupted one."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
import small_run
from clew.errors import UserError
from clew.run import checkpoint, machine
from clew.run.checkpoint import CheckpointWarning
from clew.run.config import TrainConfig
from clew.run.folder import locked
from clew.run.metrics import LogPoint, MetricsFile
from clew.run.runner import TrainingInterrupted
from slow_cases import fast_only
from small_run import (
    STEPS_PER_UPDATE,
    Watch,
    assert_same_run,
    full_disk,
    newest,
    replaying_config,
    small_config,
)

UPDATES = 128
STEPS = UPDATES * STEPS_PER_UPDATE


def short_config(folder: Path, name: str = "run", **changes: Any) -> TrainConfig:
    """That of `small_run` with fewer updates: bits are compared here, not scores."""
    return small_config(folder, name, **{"steps": STEPS, **changes})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    return clew.train(short_config(tmp_path_factory.mktemp("whole")), progress=Watch()).path


def at_update(update: int, action):
    """Calls `action` once, when the run has made this many updates."""
    waiting = [action]

    def look(report):
        if waiting and report.steps >= update * STEPS_PER_UPDATE:
            waiting.pop()()

    return Watch(look)


def stopped_at(config, update: int, number: int = signal.SIGINT) -> str:
    with pytest.raises(TrainingInterrupted) as stop:
        clew.train(config, progress=at_update(update, lambda: signal.raise_signal(number)))
    return str(stop.value)


@pytest.mark.slow
def test_raised_steps_go_on_as_if_they_had_been_so_from_the_start(tmp_path, uninterrupted):
    # 37 and 101 are not multiples of log_every: the runs end between two rows.
    short = short_config(tmp_path, steps=37 * STEPS_PER_UPDATE)
    path = clew.train(short, progress=Watch()).path
    clew.resume_run(path, steps=101 * STEPS_PER_UPDATE, progress=Watch())
    result = clew.train(short_config(tmp_path), resume=True, progress=Watch())
    assert_same_run(path, uninterrupted)
    assert json.loads((path / "config.json").read_text())["config"]["steps"] == STEPS
    assert result.summary["updates"] == UPDATES


@pytest.mark.slow
def test_a_schedule_goes_on_where_it_was(tmp_path):
    """Also if the run was stopped within its warm-up."""
    learning = clew.A2CConfig(num_envs=4, rollout_length=8, schedule="cosine", warmup_fraction=0.6)
    scheduled = {"a2c": learning, "steps": 64 * 32, "seeds": 1}
    whole = clew.train(short_config(tmp_path, "whole", **scheduled), progress=Watch()).path
    early = [lambda report: report.steps >= 16 * 32]
    ended = clew.train(short_config(tmp_path, **scheduled), progress=Watch(), callbacks=early)
    assert ended.summary["updates"] < 0.6 * 64
    assert clew.resume_run(ended.path, progress=Watch()).summary["updates"] == 64
    assert_same_run(ended.path, whole)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    "number", fast_only([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGTERM)
)
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, uninterrupted, number):
    config = short_config(tmp_path)
    before = signal.getsignal(number)
    message = stopped_at(config, 90, number)
    path = tmp_path / "run"
    assert f"clew train --resume {path}" in message
    assert signal.getsignal(number) is before
    assert not (path / "summary.json").exists()
    watch = Watch()
    clew.train(resume=path, progress=watch)
    assert "resuming from update-0000000" in watch.messages[0]
    assert_same_run(path, uninterrupted)


def test_another_number_of_threads_is_named(tmp_path, monkeypatch):
    """XLA reads the variable before it computes; here it has the value of another process."""
    monkeypatch.setenv(machine.THREADS, "2")
    clew.train(short_config(tmp_path, steps=8 * STEPS_PER_UPDATE), progress=Watch())
    monkeypatch.setenv(machine.THREADS, "3")
    watch = Watch()
    clew.train(short_config(tmp_path, steps=16 * STEPS_PER_UPDATE), resume=True, progress=watch)
    assert "threads: 2 until now, 3 from here on" in watch.messages[1]
    assert "up to rounding" in watch.messages[1]


def test_a_full_disk_can_be_locked(tmp_path, monkeypatch):
    """And other failures of a lock do not mean another process."""
    monkeypatch.setattr(os, "pwrite", full_disk)
    with locked(tmp_path), pytest.raises(UserError, match="in use by another process"):
        with locked(tmp_path):
            pass
    monkeypatch.setattr(fcntl, "flock", full_disk)
    with pytest.raises(UserError, match=f"cannot lock {tmp_path}: No space left"):
        with locked(tmp_path):
            pass


class Unforeseen(Exception):
    """An exception that nothing catches."""


def test_an_unforeseen_error_saves_first(tmp_path, uninterrupted):
    """And it says so; at a log point and between two."""
    path = tmp_path / "run"

    def fail(update: int, error: Exception):
        def raise_error() -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            resume = (path / "config.json").exists()
            clew.train(
                short_config(tmp_path), resume=resume, progress=at_update(update, raise_error)
            )
        made = checkpoint.read(newest(path)).meta["update"]
        assert made >= update
        assert f"saved after {made * STEPS_PER_UPDATE} steps" in caught.value.__notes__[0]

    fail(88, Unforeseen())
    fail(91, UserError("no more processes"))
    clew.train(resume=path, progress=Watch())
    assert_same_run(path, uninterrupted)


def test_an_error_before_its_row_is_written_saves_nothing(tmp_path, uninterrupted, monkeypatch):
    """Otherwise a resumed run would lack the row."""

    def fail(self: MetricsFile, point: LogPoint) -> None:
        raise Unforeseen

    with monkeypatch.context() as patch, pytest.raises(Unforeseen):
        patch.setattr(MetricsFile, "log", fail)
        clew.train(short_config(tmp_path), progress=Watch())
    clew.train(resume=tmp_path / "run", progress=Watch())
    assert_same_run(tmp_path / "run", uninterrupted)


def test_another_current_folder_changes_nothing(tmp_path, uninterrupted, monkeypatch):
    """A foreign environment may change it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    config = short_config(Path("runs"), checkpoint_seconds=0.0)
    result = clew.train(config, progress=at_update(90, lambda: os.chdir(elsewhere)))
    assert result.path == tmp_path / "runs" / "run"
    assert not list(elsewhere.iterdir())
    assert_same_run(result.path, uninterrupted)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_removed_folder_stops_the_run(tmp_path, uninterrupted, seconds):
    """At its next row or checkpoint, with a line that says so; the folder is not recreated."""
    path = tmp_path / "run"
    config = short_config(tmp_path, checkpoint_seconds=seconds)
    with pytest.raises(UserError, match="was removed"):
        clew.train(config, progress=at_update(90, lambda: shutil.rmtree(path)))
    assert not path.exists()


def test_a_finished_run_says_so_and_stays(tmp_path, uninterrupted):
    watch = Watch()
    before = {p: p.read_bytes() for p in uninterrupted.rglob("*.clew")}
    result = clew.train(resume=uninterrupted, progress=watch)
    assert f"has already made its {STEPS} steps" in watch.messages[0]
    assert "compiling" not in watch.phases
    assert result.summary["steps"] == STEPS
    assert before == {p: p.read_bytes() for p in uninterrupted.rglob("*.clew")}


def test_a_damaged_checkpoint_costs_only_the_work_since_the_one_before(tmp_path, uninterrupted):
    stopped_at(short_config(tmp_path, checkpoint_seconds=0.0), 64)
    path = tmp_path / "run"
    damaged = newest(path)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.warns(CheckpointWarning, match=f"{damaged.name}: cut short"):
        clew.train(resume=path, progress=Watch())
    assert_same_run(path, uninterrupted)
    assert (damaged.parent / f"unusable-{damaged.name}").exists()


def test_a_full_disk_stops_the_run_and_loses_nothing_saved(tmp_path, uninterrupted, monkeypatch):
    config = short_config(tmp_path, checkpoint_seconds=0.0)
    watch = at_update(80, lambda: monkeypatch.setattr(os, "replace", full_disk))
    with pytest.raises(UserError, match="No space left.*update-.*make room and resume"):
        clew.train(config, progress=watch)
    monkeypatch.undo()
    path = tmp_path / "run"
    clew.train(resume=path, progress=Watch())
    assert_same_run(path, uninterrupted)


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, uninterrupted):
    config = short_config(tmp_path)
    path = clew.train(config, progress=Watch()).path
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    (path / "summary.json").unlink()
    clew.train(resume=path, progress=Watch())
    assert_same_run(path, uninterrupted)


def test_only_steps_may_change(tmp_path, uninterrupted):
    folder = uninterrupted.parent
    for changes, told in (
        ({"log_every": 4}, "log_every = 8, not 4"),
        ({"memory_options": {"hidden_size": 8}}, "memory_options"),
        ({"a2c": clew.A2CConfig(gamma=0.5)}, "a2c"),
        ({"steps": 256}, f"{STEPS} steps; steps can only be raised"),
    ):
        with pytest.raises(UserError, match=told):
            clew.train(short_config(folder, **changes), resume=True, progress=Watch())
    with pytest.raises(UserError, match="unknown run '.*rum'; known: run"):
        clew.resume_run(folder / "rum", progress=Watch())
    with pytest.raises(UserError, match="resume it .clew train --resume .*run"):
        clew.train(short_config(folder), progress=Watch())


def test_a_run_in_use_is_refused_and_a_stale_lock_is_not(tmp_path, uninterrupted):
    with locked(uninterrupted):
        with pytest.raises(UserError, match=f"in use by another process.*{os.getpid()}"):
            clew.train(resume=uninterrupted, progress=Watch())
    (uninterrupted / ".lock").write_text("process 999999 on elsewhere\n")
    clew.train(resume=uninterrupted, progress=Watch())


TRAIN = """
import sys, clew
sys.path.insert(0, {tests!r})
from pathlib import Path
from small_run import {settings}
config = {settings}(Path({folder!r}), checkpoint_seconds=0.0, steps={steps})
resume = (Path({folder!r}) / "run" / "config.json").exists()
from clew.run.progress import Quiet
class Tell(Quiet):
    def phase(self, name): print(name, flush=True)
clew.train(config, resume=resume, progress=Tell())
"""


def kill_at_a_random_moment(
    folder: Path, steps: int, longest: float, moments: random.Random, settings: str
) -> bool:
    """Trains in another process and kills it; returns whether it was still running."""
    tests = str(Path(__file__).parents[1])
    code = TRAIN.format(tests=tests, folder=str(folder), steps=steps, settings=settings)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if moments.random() < 0.9:  # otherwise at any moment of the start
        for line in process.stdout:
            if line == "training\n":
                break
    time.sleep(moments.uniform(0.0, longest))
    running = process.poll() is None
    process.kill()
    process.communicate()
    assert running or process.returncode == 0
    return running


def kills(
    folder: Path,
    uninterrupted: Path,
    steps: int,
    number: int,
    longest: float,
    settings: str = "small_config",
) -> None:
    seed = random.randrange(10**6)
    print(f"moments of seed {seed}")
    moments = random.Random(seed)
    killed = sum(
        kill_at_a_random_moment(folder, steps, longest, moments, settings) for _ in range(number)
    )
    print(f"{killed} of {number} were killed before their end")
    assert killed >= 1
    config = getattr(small_run, settings)(folder, checkpoint_seconds=0.0, steps=steps)
    resume = (folder / "run" / "config.json").exists()
    result = clew.train(config, resume=resume, progress=Watch())
    assert_same_run(result.path, uninterrupted)


@pytest.mark.slow
def test_kill_at_two_random_moments(tmp_path, uninterrupted):
    kills(tmp_path, uninterrupted, STEPS, 2, 0.1)


@pytest.mark.slow
def test_kill_at_twenty_random_moments(tmp_path):
    steps = 20_000 * STEPS_PER_UPDATE
    whole = clew.train(short_config(tmp_path, "whole", steps=steps), progress=Watch()).path
    kills(tmp_path, whole, steps, 20, 0.8)


@pytest.mark.slow
def test_kill_at_twenty_random_moments_while_a_replay_is_written(tmp_path):
    """Every checkpoint writes the whole replay; the result is bit for bit the same too."""
    steps = 3_000 * STEPS_PER_UPDATE
    config = replaying_config(tmp_path, "whole", steps=steps)
    whole = clew.train(config, progress=Watch()).path
    kills(tmp_path, whole, steps, 20, 0.8, "replaying_config")
    ends = [checkpoint.read_replay(checkpoint.read(newest(p))) for p in (whole, tmp_path / "run")]
    assert ends[0].leaves and ends[0].leaves.keys() == ends[1].leaves.keys()
    for name, leaf in ends[0].leaves.items():
        np.testing.assert_array_equal(ends[1].leaves[name], leaf)
