"""The folder of a run: its name, its lock, its settings and its files."""

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from clew.agents.learners import learner_settings
from clew.envs import ENVS
from clew.errors import UserError, one_line, unknown_name
from clew.files import open_to_append, read_json, with_lists, write_json
from clew.memory import MEMORIES
from clew.names import SCRIPT, is_reference, reference_to, script_alone
from clew.run.asynchronous.settings import PLACE
from clew.run.checkpoint import Identity
from clew.run.config import BESIDE, TrainConfig, config_from_json, differences
from clew.run.machine import git_commit, versions

CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
CHECKPOINTS = "checkpoints"
FORMAT = 1
LIBRARY = "clew."


def new_folder(config: TrainConfig) -> Path:
    """Makes the folder of a new run.

    Raises:
        UserError: if a run of that name exists, or the folder cannot be made.
    """
    parent = Path(config.run_dir)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if not config.name:
            memory = config.identity()["memory"]  # a published variant has its memory's name
            return _numbered(parent, f"{slug(config.env)}-{slug(memory)}")
        path = parent / config.name
        if (path / CONFIG).exists() and not is_bare(path):
            raise _exists(path)
        path.mkdir(exist_ok=True)
        return path
    except OSError as error:
        cause = "it is a file" if parent.is_file() else error.strerror
        raise UserError(f"cannot make a run's folder in {parent}: {cause}") from error


def find_run(path: str | Path, run_dir: str | Path = "runs") -> Path:
    """The folder of an existing run, from its path or its name.

    Raises:
        UserError: if there is no such run, with the nearest names.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"give a run's name or the path of its folder, got {one_line(path)}")
    places = Path(path), Path(run_dir) / path
    for candidate in places:
        if (candidate / CONFIG).is_file():
            return candidate
    for candidate in places:
        if candidate.is_file() and (candidate.parent / CONFIG).is_file():
            raise UserError(f"{candidate} is a file of the run {candidate.parent}: give the run")
        if (candidate / CHECKPOINTS).is_dir():
            raise UserError(f"{candidate} has no {CONFIG}: without settings it is not a run")
    known: list[str] = []
    for parent in {Path(path).parent, Path(run_dir)}:
        if parent.is_dir():
            known += [p.name for p in parent.iterdir() if (p / CONFIG).is_file()]
    if not known:
        raise UserError(
            f"unknown run {str(path)!r}: there is no run in {Path(run_dir).absolute()}; start in "
            "the folder that has your runs, or give the path of the run's folder"
        )
    raise unknown_name("run", str(path), known)


def if_begun(config: TrainConfig | None, resume: bool | str | Path) -> bool | str | Path:
    """The run to resume; False if it is the one that `config` names and nothing of it exists."""
    if resume is True and config is not None and config.name:
        path = Path(config.run_dir) / config.name
        return path.exists() and not is_bare(path)
    return resume


def is_bare(path: Path) -> bool:
    """Whether a folder, which need not exist, has no checkpoint, row or summary of a run.

    The folder of a run that failed before its first step is bare. The holder of its lock may
    replace the settings in it.
    """
    checkpoints = path / CHECKPOINTS
    if (path / SUMMARY).exists() or (checkpoints.exists() and any(checkpoints.iterdir())):
        return False
    return not any(rows.lstat().st_size for rows in path.glob(f"{METRICS}*"))


def to_resume(config: TrainConfig | None, resume: bool | str | Path) -> tuple[Path, TrainConfig]:
    """The folder to resume and its settings, with the changes that are allowed.

    Raises:
        UserError: if there is no such run, or if `config` changes anything other than more steps,
            loggers, devices, `host`, and the Ray cluster.
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
    changed = differences(by_reference(own).config, config)
    old, new = changed.pop("steps", (own.steps, own.steps))
    for name in PLACE:
        changed.pop(f"asynchronous.{name}", None)
    if changed:
        name, (was, wanted) = next(iter(changed.items()))
        raise UserError(
            f"{path} was started with {name} = {was!r}, not {wanted!r}; when resuming you may only "
            "raise steps and change loggers, devices, --host settings or the Ray cluster"
        )
    if new < old:
        raise UserError(f"{path} was started with {old} steps; steps can only be raised, got {new}")
    beside = {name: getattr(config, name) for name in BESIDE}
    beside["devices"] = config.devices or own.devices
    if config.device_threads == "auto":
        beside["device_threads"] = own.device_threads
    place = {name: getattr(config.asynchronous, name) for name in PLACE}
    beside["asynchronous"] = replace(own.asynchronous, **place)
    return path, replace(own, steps=new, **beside)


class Portable(NamedTuple):
    """Settings for any process, and a warning for each name that only this script resolves."""

    config: TrainConfig
    warnings: list[str]


def by_reference(config: TrainConfig) -> Portable:
    """The settings with names that resolve to user code in every process.

    A memory or task that a script registered in `clew.MEMORIES` or `clew.ENVS` is known everywhere
    by its "package.module:Class", but by its short name in that script alone. Nothing is imported.
    """
    changes: dict[str, Any] = {}
    warnings = []
    for field, kind, registry in (("memory", "memory", MEMORIES), ("env", "task", ENVS)):
        name = getattr(config, field)
        found: Any = registry.get(name)
        reference = reference_to(found)
        if found is None or (reference or "").startswith(LIBRARY):
            continue
        if reference is None or reference.startswith(f"{SCRIPT}:"):
            warnings.append(script_alone(kind, name))
        else:
            changes |= {
                field: reference,
                f"{field}_options": {**getattr(config, f"{field}_options")},
            }
    return Portable(replace(config, **changes) if changes else config, warnings)


def completed(config: TrainConfig) -> TrainConfig:
    """The settings with all values of a user's learner, since its defaults may change.

    Raises:
        UserError: if the learner cannot be found, or does not take these options.
    """
    if not is_reference(config.algorithm):
        return config
    settings: Any = learner_settings(config.algorithm, config.learner_options)
    return replace(config, learner_options=with_lists(dataclasses.asdict(settings)))


class SavedRun(NamedTuple):
    """The contents of a run's config.json."""

    config: TrainConfig
    """The settings that it was started with."""
    identity: Identity
    spaces: Mapping[str, str]
    """Spaces of the agent's observations and actions; see `clew.run.spaces`."""


def write_new_config(path: Path, config: TrainConfig, spaces: Mapping[str, str]) -> Identity:
    """Writes config.json of a new run, and returns the run's identity.

    Raises:
        UserError: if another process has begun a run in this folder meanwhile.
    """
    if (path / CONFIG).exists() and not is_bare(path):
        raise _exists(path)
    identity = Identity(secrets.token_hex(8), (config.digest(),))
    write_config(path, config, identity, spaces)
    return identity


def write_config(
    path: Path,
    config: TrainConfig,
    identity: Identity | None = None,
    spaces: Mapping[str, str] | None = None,
) -> None:
    """Writes config.json: the settings, the versions, the commit of a source checkout.

    A run of an early version has no identity and no spaces.
    """
    identity = identity or Identity("", (config.digest(),))
    values = json.loads(json.dumps(config.to_json()))
    text = {
        "format": FORMAT,
        "run": identity.run,
        "config": values,
        "digest": identity.digests[0],
        "earlier_digests": list(identity.digests[1:]),
        "checksum": _checksum(values),
        "spaces": dict(spaces or {}),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    write_json(path / CONFIG, text)


def read_config(path: Path) -> TrainConfig:
    """The settings that a run was started with; see `read_run`."""
    return read_run(path).config


def read_run(path: Path) -> SavedRun:
    """The settings that a run was started with, its identity and its spaces.

    Raises:
        UserError: if config.json cannot be read, is from a newer version, or was changed.
    """
    file = path / CONFIG
    text = read_json(file)
    try:
        if text["format"] > FORMAT:
            raise UserError(f"{file} was written by a newer clew")
        config = config_from_json(text["config"])
        digest = config.digest()
        if text.get("digest", digest) != digest:  # a memory's defaults may have changed since
            former = config_from_json(text["config"], former=True)
            if former.digest() == text["digest"]:
                config, digest = former, text["digest"]
        earlier = tuple(map(str, text.get("earlier_digests", ())))
        identity = Identity(str(text.get("run", "")), (digest, *earlier))
        spaces = {name: str(space) for name, space in text.get("spaces", {}).items()}
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except (
        *(ValueError, KeyError, TypeError, AttributeError, RecursionError),
        ArithmeticError,  # the number of updates with 0 environments
    ) as error:
        raise UserError(f"{file} cannot be read: {type(error).__name__}: {error}") from error
    _require_unchanged(file, text, digest)
    return SavedRun(config, identity, spaces)


def _require_unchanged(file: Path, text: dict[str, Any], digest: str) -> None:
    """Compares digest and checksum with the settings; early versions wrote no checksum."""
    written, checksum = text.get("digest", digest), _checksum(text["config"])
    if written == digest and text.get("checksum", checksum) == checksum:
        return
    accepted = f'"digest": "{digest}", "checksum": "{checksum}"'
    if written != digest:
        accepted += f', "earlier_digests": ["{written}"]'
    raise UserError(
        f"{file} was changed after it was written: its settings have the digest {digest} and the "
        f"checksum {checksum}, it says {written} and {text.get('checksum', 'nothing')}. Restore "
        f"it; or, if the change is meant, write {accepted} in it"
    )


def _checksum(values: Any) -> str:
    """Checksum of all settings in the file, including those that the digest leaves out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks a run's folder for this process.

    The operating system holds the lock on `.lock` and releases it however the process ends, so the
    file of a killed process does not block. The file's text, the process id, is only for messages.

    Raises:
        UserError: if another process holds it.
    """
    try:
        import fcntl  # optional: Windows has no such lock, so runs are not protected there
    except ImportError:
        yield
        return
    try:
        lock = open_to_append(path / ".lock")
    except OSError as error:
        raise UserError(f"cannot write in {path}: {error.strerror}") from error
    try:
        _take(fcntl.flock, lock, fcntl.LOCK_EX | fcntl.LOCK_NB, path)
        with contextlib.suppress(OSError):  # a full disk can be locked
            os.truncate(lock, 0)
            os.pwrite(lock, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _take(flock: Callable[[int, int], None], lock: int, how: int, path: Path) -> None:
    """Takes a lock; the error says who holds it, or why the folder cannot be locked."""
    try:
        flock(lock, how)
    except BlockingIOError as error:
        holder = os.pread(lock, 1000, 0).decode(errors="replace").strip() or "unknown"
        raise UserError(f"{path} is in use by another process ({holder})") from error
    except OSError as error:
        raise UserError(f"cannot lock {path}: {error.strerror}") from error


def slug(name: str) -> str:
    """A task's name for folders: "gymnasium:ALE/Pong-v5" becomes "gymnasium-ALE-Pong-v5"."""
    return re.sub(r"[^\w.-]+", "-", name)


def _exists(path: Path) -> UserError:
    return UserError(
        f"{path} already has a run: resume it (clew train --resume {shlex.quote(str(path))}, in "
        f"Python clew.train(config, resume=True)), or choose another name"
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
