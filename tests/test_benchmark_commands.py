"""Commands of benchmarks, on pages and in their own docstrings, are parsed by their scripts."""

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "results").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.py")),
    ROOT / "benchmarks" / "gpu.sh",
]
MAKE = {
    "bench-peers": "benchmarks/peers/bench_peers.py",
    "bench-torch": "benchmarks.against_torch",
    "conformance": "benchmarks.conformance",
}
"""The commands that targets of the Makefile run, with the words of `..._ARGS`."""
PYTHON = re.compile(r"python(?: -P)? (?:-m (benchmarks[.\w]*)|(benchmarks/[/\w]+\.py))([^\n`#]*)")
SHELL = re.compile(r"benchmarks/(gpu)\.sh((?: --[^\n`#]*)?)")
MADE = re.compile(r"make ([-\w]+) (?:BENCH|CONFORMANCE)_ARGS=(\"[^\"]*\"|[^\s`#]+)")


def commands(path: Path) -> Iterator[tuple[str, str]]:
    """Scripts and the words after them; continued lines are joined."""
    text = re.sub(r"\\+\n", " ", path.read_text())
    yield from ((module or script, words) for module, script, words in PYTHON.findall(text))
    yield from ((f"benchmarks.{name}", words) for name, words in SHELL.findall(text))
    yield from ((MAKE[name], words.strip('"')) for name, words in MADE.findall(text))


COMMANDS = sorted({(script, words.strip()) for path in PAGES for script, words in commands(path)})


class Parsed(Exception):
    """The words were parsed."""


@pytest.mark.parametrize(("script", "words"), COMMANDS)
def test_a_command_is_parsed(script: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured. A script that is named by its file has no package."""
    parse = argparse.ArgumentParser.parse_args

    def only_parsed(parser: argparse.ArgumentParser, *args: Any) -> None:
        parse(parser, *args)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parsed)
    monkeypatch.setattr("sys.argv", [script, *shlex.split(words)])
    with pytest.raises(Parsed):
        if script.endswith(".py"):
            assert "from benchmarks" not in (ROOT / script).read_text()
            runpy.run_path(str(ROOT / script), run_name="__main__")
        else:
            for loaded in (script, f"{script}.__main__"):  # loaded by another test
                monkeypatch.delitem(sys.modules, loaded, raising=False)
            runpy.run_module(script, run_name="__main__")


def test_the_commands_are_found() -> None:
    """At least one of every benchmark that a page names."""
    scripts = {script for script, _ in COMMANDS}
    assert len(COMMANDS) > 80 and {"benchmarks.gpu", *MAKE.values()} <= scripts
