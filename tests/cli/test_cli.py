"""The command line prints what it promises, and every mistake is one line and exit code 2."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew.cli
from clew.cli import COMMANDS, run
from clew.cli.compare import _labels
from clew.cli.parse import field_docs, option_names, value_before_parsing
from clew.cli.tables import log, print_json, print_table
from clew.cli.train import (
    Memories,
    TrainCommand,
    _within_preset,
    default_command,
    on_sizes,
    parse_training,
)
from clew.output import open_missing_streams, say
from clew.pairs import parse_pairs, parse_value
from clew.run.config import TrainConfig
from clew.run.names import checkpoint_name
from clew.run.train import RunResult
from clew.stats.intervals import over_seeds
from small_run import TINY, train_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run called `tiny`."""
    folder = tmp_path_factory.mktemp("runs")
    train_tiny(folder)
    return folder


@pytest.mark.parametrize("args", [[], ["--help"], ["help"]])
def test_help_names_every_command(args: list[str], output: Callable[..., str]) -> None:
    text = output(*args)
    assert all(f"  {name} " in text for name in COMMANDS)


def test_version(output: Callable[..., str]) -> None:
    assert output("--version").startswith("clew 0.")


@pytest.mark.parametrize("words", [[], ["runs", "--run-dir", "."]])
def test_some_commands_do_not_wait_for_jax(words: list[str]) -> None:
    code = f"import clew.cli, sys; clew.cli.run({words}); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        run([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: clew {command}" in capsys.readouterr().out


def test_train_has_every_setting_documented() -> None:
    from clew.agents.learners.a2c import A2CConfig
    from clew.run.config import TrainConfig

    names = set(option_names(TrainCommand))
    assert {"--steps", "--env-options", "--a2c.learning-rate", "--resume"} <= names
    for kind in (TrainCommand, TrainConfig, A2CConfig):
        assert set(field_docs(kind)) == set(kind.__dataclass_fields__)


def test_values_as_typed() -> None:
    words = ["a=1", "b=1e-3", "c=True", "d=None", "e=none", "f=[1, 2]", 'g="1"', "h-i=x=y"]
    assert parse_pairs(words) == {
        "a": 1, "b": 1e-3, "c": True, "d": None, "e": "none", "f": [1, 2], "g": "1",
        "h_i": "x=y",
    }  # fmt: skip
    assert parse_value("None") is None
    for words in (["a=1", "a=2"], ["a-b=1", "a-b=2"], ["a_b=1", "a-b=2"]):
        with pytest.raises(ValueError, match="given twice"):
            parse_pairs(words)


def test_the_last_of_two_values_decides() -> None:
    """As for every other option, in every spelling of its name."""
    args = ["--env", "gymnasium:CartPole-v1", "--env=memory_chain", "--run_dir", "a b"]
    assert value_before_parsing(args, "--env") == "memory_chain"
    assert value_before_parsing(args, "--run-dir") == "a b"
    assert default_command(args).config.algorithm == "a2c"


def test_training_and_what_follows(trained: Path, output: Callable[..., str]) -> None:
    tiny = str(trained / "tiny")
    assert (trained / "tiny" / "curve.png").exists()
    (listed,) = json.loads(output("runs", "--run-dir", str(trained), "--json"))
    assert listed["name"] == "tiny" and listed["steps"] == listed["total_steps"] == 80
    assert "tiny" in output("runs", "--run-dir", str(trained))
    text = output("evaluate", tiny, "--episodes", "3", "--actions", "sampled", "--json")
    found = json.loads(text)["sampled"]
    assert found["episodes"] == 3 and len(found["per_seed"]["success"]) == 1
    assert "success" in output("evaluate", tiny, "--episodes", "3", "--actions", "sampled")


def test_comparing_runs(
    trained: Path, capsys: pytest.CaptureFixture, output: Callable[..., str]
) -> None:
    args = ["compare", "tiny", str(trained / "tiny"), "--run-dir", str(trained)]
    assert "success" in output(*args)
    assert (trained / "compare.png").read_bytes().startswith(b"\x89PNG")
    other = str(trained / "other.png")
    found = json.loads(output(*args, "--out", other, "--json"))
    assert found["picture"] == other and found["runs"]["tiny"]["steps"] >= 80
    for words, message in ((["compare"], "which runs"), ([*args, "--out", "a.jpg"], "got a.jpg")):
        assert run(words) == 2
        assert message in capsys.readouterr().err


def listed_run(folder: Path, rows: Sequence[dict], updates: Sequence[int] = ()) -> int:
    """A folder that `clew runs` takes for a run of 100 updates; the steps of one of them."""
    config = TrainConfig()
    (folder / "checkpoints").mkdir(parents=True)
    settings = {"config": replace(config, steps=100 * config.steps_per_update).to_json()}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for update in updates:
        (folder / "checkpoints" / checkpoint_name(update)).touch()
    return config.steps_per_update


def test_runs_are_as_far_as_what_they_saved(tmp_path: Path, output: Callable[..., str]) -> None:
    """Also before their first row of metrics; almost done is not 100%."""
    listed_run(tmp_path / "begun", [])
    listed_run(tmp_path / "early", [], [0, 7])
    per_update = listed_run(tmp_path / "later", [{"steps": 1}], [10, 9])
    listed_run(tmp_path / "nearly", [{"steps": 100 * per_update - 1}], [99])
    (tmp_path / "later/checkpoints/best.clew").touch()
    found = json.loads(output("runs", "--run-dir", str(tmp_path), "--json"))
    steps = {run["name"]: run["steps"] / per_update for run in found}
    assert steps["begun"] == 0 and steps["early"] == 7 and steps["later"] == 10
    table = output("runs", "--run-dir", str(tmp_path))
    assert " 7%" in table and " 99%" in table and "100%" not in table


def test_runs_show_their_newest_evaluation(tmp_path: Path, output: Callable[..., str]) -> None:
    """In columns that are there only where a run has one."""
    listed_run(tmp_path / "plain", [{"steps": 9, "return": [0.5]}])
    args = ["runs", "--run-dir", str(tmp_path)]
    assert "evaluated" not in output(*args)
    evaluations = ([1.0], [0.25, None, 0.5])
    rows = [{"steps": n, "evaluation.return": mean} for n, mean in enumerate(evaluations)]
    listed_run(tmp_path / "evaluated", [*rows, {"steps": 9, "return": [-2.0]}])
    table = output(*args)
    assert "evaluated return" in table and "evaluated success" not in table and "0.38" in table
    found = {run["name"]: run["evaluation"] for run in json.loads(output(*args, "--json"))}
    assert found == {
        "evaluated": {"steps": 1, "success": None, "return": 0.375},
        "plain": None,
    }


def test_runs_of_one_name_are_told_apart() -> None:
    summaries = {name: {"memory": "gru"} for name in ("x/first", "y/first")}
    assert _labels(summaries) == {"x/first": "x/first", "y/first": "y/first"}
    summaries["y/second"] = summaries.pop("y/first")
    assert _labels(summaries) == {"x/first": "first", "y/second": "second"}


def test_a_row_that_is_odd_hides_no_run(tmp_path: Path, output: Callable[..., str]) -> None:
    for name, success in (("odd", 1.0), ("usual", [0.25, 0.75])):
        (tmp_path / name).mkdir()
        settings = {"config": TrainConfig().to_json()}
        (tmp_path / name / "config.json").write_text(json.dumps(settings))
        row = {"steps": 5, "success": success}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    found = json.loads(output("runs", "--run-dir", str(tmp_path), "--json"))
    assert [run["success"] for run in found] == [None, 0.5]


def test_paths_are_printed_as_text(capsys: pytest.CaptureFixture) -> None:
    print_json({"folder": Path("a") / "b", "deviation": float("nan")})
    assert json.loads(capsys.readouterr().out) == {"folder": "a/b", "deviation": None}


def test_consent_reaches_the_run_to_start_from(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That run's settings may name code too."""
    asked: list[bool] = []

    def start(parts: Any, path: Any, *, trust: bool) -> None:
        asked.append(trust)

    monkeypatch.setattr("clew.run.train.read_start", start)
    words = ["train", *TINY.split(), "--run-dir", str(tmp_path), "--start-from"]
    assert run([*words, str(trained / "tiny"), "--trust"]) == 0
    assert asked == [True]


def test_numbers_below_zero_stand_under_the_others(capsys: pytest.CaptureFixture) -> None:
    print_table("", ["run", "return"], [["a", "-4.50"], ["b", "12.00"], ["c", ""]])
    assert " a      -4.50 \n b      12.00 \n" in capsys.readouterr().out


def test_notes_end_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """A note ends neither the computation nor a sentence with dots."""
    words = "compare --memories gru gru --env gymnasium:CartPole-v1 --a2c.gamma 0.9"
    assert run(words.split()) == 2
    assert "add --network.encoder auto --wrappers.normalise-rewards\n" in capsys.readouterr().err
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "wb", buffering=0) as stream:
        patch.setattr(sys, "stderr", io.TextIOWrapper(stream, write_through=True))
        log("playing")
        say("played")


def test_help_has_no_line_breaks_of_the_code_and_says_whose_tables(
    capsys: pytest.CaptureFixture,
) -> None:
    """tyro reads a line that begins with an option as an item of a list."""
    with pytest.raises(SystemExit):
        run(["sweep", "--help"])
    said = capsys.readouterr().out
    assert "--trials 40 --steps 3e5 --seeds 2. A setting" in said
    said = " ".join(said.replace("│", " ").split())
    assert '"Table A.3" is Pramanik\'s (2023), for Memory Maze. Used only with ppo.' in said


def test_help_of_a_command(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        run(["help", "runs"])
    assert stop.value.code in (0, None) and "usage: clew runs" in capsys.readouterr().out


def test_a_table_whose_reader_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command learns of it, and ends with 0 as it does for JSON."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = open(writer, "w", buffering=1)
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(BrokenPipeError):
        print_table("a", ["b"], [["c"]])
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_resuming_raises_steps_only(
    trained: Path, capsys: pytest.CaptureFixture, output: Callable[..., str]
) -> None:
    tiny = str(trained / "tiny")
    text = output("train", "--resume", "tiny", "--run-dir", str(trained), "--steps", "96")
    assert "96 steps" in text and f"clew evaluate {tiny}" in text
    assert run(["train", "--resume", tiny, "--a2c.gamma", "0.5"]) == 2
    assert "a2c.gamma = 0.99, not 0.5" in capsys.readouterr().err
    assert run(["train", "--name", "tiny", "--run-dir", str(trained)]) == 2
    assert "resume it (clew train --resume" in capsys.readouterr().err


def test_a_preset_keeps_its_options() -> None:
    preset = default_command(["--preset", "pramanik/arelit"]).config
    asked = replace(preset, memory_options={"r": 7}, env_options={"corridor_length": 160})
    merged = _within_preset(asked, preset)
    assert merged.memory_options == preset.memory_options | {"r": 7}
    assert merged.env_options == {"corridor_length": 160}
    other = replace(asked, memory="gru", memory_options={"hidden_size": 8})
    assert _within_preset(other, preset).memory_options == {"hidden_size": 8}
    words = ["--preset", "pramanik/arelit", "--memory-options", "r=7"]
    command = parse_training(Memories, words, command="compare", about="", seeds=3)
    assert command.config.memory_options == merged.memory_options and command.config.seeds == 3
    words = [*words[:2], "--memories", "lstm", "gru", "--memory-options", "hidden_size=8"]
    command = parse_training(Memories, words, command="compare", about="")
    assert command.config.memory_options == {"hidden_size": 8}


def test_ctrl_c_says_how_to_go_on(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(args: list[str]) -> int:
        raise KeyboardInterrupt("go on with: clew train --resume runs/x")

    monkeypatch.setattr(clew.cli, "dispatch", stopped)
    assert run(["train"]) == 130
    assert capsys.readouterr().err == "\ngo on with: clew train --resume runs/x\n"


def test_models(output: Callable[..., str]) -> None:
    from clew.memory import MEMORIES

    rows: list[dict[str, Any]] = json.loads(output("models", "--json"))
    assert [row["name"] for row in rows] == list(MEMORIES)
    assert all(row["parameters"] > 0 and "uncounted" not in row for row in rows)
    shown = output("models", "lstm", "--options", "hidden_size=600")
    assert "1,480,800" in shown and "hidden_size=600" in shown and "Shapes" in shown


def test_envs(output: Callable[..., str]) -> None:
    maze, *_ = json.loads(output("envs", "--json"))
    assert maze["name"] == "tmaze" and maze["options"]["corridor_length"] == 120
    assert "tmaze" in output("envs")
    assert "Remember one bit" in output("envs", "tmaze")
    shown = output("envs", "battleship", "--env-options", "difficulty=hard")
    assert "observation: Discrete(2)\nactions: MultiDiscrete([12 12])\nmetrics: return, " in shown
    by_name = {found["name"]: found["choices"] for found in json.loads(output("envs", "--json"))}
    assert by_name["tmaze"] == "4" and by_name["battleship"] == "8 x 8"
    assert by_name["position_only_pendulum"] == "1 number"


def test_check(output: Callable[..., str]) -> None:
    found = json.loads(output("check", "none", "--lengths", "1", "3", "--json"))["none"]
    assert found["passed"] and found["laws"]["stream"]["cases"] > 0 and found["warnings"] == []


def test_check_names_the_law_broken(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    assert run(["check", "test_cli:leaky", "--lengths", "3"]) == 1
    said = capsys.readouterr()
    assert "BROKEN" in said.out and "breaks law 'reset'" in said.err


def leaky() -> Any:
    """A memory that never forgets, which `clew check` must find."""
    import equinox as eqx
    import jax.numpy as jnp

    from clew.memory.base import AbstractMemory, scan_steps

    class Leaky(AbstractMemory):
        input_size: int = eqx.field(static=True, default=2)
        output_size: int = eqx.field(static=True, default=2)

        def init_state(self) -> Any:
            return jnp.zeros(2)

        def step(self, state: Any, x: Any, start: Any) -> Any:
            return 0.5 * state + x, 0.5 * state + x

        def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
            return scan_steps(self, state, xs, starts)

    return Leaky()


def test_mistakes_in_settings_are_listed_together(capsys: pytest.CaptureFixture) -> None:
    """Each appears once, on its own line."""
    words = "train --steps 10 --seeds 0 --memory lstmm --a2c.gamma 3 --env tmazee"
    assert run(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: seeds must be") and said.count("\n") == 4
    for part in ("gamma must be", "did you mean 'tmaze'", "did you mean 'lstm'"):
        assert said.count(part) == 1


@pytest.mark.parametrize("name", ["CartPole-v1", "cartpole-v1", "CartPole-v2"])
def test_a_gymnasium_environment_without_its_beginning(
    name: str, capsys: pytest.CaptureFixture
) -> None:
    assert run(["train", "--env", name]) == 2
    assert "did you mean 'gymnasium:CartPole-v1'?" in capsys.readouterr().err
    assert run(["envs", "ALE/Pong-v5"]) == 2
    assert "did you mean 'gymnasium:ALE/Pong-v5'?" in capsys.readouterr().err


def test_a_gymnasium_environment_is_described(output: Callable[..., str]) -> None:
    text = output("envs", "gymnasium:CartPole-v1")
    assert "actions: Discrete(2)" in text and "default options: none" in text
    (found,) = json.loads(output("envs", "gymnasium:CartPole-v1", "--json"))
    assert found["metrics"] == ["return", "length"]


def test_few_seeds_are_called_few() -> None:
    assert over_seeds(2) == "seeds; 2 are too few for it: it is too narrow, take 5 or more"
    assert over_seeds(5) == "seeds"


@pytest.mark.parametrize("name", ["日本", "a b", "\udcff\udcfe"])
def test_names_and_code_pages(
    name: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters outside the code page are escaped; invalid text is refused at once."""
    written = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", written)
    open_missing_streams()
    words = f"clew evaluate {shlex.quote(str(tmp_path / name))}"
    if name == "\udcff\udcfe":
        assert run(["train", "--name", name, "--run-dir", str(tmp_path)]) == 2
        return
    shutil.copytree(trained / "tiny", tmp_path / name)
    assert run(["runs", "--run-dir", str(tmp_path)]) == 0
    summary = json.loads((trained / "tiny" / "summary.json").read_text())
    assert str(RunResult(tmp_path / name, summary)).splitlines()[-1] == f"next: {words}"
    written.flush()
    assert ascii(name)[1:-1].encode() in written.buffer.getvalue()


def test_sizes_that_are_a_memorys_own_are_said() -> None:
    """Given one option, the memory sets the others; given none, it has two layers of 64."""
    assert on_sizes(TrainConfig()) == on_sizes(TrainConfig(), ["gru", "none"]) == []
    (line,) = on_sizes(TrainConfig(memory="arelit", memory_options={"chrono": 9}))
    assert line == (
        "arelit has hidden_size=128, its own defaults; without any memory option: hidden_size=64"
    )
    given = TrainConfig(memory_options={"hidden_size": 64})
    assert [line.split()[0] for line in on_sizes(given, ["lstm", "arelit"])] == ["lstm"]
    assert on_sizes(TrainConfig(memory_options={"hidden_size": 8, "num_layers": 1})) == []
