"""Compiles the kernels once for this machine, and keeps them."""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
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


class NotBuilt(Exception):
    """Why there are no kernels, in words."""


def load_kernels() -> ctypes.CDLL:
    """The shared library of kernels, compiled if it is not in the cache.

    The cache is ~/.cache/clew/kernels, or `kernels` in CLEW_CACHE_DIR. A library's name is
    a hash of its sources, the compiler and its flags, JAX's headers and the processor.

    Raises:
        NotBuilt: without a C++ compiler (c++, g++ or clang++, or what CXX says), if it fails, or
            if CLEW_KERNELS is 0.
    """
    if os.environ.get("CLEW_KERNELS", "1") == "0":
        raise NotBuilt("CLEW_KERNELS is 0")
    compiler = _find_compiler()
    path = cache_folder() / f"kernels-{_fingerprint(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NotBuilt(f"{path} cannot be loaded: {error}") from error


def source_hash() -> str:
    """Of everything that decides what the kernels compute."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _find_compiler() -> list[str]:
    wanted = os.environ.get("CXX")
    if wanted:
        return shlex.split(wanted)
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return [path]
    raise NotBuilt("there is no C++ compiler: none of c++, g++, clang++ was found")


def _fingerprint(compiler: list[str]) -> str:
    try:
        version = subprocess.run(
            [*compiler, "--version"], capture_output=True, timeout=_LONGEST, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{shlex.join(compiler)} --version failed: {error}") from error
    processor = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    parts = (source_hash(), *_FLAGS, *_FOR_THIS_PROCESSOR, jaxlib.version.__version__, processor)
    return hashlib.sha256(version + "\0".join(parts).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Where the kernels of this machine are kept; see `load_kernels`.

    Raises:
        NotBuilt: if it cannot be made.
    """
    base = os.environ.get("CLEW_CACHE_DIR") or os.path.expanduser("~/.cache/clew")
    folder = Path(base) / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotBuilt(f"{folder} cannot be made: {error}") from error
    return folder


def _build(compiler: list[str], path: Path) -> None:
    """Compiles under another name and moves into place, as several processes may be at it."""
    if sys.stderr.isatty():
        print("Compiling clew's kernels, once for this machine (20 s) ...", file=sys.stderr)
    main = ("-isystem", jax.ffi.include_dir(), str(SOURCES / "kernels.cc"))
    try:
        handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    except OSError as error:
        raise NotBuilt(f"{path.parent} cannot be written to: {error}") from error
    os.close(handle)
    try:
        # A compiler that does not know the processor's flags gets along without them.
        for more in (_FOR_THIS_PROCESSOR, ()):
            command = [*compiler, *_FLAGS, *more, *main, "-o", name]
            run = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
            if run.returncode == 0:
                os.replace(name, path)
                return
        raise NotBuilt(f"{shlex.join(compiler)} failed: {run.stderr.strip()[-2000:]}")
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{shlex.join(compiler)} failed: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
