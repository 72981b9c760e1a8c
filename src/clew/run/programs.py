"""The cache of compiled programs; damaged ones are compiled again."""

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache as jax_cache
from jax._src.compilation_cache_interface import CacheInterface

from clew.files import read_file
from clew.memory.kernels.build import is_own

LARGEST = 2**30
"""Largest size of a program in bytes; usual ones have less than a megabyte."""
_SUFFIX = "-cache"
_DIGEST = hashlib.sha256().digest_size
_of_jax = jax_cache.get_file_cache


class Programs(CacheInterface):
    """A folder of programs like that of JAX's own cache, with a digest at the end of each.

    JAX runs any entry that it finds: it would block on a pipe, run a wrong program under another's
    name, and never replace a damaged one.

    Args:
        folder: one that nobody else may write to.
    """

    def __init__(self, folder: Path):
        self._path = folder

    def get(self, key: str) -> Any:  # JAX says None
        """The program of a key, or None; an entry that is damaged or not this user's is removed."""
        path = self._path / f"{key}{_SUFFIX}"
        try:
            if not path.is_symlink() and is_own(path.stat()):
                data = read_file(path, LARGEST)
                program, digest = data[:-_DIGEST], data[-_DIGEST:]
                if digest == _digest(key, program):
                    return program
        except FileNotFoundError:
            return None
        except OSError:
            pass
        with contextlib.suppress(OSError):  # such as a folder of that name
            path.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Stores a program, completely or not at all; without room on disk it is not stored."""
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._path)
            try:
                with open(handle, "wb") as file:
                    file.write(value)
                    file.write(_digest(key, value))
                os.replace(name, self._path / f"{key}{_SUFFIX}")
            except OSError:
                os.unlink(name)
                raise


def programs_folder() -> Path | None:
    """~/.cache/clew/programs, or `programs` in CLEW_CACHE_DIR; None if neither can be used.

    A folder that others may write to is not used, and a warning says so, since clew would run the
    programs that they write there.
    """
    base = Path(os.environ.get("CLEW_CACHE_DIR") or "~/.cache/clew")
    try:
        folder = base.expanduser() / "programs"
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError):  # the latter without a home folder
        return None
    if is_own(found):
        return folder
    warnings.warn(
        f"others may write to {folder} (owner {found.st_uid}, mode {found.st_mode & 0o777:o}), so "
        "programs are compiled anew: remove it, or set CLEW_CACHE_DIR to another folder",
        stacklevel=2,
    )
    return None


def keep_programs(folder: str, seconds: float = 0.0) -> None:
    """Makes JAX cache programs in a folder: in its own way, or as `Programs` in `programs_folder`.

    Args:
        folder: of the programs.
        seconds: least compile time of a program to be cached.
    """
    jax_cache.get_file_cache = _file_cache
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX decides at its first compilation, perhaps before this, whether there is a cache at all.
    jax_cache.reset_cache()


def _file_cache(path: str) -> tuple[CacheInterface, str] | None:
    return (Programs(Path(path)), path) if Path(path) == programs_folder() else _of_jax(path)


def _digest(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + program).digest()
