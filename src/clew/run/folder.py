"""The folder of a run: its name, its lock, its settings, where things are."""

import contextlib
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from clew.errors import UserError, unknown_name
from clew.run.config import TrainConfig, config_from_json

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
            return _numbered(parent, f"{config.env}-{config.memory}")
        path = parent / config.name
        if (path / CONFIG).exists():
            raise UserError(
                f"there is a run in {path} already; resume it with --resume {path}, or choose "
                "another name"
            )
        path.mkdir(exist_ok=True)
        return path
    except OSError as error:
        raise UserError(f"cannot make a run's folder in {parent}: {error.strerror}") from error


def find_run(path: str | Path, run_dir: str | Path = "runs") -> Path:
    """The folder of an existing run, from its path or its name.

    Raises:
        UserError: if there is no such run, with the nearest names there are.
    """
    for candidate in (Path(path), Path(run_dir) / path):
        if (candidate / CONFIG).is_file():
            return candidate
    known: list[str] = []
    for parent in {Path(path).parent, Path(run_dir)}:
        if parent.is_dir():
            known += [p.name for p in parent.iterdir() if (p / CONFIG).is_file()]
    raise unknown_name("run", str(path), known)


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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a run's folder for this process alone.

    The lock is the operating system's on `.lock`, which it gives back when a process ends in
    whatever way; a file that a killed process left is therefore no obstacle. The file's text,
    the process id, is only for the message.

    Raises:
        UserError: if another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock; there the run is not protected.
        yield
        return
    with open(path / ".lock", "a+", encoding="utf-8") as file:
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


def versions() -> dict[str, str]:
    """The versions of everything that a run's numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("clew", "jax", "jaxlib", "equinox", "optax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_commit() -> str | None:
    """The commit of the checkout that this library runs from, "+" if files differ; else None."""
    here = Path(__file__).resolve().parent
    root = here.parents[2]
    if not (root / ".git").exists():
        return None
    try:
        run = [
            subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10
            )
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno"))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    if run[0].returncode:
        return None
    return run[0].stdout.strip() + ("+" if run[1].stdout.strip() else "")


def use_compilation_cache() -> None:
    """Keeps compiled programs in ~/.cache/clew/jax, or in CLEW_CACHE_DIR, for the next process.

    Does nothing where the user has told JAX of another folder, or the folder cannot be made.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if jax.config.jax_compilation_cache_dir:
        return
    folder = os.environ.get("CLEW_CACHE_DIR") or os.path.expanduser("~/.cache/clew/jax")
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX decides at its first compilation, which may be past, whether there is a cache at all.
    compilation_cache.reset_cache()


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
