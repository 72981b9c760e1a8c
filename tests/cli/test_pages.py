"""Large pages are requested once, by commands that compute, unless the variable is set."""

import os
import sys
from pathlib import Path

import pytest

from clew import cli
from clew.cli import pages


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines with which processes were restarted."""
    found: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: found.append([path, *words]))
    monkeypatch.setattr(pages, "is_possible", lambda: True)
    monkeypatch.setattr(cli, "run", lambda args: 0)
    monkeypatch.setenv("GLIBC_TUNABLES", "-")  # so that it is restored afterwards
    monkeypatch.delenv("GLIBC_TUNABLES")
    return found


@pytest.mark.parametrize(
    ("command", "times"), [("train", 1), ("compare", 1), ("models", 0), ("--version", 0)]
)
def test_only_what_computes_begins_anew(
    command: str, times: int, begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["clew", command, "--env", "tmaze"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "clew", command, "--env", "tmaze"])
    with pytest.raises(SystemExit):
        cli.main()
    line = [sys.executable, sys.executable, "-m", "clew", command, "--env", "tmaze"]
    assert begun == [line] * times
    settings = ("hugetlb=1", "mmap_max=0", "trim_threshold=68719476736")
    asked = ":".join(f"glibc.malloc.{setting}" for setting in settings)
    assert os.environ.get("GLIBC_TUNABLES") == (asked if times else None)


def test_it_begins_anew_once(begun: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["clew", "train"])
    for _ in range(2):
        with pytest.raises(SystemExit):
            cli.main()
    assert len(begun) == 1


def test_what_the_user_has_set_stays(
    begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "")
    pages.take_large_pages("train")
    assert begun == []


def test_calls_from_python_never_begin_anew(begun: list[list[str]]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train"])
    assert begun == []


@pytest.mark.parametrize(
    ("mode", "library", "possible"),
    [
        ("always [madvise] never", "glibc 2.36", True),
        ("always [madvise] never", "glibc 2.31", False),
        ("[always] madvise never", "glibc 2.36", False),
        ("always [madvise] never", "musl", False),
    ],
)
def test_where_it_is_possible(
    mode: str, library: str, possible: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "enabled").write_text(mode)
    monkeypatch.setattr(os, "confstr", lambda name: library)
    assert pages.is_possible(tmp_path / "enabled") == possible
    assert not pages.is_possible(tmp_path / "missing")
