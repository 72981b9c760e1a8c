"""An export replaces only an earlier export, never files it did not make."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.deploy import runner
from clew.deploy.files import MANIFEST, write_export, zipped
from clew.errors import UserError
from faults.exports import tree

FILES = {name: name.encode() for name in runner.MOST_BYTES if name not in (MANIFEST, "policy.onnx")}
ABOUT = {"format": 1, "policy": "ab"}


def write(output: Path, **more: Any) -> Path:
    """An export with empty files."""
    return write_export(output, FILES, ABOUT | more)


def replaced(path: Path, make: Callable[[Path], Any]) -> None:
    """Something else in place of a file."""
    path.unlink(missing_ok=True)
    make(path)


def app(output: Path) -> None:
    """A user's folder with a file of the same name."""
    output.mkdir()
    (output / MANIFEST).write_text('{"name": "my app", "format": 1, "files": {}}')


def lone_zip(output: Path) -> None:
    """The zip of an export that has another folder."""
    write(output)
    shutil.rmtree(output)


def other_zip(output: Path) -> None:
    """An export, and the zip of another one."""
    write(output)
    (output.with_suffix(".zip")).rename(output.parent / "own.zip")
    write(output.parent / "other", rate=1)
    (output.parent / "other.zip").rename(output.with_suffix(".zip"))


def longer_zip(output: Path) -> None:
    """The zip of an export with one more file."""
    write(output)
    files = {path.name: path.read_bytes() for path in output.iterdir()}
    output.with_suffix(".zip").write_bytes(zipped(files | {"notes.txt": b"mine"}))


IN_THE_WAY: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a zip": (lambda q: q.with_suffix(".zip").write_bytes(b"mine"), "q.zip"),
    "a link": (lambda q: q.with_suffix(".zip").symlink_to("nowhere"), "q.zip"),
    "a folder called zip": (lambda q: q.with_suffix(".zip").mkdir(), "q.zip"),
    "the zip of another export": (lone_zip, "q.zip"),
    "the zip of yet another": (other_zip, "q.zip"),
    "a zip with notes": (longer_zip, "q.zip"),
    "a file": (lambda q: q.write_text("mine"), "q"),
    "a folder": (lambda q: (q.mkdir(), (q / "thesis.txt").touch()), "q"),
    "an app": (app, "q/manifest.json"),
    "a changed runner": (
        lambda q: (write(q), (q / "runner.py").write_text("mine")),
        "q/runner.py",
    ),
    "a changed manifest": (
        lambda q: (write(q), (q / MANIFEST).write_text("{}")),
        "q/manifest.json",
    ),
    "a pipe": (lambda q: (write(q), replaced(q / "graph.json", os.mkfifo)), "q/graph.json"),
    "a link to the same": (
        lambda q: (
            write(q),
            (q / "runner.py").rename(q.parent / "mine"),
            (q / "runner.py").symlink_to("../mine"),
        ),
        "q/runner.py",
    ),
    "a file of no export": (
        lambda q: (write(q), (q / "policy.onnx").write_text("mine")),
        "q/policy.onnx",
    ),
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_what_is_in_the_way_stays(name: str, tmp_path: Path) -> None:
    """The error names it and the remedy; neither it nor anything beside it changes."""
    make, named = IN_THE_WAY[name]
    make(tmp_path / "q")
    before = tree(tmp_path)
    with pytest.raises(UserError, match="move it away, or choose another output") as error:
        write(tmp_path / "q", rate=2)
    assert str(error.value).startswith(f"{tmp_path / named} already exists and is not from")
    assert tree(tmp_path) == before


def test_an_own_export_is_replaced(tmp_path: Path) -> None:
    """With its zip; notes beside it stay, and files that the new one lacks are removed."""
    output = tmp_path / "q"
    write_export(output, FILES | {"policy.onnx": b"onnx"}, ABOUT)
    (output / "notes.txt").write_text("mine")
    place = write(output, rate=3)
    assert json.loads((output / MANIFEST).read_text())["rate"] == 3
    assert (output / "notes.txt").read_text() == "mine" and not (output / "policy.onnx").exists()
    kept = write(tmp_path / "again", rate=3)
    assert kept.read_bytes() == place.read_bytes()


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("earlier", [False, True])
def test_a_killed_export_is_done_again(
    count: int, earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it had written when it was killed."""
    output, left = tmp_path / "q", count

    def write_file(path: Path, blocks: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        path.write_bytes(b"".join(blocks))

    if earlier:
        write_export(output, dict.fromkeys(FILES, b"earlier"), ABOUT | {"rate": 3})
    monkeypatch.setattr("clew.deploy.files.write_file", write_file)
    with pytest.raises(KeyboardInterrupt):
        write(output)
    monkeypatch.undo()
    place = write(output)
    assert place.exists() and json.loads((output / MANIFEST).read_text()).get("rate") is None


@pytest.mark.parametrize("name", ["\0", "q" * 300, "file/q"])
def test_names_that_no_folder_has(name: str, tmp_path: Path) -> None:
    """The error is one line, whatever the system says."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write|no folder has the name"):
        write(tmp_path / name)
