"""Loggers: what they log, that no row is logged twice, and that none of them ends a run."""

import importlib.util
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_loggers import Event, FakeTensorboardX, FakeWandb

import clew
from clew.errors import UserError
from clew.run import checkpoint
from clew.run.config import TrainConfig, config_from_json
from clew.run.loggers import WandbConfig, check_loggers, log_in, scalars
from clew.run.progress import Background, Logged, Quiet, Report, with_loggers
from slow_cases import fast_only
from small_run import STEPS_PER_UPDATE, Watch, small_config, untimed

ROW = {"update": 8, "steps": 80, "seconds": 0.5, "episodes": [3, 5], "return": [1.0, None]}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events of a fake tensorboardX."""
    fake = FakeTensorboardX()
    fake.install(monkeypatch)
    return fake.events


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    """A fake W&B."""
    module = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def steps_of(path: Path) -> list[int]:
    return [row["steps"] for row in clew.read_metrics(path)]


def shown(events: list[Event], name: str) -> list[int]:
    """The steps of a curve as TensorBoard draws it: a new start hides later points."""
    steps: list[int] = []
    for event in events:
        if hasattr(event, "session_log"):
            steps = [step for step in steps if step < event.step]
        elif event.summary[0] == name:
            steps.append(event.step)
    return steps


def forget_since(path: Path, update: int) -> None:
    """Removes the checkpoints after an update, as if the run had been killed before them."""
    for file in checkpoint.list_checkpoints(path / "checkpoints"):
        if int(file.stem.removeprefix("update-")) > update:
            file.unlink()


def test_a_row_as_plain_numbers() -> None:
    assert scalars(ROW, first_seed=4) == {
        "seconds": 0.5,
        "episodes": 4.0,
        "episodes/seed-4": 3.0,
        "episodes/seed-5": 5.0,
        "return": 1.0,
        "return/seed-4": 1.0,
    }
    assert scalars({"steps": 1, "loss": [2.0], "success": [None]}) == {"loss": 2.0}


def test_tensorboard_shows_the_rows_of_the_file(tmp_path: Path, events: list[Event]) -> None:
    """Also after a run that ended between two rows, and one whose last updates were lost."""
    config = small_config(tmp_path, steps=37 * STEPS_PER_UPDATE, loggers=("tensorboard",))
    path = clew.train(config, progress=Watch()).path
    assert events[0].summary[0] == "config" and '"corridor_length": 3' in events[0].summary[1]
    assert shown(events, "loss") == steps_of(path)
    first = clew.read_metrics(path)[0]
    told = {e.summary[0]: e.summary[1] for e in events[1:] if e.step == first["steps"]}
    assert told == scalars(first)

    clew.resume_run(path, steps=60 * STEPS_PER_UPDATE, progress=Watch())
    assert steps_of(path)[-3:] == [n * STEPS_PER_UPDATE for n in (48, 56, 60)]
    assert shown(events, "success") == steps_of(path)
    forget_since(path, 37)
    clew.resume_run(path, steps=64 * STEPS_PER_UPDATE, progress=Watch())
    assert shown(events, "success") == steps_of(path)
    assert len(list((path / "tensorboard").iterdir())) == 3


@pytest.mark.slow
def test_wandb_goes_on_with_its_run(tmp_path: Path, wandb: FakeWandb) -> None:
    """It has one run id, and rows of repeated updates are not logged again."""
    options = WandbConfig(project="mazes", entity="team", mode="offline")
    config = small_config(
        tmp_path, steps=40 * STEPS_PER_UPDATE, loggers=("wandb",), wandb=options, seed=7
    )
    path = clew.train(config, progress=Watch()).path
    forget_since(path, 0)
    clew.resume_run(path, steps=64 * STEPS_PER_UPDATE, progress=Watch())
    one, other = wandb.opened
    assert one["id"] == other["id"] == json.loads((path / "wandb.json").read_text())["id"]
    assert (one["project"], one["entity"], one["mode"]) == ("mazes", "team", "offline")
    assert one["name"] == "run" and one["dir"] == str(path) and one["resume"] == "allow"
    assert one["config"]["memory"] == "gru"
    assert [step for step, _ in wandb.logged] == steps_of(path)
    assert {"loss/seed-7", "loss/seed-8", "return"} <= set(wandb.logged[-1][1])
    assert wandb.finished == 2


def test_a_logger_that_comes_late_gets_everything(
    tmp_path: Path, wandb: FakeWandb, events: list[Event]
) -> None:
    path = clew.train(small_config(tmp_path, steps=24 * STEPS_PER_UPDATE), progress=Watch()).path
    more = small_config(tmp_path, steps=32 * STEPS_PER_UPDATE, loggers=("wandb", "tensorboard"))
    clew.train(more, resume=True, progress=Watch())
    assert shown(events, "loss") == [step for step, _ in wandb.logged] == steps_of(path)
    assert len(steps_of(path)) == 4
    assert clew.resume_run(path, progress=Watch()) and len(wandb.opened) == 1
    assert json.loads((path / "config.json").read_text())["config"]["loggers"] == list(more.loggers)


@pytest.mark.parametrize(
    ("breaks", "said"),
    fast_only(
        [("init", "ConnectionError: the network is down"), ("log", "OSError: no space left")],
        ("log", "OSError: no space left"),
    ),
)
def test_a_logger_that_fails_ends_no_run(
    tmp_path: Path, wandb: FakeWandb, breaks: str, said: str
) -> None:
    """There is one line of warning; the rows and the end are those of a run without it."""
    wandb.breaks = breaks
    watch = Watch()
    steps = 48 * STEPS_PER_UPDATE
    config = small_config(tmp_path, "with", steps=steps, loggers=("wandb",))
    path = clew.train(config, progress=watch).path
    (message,) = watch.messages
    assert message.startswith(f"warning: the logger wandb failed: {said}; the run continues")
    other = clew.train(small_config(tmp_path, "without", steps=steps), progress=Watch()).path
    assert untimed(path) == untimed(other) and len(untimed(path)) == 6

    wandb.breaks = ""  # missed rows are logged when the run is resumed
    clew.resume_run(path, steps=56 * STEPS_PER_UPDATE, progress=Watch())
    assert [step for step, _ in wandb.logged] == steps_of(path)


def test_a_logger_that_hangs_is_not_waited_for() -> None:
    class Hanging:
        def start(self, *_: Any) -> None:
            threading.Event().wait()

        row = close = start

    logger = Background("slow", Hanging())
    logger.start(Path(), TrainConfig(), [])
    for _ in range(1000):
        logger.row(ROW)
    logger.close(seconds=0.05)
    assert logger.failure() == "has not finished within 0 s" and logger.failure() == ""


def test_a_listener_is_told_all_the_same(tmp_path: Path) -> None:
    """And loggers start with training, not before."""
    watch, begun = Watch(), []

    class Kept:
        def start(self, path: Path, config: TrainConfig, rows: Any) -> None:
            begun.append((path, config, rows))

        def row(self, row: Any) -> None:
            begun.append(row)

        def close(self) -> None:
            begun.append("closed")

    listener = Logged(watch, {"kept": Kept()})
    config = TrainConfig()
    (tmp_path / "config.json").touch()  # a run's folder
    listener.start(tmp_path, config)
    listener.phase("compiling")
    assert begun == []
    listener.phase("training")
    listener.phase("saving")
    listener.phase("training")
    for row in (None, ROW):
        listener.report(Report(1, 2, 3.0, 4.0, 5.0, row))
    listener.message("well")
    listener.close()
    assert watch.phases == ["compiling", "training", "saving", "training"]
    assert watch.rows == [ROW] and watch.messages == ["well"]
    assert begun == [(tmp_path, config, []), ROW, "closed"]
    quiet = Quiet()
    assert with_loggers(quiet, config) is quiet


def test_what_cannot_work_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wandb: FakeWandb
) -> None:
    here = WandbConfig()
    with pytest.raises(UserError, match="unknown logger 'wandbb'; did you mean 'wandb'"):
        check_loggers(["wandbb"], here)
    with pytest.raises(UserError, match="loggers has wandb twice"):
        check_loggers(["wandb", "wandb"], here)
    with pytest.raises(UserError, match="wandb.mode 'on'.*did you mean 'online'"):
        check_loggers([], WandbConfig(mode="on"))
    with pytest.raises(UserError, match="wandb.project must not be empty"):
        check_loggers([], WandbConfig(project=""))
    wandb.breaks = "login"
    with pytest.raises(UserError, match="wandb: no API key. Or choose --wandb.mode offline"):
        check_loggers(["wandb"], here)
    log_in(WandbConfig(mode="offline"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "tensorboardX", raising=False)
    with pytest.raises(UserError) as missing:
        clew.train(small_config(tmp_path, loggers=("tensorboard",)), progress=Watch())
    assert str(missing.value) == (
        "the logger tensorboard needs tensorboardX, which is not installed: "
        'pip install "clew[tensorboard]"'
    )
    assert not list(tmp_path.iterdir())


def test_loggers_change_no_digest_and_survive_the_file() -> None:
    plain = TrainConfig()
    logged = TrainConfig(loggers=("wandb",), wandb=WandbConfig(project="mazes"))
    assert plain.digest() == logged.digest()
    assert config_from_json(json.loads(json.dumps(logged.to_json()))) == logged
    old = plain.to_json()
    del old["loggers"], old["wandb"]
    assert config_from_json(old) == plain
