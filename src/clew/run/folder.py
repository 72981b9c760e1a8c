"""The folder of a run: its name, its lock, its settings, where things are."""

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from clew.errors import UserError, unknown_name
from clew.run.asynchronous.settings import PLACE
from clew.run.config import BESIDE, TrainConfig, config_from_json, differences
from clew.run.files import write_file
from clew.run.machine import git_commit, versions

CONFIG, METRICS, SUMMARY, CHECKPOINTS = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "checkpoints",
)
FORMAT = 1


def new_folder(config: TrainConfig) -> Path:
    """Makes the folder of a new run.

    Raises:
        UserError: if a run of that name exists, or the folder cannot be made.
    """
    parent = Path(config.run_dir)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if not config.name:
            return _numbered(parent, f"{plain(config.env)}-{config.memory}")
        path = parent / config.name
        if (path / CONFIG).exists():
            raise _exists(path)
        path.mkdir(exist_ok=True)
        return path
    except OSError as error:
        raise UserError(f"cannot make a run's folder in {parent}: {error.strerror}") from error


def find_run(path: str | Path, run_dir: str | Path = "runs") -> Path:
    """The folder of an existing run, from its path or its name.

    Raises:
        UserError: if there is no such run, with the nearest names.
    """
    for candidate in (Path(path), Path(run_dir) / path):
        if (candidate / CONFIG).is_file():
            return candidate
    known: list[str] = []
    for parent in {Path(path).parent, Path(run_dir)}:
        if parent.is_dir():
            known += [p.name for p in parent.iterdir() if (p / CONFIG).is_file()]
    raise unknown_name("run", str(path), known)


def to_resume(config: TrainConfig | None, resume: bool | str | Path) -> tuple[Path, TrainConfig]:
    """The folder to resume and its settings, with the changes that a resumed run may have.

    Raises:
        UserError: if there is no such run, or `config` asks for anything but more steps, other
            loggers or devices, and another Ray cluster.
    """
    if resume is True:
        if config is None or not config.name:
            raise UserError("which run should be resumed? Give its path or its name")
        path = find_run(config.name, config.run_dir)
    else:
        path = find_run(str(resume), config.run_dir if config else "runs")
    own = read_config(path)
    if config is None:
        return path, own
    changed = differences(own, config)
    old, new = changed.pop("steps", (own.steps, own.steps))
    for name in PLACE:
        changed.pop(f"asynchronous.{name}", None)
    if changed:
        name, (was, wanted) = next(iter(changed.items()))
        raise UserError(
            f"{path} was started with {name} = {was!r}, not {wanted!r}; a resumed run may only "
            "have its steps raised and its loggers, devices or Ray cluster changed"
        )
    if new < old:
        raise UserError(f"{path} was started for {old} steps, they can be raised but not {new}")
    beside = {name: getattr(config, name) for name in BESIDE}
    place = own.asynchronous.at_place_of(config.asynchronous)
    return path, replace(own, steps=new, asynchronous=place, **beside)


def write_new_config(path: Path, config: TrainConfig) -> None:
    """Writes config.json of a new run.

    Raises:
        UserError: if another process was quicker to start a run in this folder.
    """
    if (path / CONFIG).exists():
        raise _exists(path)
    write_config(path, config)


def write_config(path: Path, config: TrainConfig) -> None:
    """Writes config.json: the settings, the versions, the commit of a source checkout."""
    text = {
        "format": FORMAT,
        "config": config.to_json(),
        "digest": config.digest(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    write_json(path / CONFIG, text)


def read_config(path: Path) -> TrainConfig:
    """The settings that a run was started with.

    Raises:
        UserError: if config.json cannot be read or is of a newer version.
    """
    try:
        text = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        if text["format"] > FORMAT:
            raise UserError(f"{path / CONFIG} was written by a newer clew")
        return config_from_json(text["config"])
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path / CONFIG} cannot be read: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file whole or not at all.

    Raises:
        UserError: if the disk is full or cannot be written to.
    """
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Raises:
        UserError: if the disk is full or cannot be written to.
    """
    try:
        write_file(path, [text.encode()])
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a run's folder for this process alone.

    The lock is the operating system's on `.lock`, which releases it when a process ends in
    whatever way, so a file that a killed process left does not block. The file's text, the process
    id, is only for the message.

    Raises:
        UserError: if another process holds it.
    """
    try:
        import fcntl  # optional: Windows has no such lock; there the run is not protected
    except ImportError:
        yield
        return
    try:
        opened = open(path / ".lock", "a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write in {path}: {error.strerror}") from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UserError(f"{path} is in use by another process ({holder})") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield


def plain(name: str) -> str:
    """A task's name as part of a folder's: "gymnasium:ALE/Pong-v5" is "gymnasium-ALE-Pong-v5"."""
    return re.sub(r"[^\w.-]+", "-", name)


def _exists(path: Path) -> UserError:
    return UserError(
        f"there is a run in {path} already; resume it with --resume {path}, or choose another name"
    )


def _numbered(parent: Path, stem: str) -> Path:
    number = 1
    while True:
        path = parent / f"{stem}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
