"""A run's folder is not trusted: changed or swapped files in it are named."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.run import folder
from clew.run.checkpoint import CheckpointWarning, list_checkpoints
from clew.run.json_lines import DamagedRowWarning
from small_run import STEPS_PER_UPDATE, Watch, newest, small_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with two checkpoints, and another run of the same shapes beside it."""
    parent = tmp_path_factory.mktemp("runs")
    for name in ("run", "other"):
        config = small_config(parent, name, steps=16 * STEPS_PER_UPDATE, checkpoint_seconds=0.0)
        clew.train(config, progress=Watch())
    return parent / "run"


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """The run, to be damaged."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def edit(path: Path, **changes: Any) -> None:
    """Changes keys of config.json; names with a dot are in its settings."""
    text = json.loads((path / "config.json").read_text())
    for name, value in changes.items():
        (text["config"] if name in text["config"] else text)[name] = value
    (path / "config.json").write_text(json.dumps(text))


def test_a_changed_setting_is_refused_until_it_is_accepted(copy: Path) -> None:
    """A changed digit of config.json used to change the computation silently."""
    text = json.loads((copy / "config.json").read_text())
    before = text["digest"]
    a2c = text["config"]["a2c"] | {"gamma": 0.5}
    edit(copy, a2c=a2c)
    with pytest.raises(UserError, match=f"changed after .* it says {before}") as error:
        clew.load(copy)
    said = "{" + str(error.value).partition("write ")[2].removesuffix(" in it") + "}"
    edit(copy, **json.loads(said))
    assert folder.read_run(copy).identity.digests == (json.loads(said)["digest"], before)
    clew.resume_run(copy, steps=20 * STEPS_PER_UPDATE, progress=Watch())


def test_a_setting_beside_the_digest_is_seen_too(copy: Path) -> None:
    """The digest covers what an update depends on; the checksum covers the rest."""
    edit(copy, steps=2**40)
    with pytest.raises(UserError, match="the checksum .*if the change is meant"):
        clew.resume_run(copy, progress=Watch())


def test_a_task_that_has_changed_is_refused(copy: Path) -> None:
    """Its folder records the agent's observations and actions; older folders do not."""
    spaces = json.loads((copy / "config.json").read_text())["spaces"]
    assert set(spaces) == {"observation", "action"}
    edit(copy, spaces={"observation/eye": "float32[2]", "action": spaces["action"]})
    message = (
        f"of {copy} was trained on it: observation was missing and is {spaces['observation']}; "
        "observation/eye was float32[2] and is missing"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        clew.evaluate(copy, episodes=1)
    with pytest.raises(UserError, match=re.escape(message)):
        clew.resume_run(copy, steps=20 * STEPS_PER_UPDATE, progress=Watch())
    edit(copy, spaces={})
    clew.load(copy)


def test_settings_that_no_number_of_updates_follows_from_are_one_line(copy: Path) -> None:
    text = json.loads((copy / folder.CONFIG).read_text())
    text["config"][text["config"]["algorithm"]]["num_envs"] = 0
    (copy / folder.CONFIG).write_text(json.dumps(text))
    with pytest.raises(UserError, match=r"config.json cannot be read: ZeroDivisionError"):
        folder.read_config(copy)


def test_another_runs_checkpoint_is_passed_over(copy: Path, trained: Path, capsys) -> None:
    """One of the same shapes used to load and to resume silently."""
    foreign = newest(trained.with_name("other"))
    shutil.copy(foreign, copy / "checkpoints")
    with pytest.warns(CheckpointWarning, match="belongs to another run.*is used instead"):
        clew.load(copy)
    with pytest.raises(UserError, match="belongs to another run"):
        clew.load_policy(copy, checkpoint="16")
    for path in list_checkpoints(copy / "checkpoints")[:-1]:
        path.unlink()
    assert run(["evaluate", str(copy)]) == 2
    assert "another run" in capsys.readouterr().err


def test_rows_are_not_rewritten_without_a_word(copy: Path) -> None:
    """A damaged row is lost alone; rows after the checkpoint are dropped, and counted."""
    file = copy / "metrics.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first.replace(b": ", b":\r", 1) + second)
    with pytest.warns(DamagedRowWarning, match="metrics.jsonl: line 1 is damaged"):
        assert [row["update"] for row in clew.read_metrics(copy)] == [16]
    newest(copy).unlink()
    watch = Watch()
    clew.resume_run(copy, steps=24 * STEPS_PER_UPDATE, progress=watch)
    _, damaged, dropped = watch.messages[:3]
    assert "line 1 is damaged" in damaged and "metrics.jsonl.damaged" in damaged
    assert "1 row is dropped" in dropped
    assert [row["update"] for row in clew.read_metrics(copy)] == [16, 24]


def test_the_last_row_stays_until_more_steps_are_made(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row between two of `log_every` is the summary's; a resumed run that ends before its first
    step, such as by a kill while it compiles, leaves it."""
    steps = 12 * STEPS_PER_UPDATE
    config = small_config(tmp_path, steps=steps, checkpoint_seconds=0.0)
    clew.train(config, progress=Watch())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("clew.run.train.make_program", killed)
        with pytest.raises(KeyboardInterrupt):
            clew.resume_run(tmp_path / "run", steps=2 * steps, progress=Watch())
    found = clew.resume_run(tmp_path / "run", progress=Watch())
    assert found.summary["updates"] == 12 and found.summary["steps"] == steps
    assert [row["update"] for row in clew.read_metrics(found.path)] == [8, 12]


def test_a_summary_counts_what_was_made(tmp_path: Path) -> None:
    """Also if a callback ends the run between two rows."""
    config = small_config(tmp_path, steps=40 * STEPS_PER_UPDATE, log_every=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clew.run.runner.CALL_SECONDS", 1e-9)
        found = clew.train(config, progress=Watch(), callbacks=[lambda report: True])
    assert found.summary["updates"] == 1 and found.summary["steps"] == STEPS_PER_UPDATE
    assert found.summary["rate"] > 0


@pytest.mark.slow
def test_a_run_of_before_is_given_an_identifier(copy: Path) -> None:
    """And its old checkpoints, which have none, count as its own."""
    shutil.rmtree(copy)
    shutil.copytree(Path(__file__).with_name("old_runs") / "gtrxl", copy)
    assert folder.read_run(copy).identity.run == ""
    steps = folder.read_config(copy).steps
    clew.resume_run(copy, steps=steps + 100, progress=Watch())
    identity = folder.read_run(copy).identity
    assert len(identity.run) == 16
    clew.load(copy)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 99_999, '{"format": 1}', '{"format": "1"}', '{"format": 9}']
    + [f'{{"format": 1, "config": {value}}}' for value in ("[]", "7", '{"steps": "a"}')]
    + [f'{{"format": 1, "config": {{"{key}": []}}}}' for key in ("memory", "a2c", "env", "wandb")],
)
def test_a_wrong_config_is_one_line(tmp_path: Path, capsys, text: str) -> None:
    """For the commands that read one."""
    path = tmp_path / "runs" / "run"
    path.mkdir(parents=True)
    (path / "config.json").write_text(text)
    for command in (["evaluate", str(path)], ["train", "--resume", str(path)]):
        assert run(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {path}/config.json")
    assert run(["runs", "--run-dir", str(path.parent)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {path}/config.json")


def left_by_a_failure(place: Path, monkeypatch: pytest.MonkeyPatch) -> clew.TrainConfig:
    """The settings of a run that failed during compilation; its folder has nothing else."""

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    config = small_config(place, steps=2 * STEPS_PER_UPDATE, log_every=1)
    with monkeypatch.context() as patch:
        patch.setattr("clew.run.train.make_program", fail)
        with pytest.raises(RuntimeError):
            clew.train(replace(config, seed=7), progress=Watch())
    assert (place / "run" / folder.CONFIG).exists() and folder.is_bare(place / "run")
    return config


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_failed_before_its_first_step_does_not_keep_its_name(
    resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, watch = left_by_a_failure(tmp_path, monkeypatch), Watch()
    with folder.locked(tmp_path / "run"), pytest.raises(UserError, match="in use by another"):
        clew.train(config, resume=resume, progress=watch)
    assert folder.read_config(tmp_path / "run").seed == 7
    found = clew.train(config, resume=resume, progress=watch)
    assert found.summary["updates"] == 2 and folder.read_config(found.path).seed == 0
    assert any("no checkpoint to resume from: it starts anew" in line for line in watch.messages)


@pytest.mark.parametrize("made", ["metrics.jsonl", "summary.json", "checkpoints/best.clew"])
def test_a_run_that_has_made_anything_keeps_its_name(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = left_by_a_failure(tmp_path, monkeypatch)
    file = tmp_path / "run" / made
    file.parent.mkdir(exist_ok=True)
    file.write_text("{")
    for call in (lambda: clew.train(config), lambda: clew.train(config, resume=True)):
        with pytest.raises(UserError, match="already has a run|started with seed = 7, not 0"):
            call()
    assert file.read_text() == "{" and folder.read_config(tmp_path / "run").seed == 7
