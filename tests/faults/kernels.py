"""Faults in the cache of compiled kernels: they never crash or block a start."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from clew.memory.kernels import build, why_not
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost, damage
from faults.stored import put_no_file

SECONDS = 120.0
"""Most seconds for a start."""
SCRIPT = """#!/bin/sh
for last; do :; done
[ "$1" = --version ] && exit
echo >> "{folder}/builds"
head -c 100000 "{whole}" > "$last"
sleep "${{SLOW:-0}}"
cp "{whole}" "$last"
"""
"""A compiler that always yields the existing library, writing half of it first."""


class Cache:
    """A separate cache with a library in it.

    Args:
        bench: the campaign's runs.
    """

    def __init__(self, bench: Bench):
        self.folder = bench.path / bench.new_name()
        self.folder.mkdir()
        whole = self.folder / "whole.so"
        shutil.copy(build.load_kernels()._name, whole)
        script = self.folder / "c++"
        script.write_text(SCRIPT.format(folder=self.folder, whole=whole))
        script.chmod(0o755)
        self.whole, self.kernels = whole.read_bytes(), self.folder / "kernels"
        self.environment = os.environ | {"CLEW_CACHE_DIR": str(self.folder), "CXX": str(script)}

    def begin(self, slow: float = 0.0) -> subprocess.Popen[str]:
        """A process that needs kernels, with a compiler that takes this many seconds."""
        return subprocess.Popen(
            [sys.executable, "-m", "clew.memory.kernels"],
            env=self.environment | {"SLOW": str(slow)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self) -> str:
        """The output of such a process; empty if it has its kernels, which are then intact."""
        process = self.begin()
        try:
            said, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise Lost("a start that waits") from error
        if process.returncode == 0:
            if self.libraries() != [self.whole]:
                raise Accepted("kernels that are not whole")
            return ""
        if process.returncode != 1 or "Traceback" in errors:
            raise Lost(f"code {process.returncode}: {said}{errors}")
        return errors.strip().splitlines()[-1]

    def libraries(self) -> list[bytes]:
        """The libraries in the cache."""
        return [path.read_bytes() for path in self.kernels.glob("kernels-*") if path.is_file()]


def damaged_kernels(bench: Bench, dice: random.Random) -> str:
    """A library changed on disk, or something else in its place: compiled again."""
    if why_not():
        return NO_EFFECT
    cache = Cache(bench)
    cache.start()
    (path,) = cache.kernels.iterdir()
    if dice.random() < 0.7:
        damage(path, dice)
        if path.read_bytes() == cache.whole:
            return NO_EFFECT
    else:
        put_no_file(path, dice)
    return cache.start() or SURVIVED


def kernels_of_others(bench: Bench, dice: random.Random) -> str:
    """A folder that others may write to: a line; a library of that kind: compiled again."""
    if why_not() or os.name != "posix":
        return NO_EFFECT
    cache = Cache(bench)
    cache.start()
    (path,) = cache.kernels.iterdir()
    if dice.random() < 0.5:
        path.chmod(dice.choice([0o777, 0o775, 0o757, 0o666, 0o622]))
        said = cache.start()
        if said or path.stat().st_mode & 0o022:
            raise Accepted(f"a library of others: {said}")
        return SURVIVED
    cache.kernels.chmod(dice.choice([0o777, 0o775, 0o757, 0o1777, 0o722]))
    said = cache.start()
    if "others may write" not in said:
        raise Accepted(f"a folder of others: {said}")
    return said


def killed_build(bench: Bench, dice: random.Random) -> str:
    """A build killed at any moment: the next start has its kernels, and no file stays forever."""
    if why_not():
        return NO_EFFECT
    cache = Cache(bench)
    process = cache.begin(slow=60.0)
    deadline = time.monotonic() + SECONDS
    while not (cache.folder / "builds").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(dice.uniform(0.0, 0.2))
    os.killpg(process.pid, 9)
    process.communicate()
    if cache.start():
        raise Lost("the kernels, after a build that was killed")
    for left in _unfinished(cache.kernels):
        os.utime(left, (0, 0))
    cache.start()
    if _unfinished(cache.kernels):
        raise Lost("a file that a build has left")
    return SURVIVED


def _unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith("kernels-")]
