"""A user's own code has no setting, so rows record its files, and a change is noticed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clew.cli.study_output import show
from clew.lab.grid import Study, run_study
from clew.lab.grid.jobs import make_job, run_job
from clew.lab.grid.packs import Pack
from clew.lab.grid.sources import changed_code, hash_of, own_files
from made_up_rows import write_rows
from small_study import Watch, small_study

MINE = """
import functools
from clew.memory.gru import GRU as Library
from made_up_rows import write_rows

def build(input_size, *, key):
    return Library(input_size, key=key, hidden_size=5)

class Mine(Library):
    "Its own."

part = functools.partial(Library, hidden_size=5)
"""


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A module `coded_mine` with memories."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "coded_mine", raising=False)
    (tmp_path / "coded_mine.py").write_text(MINE)
    return tmp_path / "coded_mine.py"


def study_of(reference: str) -> Study:
    """One memory in one setting with two seeds."""
    study = small_study(seeds=(0, 1)).add_memory("mine", reference)
    return study.only(["mine"], ["length-1"])


def row_of(study: Study, seed: int, **sources: object) -> dict[str, object]:
    """A finished row."""
    digest = study.digest("mine", "length-1")
    return {
        "model": "mine",
        "setting": "length-1",
        "seed": seed,
        "digest": digest,
        "mean": 0.5,
        **sources,
    }


@pytest.mark.parametrize("name", ["build", "Mine", "part"])
def test_the_file_of_what_is_ones_own_is_found(name: str, file: Path) -> None:
    study = study_of(f"coded_mine:{name}")
    config = study.config("mine", "length-1")
    assert own_files(config, study.memories, {}) == {f"coded_mine:{name}": file}


def test_the_file_of_an_encoder_and_of_a_schedule_is_found(file: Path) -> None:
    config = small_study().models["gru"]
    network = replace(config.network, encoder="coded_mine:build")
    assert own_files(replace(config, network=network), {}, {}) == {"coded_mine:build": file}
    scheduled = config.with_learning(schedule="coded_mine:part")
    assert own_files(scheduled, {}, {}) == {"coded_mine:part": file}


@pytest.mark.parametrize(
    "memory, env",
    [
        ("gru", "memory_chain"),
        ("clew.lab.studies.models:PublishedGRU", "gymnasium:CartPole-v1"),
        ("coded_mine:Library", "gymnasium:CartPole-v1"),
    ],
)
def test_the_librarys_own_has_no_file(memory: str, env: str, file: Path) -> None:
    config = replace(small_study().models["gru"], memory=memory, env=env)
    assert own_files(config, {}, {}) == {}


def test_rows_say_what_their_code_was(file: Path) -> None:
    study = study_of("coded_mine:build")
    (row,) = run_job(make_job(study, Pack("mine", ("length-1",), (0,)), None))
    assert row["sources"] == {"coded_mine:build": hash_of(file)}
    assert changed_code(study, [row], file.parent) == []


def test_rows_of_other_code_are_counted_in_one_line(file: Path, tmp_path: Path, capsys) -> None:
    study, name = study_of("coded_mine:build"), "coded_mine:build"
    rows = [row_of(study, 0, sources={name: hash_of(file)}), row_of(study, 1)]
    write_rows(tmp_path, rows)
    watch = Watch()
    run_study(study, tmp_path, progress=watch)
    assert not watch.messages
    file.write_text(MINE + "\n")
    run_study(study, tmp_path, progress=watch)
    (line,) = watch.messages
    assert line.startswith(
        f"{tmp_path / 'results.jsonl'} has 1 row of other code, as {file} changed"
    )
    show(study, str(tmp_path))
    assert line in capsys.readouterr().out.replace("\n", " ")
