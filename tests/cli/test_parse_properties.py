"""Any words on the command line become settings that a folder keeps exactly, or one clear error."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clew.cli import COMMANDS, run
from clew.cli.parse import option_names, parse
from clew.cli.train import TrainCommand, default_command
from clew.errors import UserError
from clew.pairs import parse_value, written
from clew.run import folder
from clew.run.config import TrainConfig, config_from_json
from properties import JSON, TEXTS, few, fewer, text_of

NAMES = sorted(option_names(TrainConfig))
KEYS = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True)
NUMBERS = st.integers(-3, 2**40).map(str) | st.floats().map(repr)
WORDS = (
    st.sampled_from([*NAMES, "--resume", "--preset", "--help", "--", "-", "--no-such", "=", "a=1"])
    | st.sampled_from(["gru", "tmaze", "ppo", "True", "none", "makkink/gru", "nowhere"])
    | NUMBERS
    | TEXTS
)
"""Options, possible values of options, and anything else."""


def settings(words: list[str]) -> TrainConfig:
    """The settings with which `clew train` would train."""
    default = default_command(words)
    return parse(TrainCommand, words, command="train", about="", default=default).config


@few
@given(value=JSON)
@example("1")
@example("True")
@example("none")
@example("NaN")
@example('"a"')
def test_a_value_as_it_is_typed_comes_back(value: Any) -> None:
    """A text that looks like a number is written in quotes."""
    assert text_of(parse_value(written(value))) == text_of(value)


@fewer
@given(options=st.dictionaries(KEYS, JSON, max_size=3), steps=st.integers(0, 2**60), name=TEXTS)
def test_options_reach_the_folder(options: dict[str, Any], steps: int, name: str) -> None:
    """They keep their types through the command line and config.json."""
    pairs = [f"{key}={written(value)}" for key, value in options.items()]
    config = settings([f"--steps={steps}", f"--name={name}", "--memory-options", *pairs])
    assert (config.steps, config.name) == (steps, name)
    assert text_of(config.memory_options) == text_of(options)
    again = config_from_json(json.loads(json.dumps(config.to_json())))
    assert again == config and again.digest() == config.digest()


@fewer
@given(words=st.lists(WORDS, max_size=4))
def test_any_words_are_settings_or_one_line(words: list[str], tmp_path: Path) -> None:
    """Accepted settings come back from config.json unchanged."""
    try:
        config = settings(words)
        config.validate()
    except UserError as error:
        assert "\n" not in str(error)
        return
    except SystemExit as stop:
        assert stop.code == 0 and "--help" in words
        return
    folder.write_config(tmp_path, config)
    assert folder.read_config(tmp_path) == config


@fewer
@given(
    command=st.sampled_from([*COMMANDS, "tran", "", "--x"]),
    word=st.sampled_from(["--no-such", "--steps=x", "nowhere-at-all", "--seed=nan"])
    | TEXTS.filter(bool),
)
def test_any_command_refuses_in_one_line(
    command: str,
    word: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With exit code 2, before anything is computed or written."""
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run([command, word]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
