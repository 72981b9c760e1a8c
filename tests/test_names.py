"""Names of a user's own objects resolve, or give a clear error."""

import sys

import pytest

from clew.bridges.gymnasium.build import build
from clew.errors import UserError
from clew.names import resolve


def test_a_name_is_looked_for_in_the_current_folder_too(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_module_of_mine.py").write_text("class Outer:\n    def build():\n        pass\n")
    assert resolve("a_module_of_mine:Outer").__name__ == "Outer"
    assert resolve("a_module_of_mine:Outer.build").__name__ == "build"


@pytest.mark.parametrize("find", [resolve, lambda name: build(name, {}).unwrapped.spec])
def test_the_current_folder_comes_first_for_whatever_is_named(tmp_path, monkeypatch, find) -> None:
    """Even for a task's module, if Python's path has another of the same name."""
    here, elsewhere, name = tmp_path / "here", tmp_path / "elsewhere", f"mine_{id(find)}"
    for folder in (here, elsewhere):
        folder.mkdir()
    (elsewhere / f"{name}.py").write_text("")
    (here / f"{name}.py").write_text("from labelled import Labelled as Own\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path), str(elsewhere)])
    find(f"{name}:Own")


def test_a_module_of_ones_own_imports_another_when_it_is_called(tmp_path, monkeypatch) -> None:
    """A console script would not find it: Python's path lacks the current folder there."""
    (tmp_path / "mine_first.py").write_text("def make():\n    import mine_second\n")
    (tmp_path / "mine_second.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path)])
    resolve("mine_first:make")()


@pytest.mark.parametrize(
    "reference, message",
    [
        ("clew.names", "expected package.module:name, got 'clew.names'"),
        ("nowhere_at_all:x", "cannot import 'nowhere_at_all' of 'nowhere_at_all:x'"),
        ("clew.names:resolv", "unknown name in clew.names 'resolv'; did you mean 'resolve'"),
        ("clew.names:__doc__", "clew.names:__doc__ is .*, of str; expected a class"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(reference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(reference)
