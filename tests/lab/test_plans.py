"""Studies of `benchmarks/`: the study that a command line makes from a plan."""

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import arelit_tmaze, lists, modern_memories, plans, trials

from clew.lab.grid import Study


def asked(monkeypatch: pytest.MonkeyPatch, words: list[str], *args: Any, **kwargs: Any) -> Study:
    """The study that would run."""
    found: list[Study] = []
    monkeypatch.setattr(plans, "run_study", lambda study, *_, **__: found.append(study))
    monkeypatch.setattr(sys, "argv", ["plan", "folder", *words])
    plans.run_plan(*args, **kwargs)
    return found[0]


def test_a_memory_of_ones_own_has_the_sizes_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--models", "gru", "--add-memory", "own=own_lru:LRU", "wide=clew.memory:GRU"]
    study = asked(monkeypatch, words, "", {"lists": lists.lists})
    assert list(study.models) == ["gru", "own", "wide"]
    assert study.memories == {"own": "own_lru:LRU", "wide": "clew.memory:GRU"}
    assert study.models["wide"].memory_options == {"hidden_size": 64, "num_layers": 2}
    assert study.models["gru"] == lists.lists().models["gru"]


def test_sizes_may_be_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--plan", "long", "--add-memory", "wide=clew.memory:Transformer"]
    sizes = {"long": modern_memories.LONG_WIDTHS}
    study = asked(monkeypatch, words, "", modern_memories.PLANS, sizes=sizes)
    assert study.models["wide"].memory_options == study.models["transformer"].memory_options
    assert {**study.models}.keys() - modern_memories.long().models.keys() == {"wide"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--models", "gro"], "gro"),
        (["--add-memory", "own=own_lru:None"], "own_lru"),
    ],
)
def test_a_mistake_ends_as_a_command_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as end:
        asked(monkeypatch, words, "", {"lists": lists.lists})
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("error: ") and says in line


@pytest.mark.parametrize(("script", "words"), [(arelit_tmaze, []), (trials, ["bandit-10"])])
def test_so_it_does_in_scripts_with_words_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    script: Any,
    words: list[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / "file"), *words])
    with pytest.raises(SystemExit) as end:
        script.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("error: ") and "file" in line
