"""A user's own memory, encoder, task, learner and study, named as module:Class."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.names import ScriptWarning
from clew.run import folder
from clew.run.build import make_parts
from clew.run.folder import by_reference, completed
from clew.run.metrics import refuse_taken_names
from clew.run.progress import Quiet, Report
from clew.run.trust import named_code
from own_parts import Average, Cue, Halved, Kept, Scaled
from slow_cases import fast_only
from small_run import assert_same_run

OWN: dict[str, Any] = {
    "memory": "mine:Average",
    "memory_options": {"hidden_size": 4},
    "env": "mine:Cue",
    "env_options": {"delay": 2},
    "algorithm": "mine:Halved",
    "learner_options": {"num_envs": 2, "rollout_length": 4},
}
SOURCE = Path(__file__).parents[1] / "own_parts.py"
WORDS = (
    "--memory mine:Average --memory-options hidden_size=4 --env mine:Cue --env-options delay=2 "
    "--network.encoder mine:Scaled --network.encoder-options factor=3 "
    "--algorithm mine:Halved --learner-options num_envs=4 rollout_length=8"
).split()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the parts in mine.py; modules of that name are forgotten before and after."""
    sys.modules.pop("mine", None)
    shutil.copy(SOURCE, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path
    sys.modules.pop("mine", None)


def test_all_of_them_through_a_run(place: Path) -> None:
    """Classes are recorded by their names, and found again by evaluation, loading and resuming."""
    config = clew.TrainConfig(
        memory=Average,
        memory_options={"hidden_size": 4},
        env=Cue,
        env_options={"delay": 2},
        algorithm=Halved,
        learner_options={"num_envs": 2, "rollout_length": 4},
        network=clew.NetworkConfig(encoder=Scaled, encoder_options={"factor": 3}, head_size=4),
        steps=40,
    )
    result = clew.train(config, progress=Quiet())
    assert result.path.name == "own_parts-Cue-own_parts-Average-1"
    saved = json.loads((result.path / "config.json").read_text())["config"]
    assert saved["memory"] == "own_parts:Average" and saved["env"] == "own_parts:Cue"
    assert saved["network"]["encoder"] == "own_parts:Scaled"
    assert saved["algorithm"] == "own_parts:Halved"
    assert saved["learner_options"]["divisor"] == 2.0  # stored, in case its default changes
    assert clew.read_metrics(result.path)[-1]["learner.divided_by"] == [2.0]
    assert result.summary["final"].keys() >= {"success", "return"}
    assert "learner.divided_by" not in result.summary["final"]
    encoder = clew.load(result.path).encoder
    assert isinstance(encoder, Scaled) and encoder.factor == 3
    # The same settings, with the learner's options as given.
    again = clew.TrainConfig(**{**vars(config), "name": result.path.name})
    assert folder.to_resume(completed(again), True)[1] == folder.read_config(result.path)
    assert run(["runs"]) == run(["compare", str(result.path)]) == 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"memory": "mine:Averag"}, "unknown name in mine 'Averag'; did you mean 'Average'"),
        ({"memory": "absent:A"}, "there is no module absent; looked for absent.py in "),
        ({"memory": "mine.py:Average"}, "the file mine.py is the module mine"),
        ({"memory": "mine:HalvedConfig"}, "mine:HalvedConfig is not a memory"),
        (
            {"memory": "mine:Scaled", "memory_options": {}},
            "is not a memory: expected a class derived from",
        ),
        ({"memory_options": {"size": 3}}, "unknown option of mine:Average 'size'"),
        ({"memory": "broken:A"}, r"ZeroDivisionError: .* \(.*broken.py, line 2\)"),
        ({"memory": "needs:A"}, "No module named 'not_there'"),
        ({"memory": "wrong:A"}, r"SyntaxError: .*wrong.py, line 1"),
        ({"network": clew.NetworkConfig(encoder="mine:Cue")}, "mine:Cue is not an encoder"),
        ({"network": clew.NetworkConfig(encoder_options={"a": 1})}, "none has none"),
        ({"env": "mine:Average", "env_options": {}}, "cannot be called with these arguments"),
        ({"env": "wrong:A"}, r"cannot import .*wrong:A.*: SyntaxError: .*wrong.py, line 1"),
        ({"env_options": {"dela": 3}}, "unknown option of mine:Cue 'dela'; did you mean 'delay'"),
        ({"algorithm": "mine:Cue"}, "mine:Cue is not a learner: it lacks config, gathering"),
        ({"algorithm": "mine:Halve"}, "did you mean 'Halved'"),
        ({"learner_options": {"rollout": 3}}, "unknown option of mine:Halved 'rollout'"),
        ({"learner_options": {"divisor": 2, "num_envs": 0}}, "num_envs must be an integer of at"),
        ({"algorithm": "a2c"}, "learner_options are for a learner of your own"),
    ],
)
def test_a_wrong_name_is_one_line(place: Path, changes: dict[str, Any], message: str) -> None:
    (place / "broken.py").write_text("A = 1\nA / 0\n")
    (place / "needs.py").write_text("import not_there\n")
    (place / "wrong.py").write_text("class:\n")
    with pytest.raises(UserError, match=message) as error:
        make_parts(clew.TrainConfig(**{**OWN, **changes}))
    assert "\n" not in str(error.value)


class Bare:
    """Settings without most of those that all learners have."""

    num_envs: int = 2
    rollout_length: int = 4


def test_settings_that_lack_what_all_learners_have_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Halved, "settings", dataclass(frozen=True)(Bare))
    lacks = "settings of own_parts:Halved lack gamma, learning_rate, max_grad_norm, validate"
    with pytest.raises(UserError, match=lacks):
        make_parts(clew.TrainConfig(algorithm="own_parts:Halved"))


def test_a_metric_that_is_not_reported_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a learner need not measure its loss."""
    options = {"num_envs": 2, "rollout_length": 4}
    config = clew.TrainConfig(algorithm=Halved, learner_options=options, memory="none", steps=8)
    monkeypatch.setattr(Halved, "metrics", ("loss", "reached"))
    with pytest.raises(UserError, match="name reached, .* does not report; .* entropy"):
        clew.train(config, progress=Quiet())
    monkeypatch.setattr(Halved, "metrics", ("divided_by",))
    learn = Halved.learn

    def without_loss(self: Halved, *args: Any) -> Any:
        agent, state, metrics = learn(self, *args)
        return agent, state, {"divided_by": metrics["divided_by"]}

    monkeypatch.setattr(Halved, "learn", without_loss)
    result = clew.train(replace(config, log_every=1), progress=Quiet())
    assert clew.read_metrics(result.path)[-1]["learner.divided_by"] == [2.0]


@pytest.mark.parametrize("name", ["steps", "temperature", "value", "lag", "divided_by"])
def test_a_metric_of_the_task_with_a_name_of_the_rows_is_refused(name: str) -> None:
    """Its mean would be confused with another, and rows need their number of steps."""
    config = clew.TrainConfig(env=Cue, algorithm=Halved)
    refuse_taken_names(config, ("success", "return", "length"))
    with pytest.raises(UserError, match=f"own_parts:Cue has a metric '{name}', .* rename it"):
        refuse_taken_names(config, ("success", name))


def test_a_run_begins_with_no_such_metric(place: Path) -> None:
    wrappers = clew.WrapperConfig(metrics=("success", "steps"))
    config = clew.TrainConfig(env="gymnasium:CartPole-v1", wrappers=wrappers)
    with pytest.raises(UserError, match="'steps', .* leave steps out of wrappers.metrics"):
        clew.train(config, progress=Quiet())
    assert not (place / "runs").exists()


class Flipped(Scaled):
    """Another encoder."""

    def __call__(self, x: Any) -> Any:
        return super().__call__(x)[..., ::-1]


@pytest.mark.parametrize("named", fast_only(["Scaled", "halving"], "halving"))
def test_other_code_under_the_same_name_is_another_program(
    named: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a cell of a notebook is run again."""
    config = clew.TrainConfig(
        env_options={"corridor_length": 2},
        memory="none",
        network=clew.NetworkConfig(encoder=Scaled, encoder_norm=True),
        a2c=clew.A2CConfig(num_envs=2, rollout_length=4, schedule="own_parts:halving"),
        steps=32,
        log_every=1,
    )
    other = {"Scaled": Flipped, "halving": lambda rate, steps: lambda count: 0.0 * count}[named]
    before = clew.read_metrics(clew.train(config, progress=Quiet()).path)
    monkeypatch.setattr(f"own_parts.{named}", other)
    after = clew.read_metrics(clew.train(config, progress=Quiet()).path)
    assert before[-1]["loss"] != after[-1]["loss"]


def test_devices_are_refused_to_a_memory_that_cannot_be_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if it is named by its class, not only as one of the library's."""
    monkeypatch.setattr(Average, "shardable", False)
    config = clew.TrainConfig(memory=Average, memory_options={"hidden_size": 4}, devices=2)
    with pytest.raises(UserError, match="own_parts:Average cannot be trained on several devices"):
        make_parts(config)


def test_what_no_name_leads_to_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Average):
        """A class local to this function."""

    with pytest.raises(UserError, match="class at the top of a module, .* got .*Local"):
        clew.TrainConfig(memory=Local)
    with pytest.raises(UserError, match="the encoder must be a name, or a class"):
        clew.NetworkConfig(encoder=lambda space, key: None)
    monkeypatch.setattr(Average, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Average", Average, raising=False)
    with pytest.warns(ScriptWarning, match="known to this script alone.*name it module:Average"):
        assert clew.TrainConfig(memory=Average).memory == "__main__:Average"


def test_a_registered_memory_is_recorded_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user is told at once that no other process knows it."""
    monkeypatch.setitem(clew.MEMORIES, "average", Average)
    monkeypatch.setitem(clew.ENVS, "cue", Cue)
    config = clew.TrainConfig(memory="average", env="cue", env_options={"delay": 2})
    found, warnings = by_reference(config)
    assert (found.memory, found.env) == ("own_parts:Average", "own_parts:Cue")
    assert found.memory_options == config.memory_options == {"hidden_size": 64}
    assert found.env_options == {"delay": 2} and warnings == []
    assert by_reference(clew.TrainConfig()).config == clew.TrainConfig()
    monkeypatch.setitem(clew.MEMORIES, "average", lambda size, *, key: Average(size, key=key))
    found, warnings = by_reference(clew.TrainConfig(memory="average"))
    assert found.memory == "average"
    assert "the memory average is known to this script alone" in warnings[0]


def clew_process(*words: str) -> subprocess.Popen[str]:
    """A command in a separate process, in the current folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "clew", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(*words: str, code: int = 0) -> str:
    """The output of a command, which must end with this code."""
    process = clew_process(*words)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == code, text
    assert "Traceback" not in text
    return text


COMMON = [*WORDS, "--checkpoint-seconds", "0.2", "--network.head-size", "4"]


@pytest.mark.slow
def test_all_of_them_killed_and_resumed(place: Path) -> None:
    """Bit for bit, in separate processes."""
    common = [*COMMON, "--steps", "100000"]
    killed = clew_process("train", *common, "--name", "killed")
    checkpoints = place / "runs" / "killed" / "checkpoints"
    while not any(p.stem > "update-000000000" for p in checkpoints.glob("update-*.clew")):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert "resuming from update-" in output_of("train", "--resume", "killed")
    output_of("train", *common, "--name", "whole")
    assert_same_run(place / "runs" / "killed", place / "runs" / "whole")


@pytest.mark.slow
def test_all_of_them_through_every_command(place: Path) -> None:
    """Evaluated, inspected, watched, checked, studied, exported; once the code is gone, commands
    that need it give one line, while the export needs neither it nor clew."""
    output_of("train", *COMMON, "--steps", "640", "--name", "own")
    assert "success" in output_of("evaluate", "own", "--episodes", "20")
    output_of("inspect", "own", "--episodes", "20", "--influence-episodes", "2")
    output_of("watch", "own")
    assert "golden episode replayed with NumPy to" in output_of("export", "own")
    output_of("check", "mine:Average", "--lengths", "1", "7")
    assert "mine:Average" in output_of("runs")
    assert "average: mean success" in output_of("study", "mine.py", "--workers", "1")
    assert "average" in output_of("study", "mine:STUDY", "--list")
    os.rename(place / "mine.py", place / "elsewhere.py")
    lost = output_of("evaluate", "own", code=2)
    assert "mine" in lost and lost.count("\n") == 1
    folder_of = place / "runs" / "own" / "export"
    replay = [sys.executable, "-I", "runner.py", "--verify"]
    told = subprocess.run(replay, cwd=folder_of, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "intact" in output_of("export", "runs/own/export", "--verify")


@pytest.mark.slow
def test_callbacks_loggers_and_schedules_of_ones_own(place: Path) -> None:
    """A callback sees every report and may end the run, which resumes as if it had not ended."""
    seen: list[int] = []

    def halfway(report: Report) -> bool:
        seen.append(report.steps)
        return report.steps >= 64

    config = clew.TrainConfig(
        memory="none",
        env_options={"corridor_length": 2},
        a2c=clew.A2CConfig(num_envs=2, rollout_length=4, schedule="own_parts:halving"),
        network=clew.NetworkConfig(head_size=4),
        loggers=("own_parts:Kept",),
        log_every=2,
        steps=160,
    )
    whole = clew.train(config, progress=Quiet())
    kept = [row["update"] for row in Kept.rows]
    assert kept == [row["update"] for row in clew.read_metrics(whole.path)]
    ended = clew.train(config, progress=Quiet(), callbacks=[halfway])
    assert ended.summary["steps"] < 160 and seen == sorted(set(seen)) and seen[-1] >= 64
    clew.resume_run(ended.path, progress=Quiet(), callbacks=[lambda report: None])
    assert_same_run(whole.path, ended.path)
    code = named_code(folder.read_config(whole.path))
    assert [line.split("'")[1] for line in code] == ["own_parts:Kept", "own_parts:halving"]
    for field in ({"loggers": ("own_parts:Keep",)}, {"loggers": ("own_parts:Average",)}):
        with pytest.raises(UserError, match="did you mean 'Kept'|cannot be called with"):
            make_parts(replace(config, **field))
