"""Compiles the kernels once for this machine, and keeps them."""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jaxlib.version

SOURCES = Path(__file__).parent / "native"

# The third line lets sums be vectorised; NaN and infinity keep their meaning.
_FLAGS = (
    *("-std=c++17", "-O3", "-shared", "-fPIC", "-pthread", "-w"),
    *("-fno-math-errno", "-ffp-contract=fast"),
    *("-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)
_FOR_THIS_PROCESSOR = ("-march=native", "-mprefer-vector-width=512")
_LONGEST = 300.0  # seconds that a compiler may take
SWITCHED_OFF = "CLEW_KERNELS is 0"
"""The reason given when the user has switched the kernels off."""
_LARGEST = 2**26  # bytes that a library may have; one has 1.4 MB
_UNFINISHED = "building-"


class NotBuilt(Exception):
    """Why there are no kernels."""


def load_kernels() -> ctypes.CDLL:
    """The shared library of kernels, compiled if it is not in the cache.

    The cache is ~/.cache/clew/kernels, or `kernels` in CLEW_CACHE_DIR. A library's name is a hash
    of its sources, the compiler and its flags, JAX's headers and the processor, and its SHA-256.
    One whose digest differs is removed and compiled again, since loading a truncated library kills
    the process.

    Raises:
        NotBuilt: without a C++ compiler (c++, g++ or clang++, or what CXX says), if it fails, if
            others may write to the cache, or if CLEW_KERNELS is 0.
    """
    if os.environ.get("CLEW_KERNELS", "1") == "0":
        raise NotBuilt(SWITCHED_OFF)
    compiler = find_compiler()
    folder, fingerprint = cache_folder(), _fingerprint(compiler)
    try:
        _remove_unfinished(folder)
        path = _find_whole(folder, fingerprint) or _build(compiler, folder, fingerprint)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NotBuilt(f"the library in {folder} cannot be loaded: {error}") from error


def source_hash() -> str:
    """A hash of everything that decides what the kernels compute."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def find_compiler() -> list[str]:
    """The command of a C++ compiler: CXX, else c++, g++ or clang++.

    Raises:
        NotBuilt: if there is none.
    """
    wanted = os.environ.get("CXX")
    if wanted:
        try:
            return shlex.split(wanted)
        except ValueError as error:
            raise NotBuilt(f"CXX is {wanted!r}, which is not a command: {error}") from error
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return [path]
    raise NotBuilt("there is no C++ compiler: none of c++, g++, clang++ was found")


def compiler_version(compiler: list[str]) -> bytes:
    """What a compiler says about itself.

    Raises:
        NotBuilt: if it does not run, as `c++` of a macOS without the command line tools.
    """
    try:
        run = subprocess.run([*compiler, "--version"], capture_output=True, timeout=_LONGEST)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{shlex.join(compiler)} --version failed: {error}") from error
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip()[-300:] or f"exit code {run.returncode}"
        raise NotBuilt(f"{shlex.join(compiler)} --version failed: {said}")
    return run.stdout


def _fingerprint(compiler: list[str]) -> str:
    version = compiler_version(compiler)
    processor = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    parts = (source_hash(), *_FLAGS, *_FOR_THIS_PROCESSOR, jaxlib.version.__version__, processor)
    return hashlib.sha256(version + "\0".join(parts).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """The folder of this machine's kernels, where nobody else may write; see `load_kernels`.

    Raises:
        NotBuilt: if it cannot be created, or others may write there.
    """
    base = Path(os.environ.get("CLEW_CACHE_DIR") or "~/.cache/clew")
    try:
        folder = base.expanduser() / "kernels"
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = folder.stat()
    except RuntimeError as error:
        raise NotBuilt("there is no home folder to keep them in: set CLEW_CACHE_DIR") from error
    except OSError as error:
        raise NotBuilt(f"{base} cannot be created: {error}") from error
    if not is_own(found):
        raise NotBuilt(
            f"others may write to {folder} (owner {found.st_uid}, mode {found.st_mode & 0o777:o}), "
            "so no library in it is loaded: remove it, or set CLEW_CACHE_DIR to another folder"
        )
    return folder


def is_own(found: os.stat_result) -> bool:
    """Whether only this user and root can have written there; not known on Windows."""
    if os.name != "posix":
        return True
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _remove_unfinished(folder: Path) -> None:
    """Removes what killed builds have left behind."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > 2 * _LONGEST:
                path.unlink()


def _find_whole(folder: Path, fingerprint: str) -> Path | None:
    """An intact library; any other file with its name is removed.

    Raises:
        NotBuilt: if that is impossible.
    """
    whole = None
    for path in sorted(folder.glob(f"kernels-{fingerprint}-*")):
        if _is_whole(path):
            whole = path
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise NotBuilt(f"{path} is damaged and cannot be removed: {error.strerror}") from error
    return whole


def _is_whole(path: Path) -> bool:
    """Whether it is a file that nobody else can have written, and its digest is the one in its
    name."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or not is_own(found) or found.st_size > _LARGEST:
            return False
        return path.stem.endswith("-" + hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError:
        return False


def _build(compiler: list[str], folder: Path, fingerprint: str) -> Path:
    """Compiles under another name and moves it into place, as several processes may do so at
    once."""
    if sys.stderr.isatty():
        print("Compiling clew's kernels, once for this machine (20 s) ...", file=sys.stderr)
    main = ("-isystem", jax.ffi.include_dir(), str(SOURCES / "kernels.cc"))
    try:
        handle, name = tempfile.mkstemp(".so", _UNFINISHED, folder)
    except OSError as error:
        raise NotBuilt(f"{folder} cannot be written to: {error}") from error
    os.close(handle)
    try:
        # A compiler that does not know them, such as Apple's before version 15, does without.
        for more in (_FOR_THIS_PROCESSOR, ()):
            command = [*compiler, *_FLAGS, *more, *main, "-o", name]
            failure = _compile(command)
            if failure is None:
                return _keep(Path(name), f"kernels-{fingerprint}")
        raise NotBuilt(f"{shlex.join(compiler)} failed: {failure}")
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{shlex.join(compiler)} failed: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _compile(command: list[str]) -> str | None:
    """Runs a compiler; returns what it wrote if it fails.

    A compiler that is stopped, because it takes too long or by Ctrl-C, is stopped with the programs
    that it has started, which would go on without it.
    """
    own_group = 0 if os.name == "posix" else None
    ignored, read = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(
        command, stdout=ignored, stderr=read, text=True, process_group=own_group
    ) as process:
        try:
            _, said = process.communicate(timeout=_LONGEST)
        except BaseException:
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            raise
    return said.strip()[-2000:] if process.returncode else None


def _keep(unfinished: Path, name: str) -> Path:
    """Gives a library its name, with its digest, once it is fully written to disk."""
    with unfinished.open("rb+") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
        os.fsync(file.fileno())
    unfinished.chmod(0o755)
    return unfinished.replace(unfinished.with_name(f"{name}-{digest}.so"))
