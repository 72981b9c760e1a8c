"""Names of a user's own objects: what they resolve to, and what is wrong with the others."""

import pytest

from clew.errors import UserError
from clew.names import resolve


def test_a_name_is_looked_for_in_the_current_folder_too(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_module_of_mine.py").write_text("class Outer:\n    def build():\n        pass\n")
    assert resolve("a_module_of_mine:Outer").__name__ == "Outer"
    assert resolve("a_module_of_mine:Outer.build").__name__ == "build"


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
