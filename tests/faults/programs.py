"""Faults in the cache of compiled programs: a run computes the same, and nothing waits."""

import contextlib
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import jax

from clew.run import machine
from clew.run.programs import Programs, keep_programs
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import SHORT, SURVIVED, Accepted, Bench, Lost, damage
from faults.stored import put_no_file
from faults.system import no_larger_files


def damaged_programs(bench: Bench, dice: random.Random) -> str:
    """Entries damaged, swapped, grown, foreign or not files: compiled again and kept intact."""
    folder = _filled(bench)
    entries = sorted(folder.iterdir())
    spoilt = sorted(dice.sample(entries, dice.randrange(1, len(entries) + 1)))
    for path in spoilt:
        dice.choice([damage, damage, _exchange, _grow, _share, put_no_file])(path, dice)
    folders = [path for path in spoilt if path.is_dir()]  # clew does not remove these
    _train(bench, folder.parent)
    kept = Programs(folder)
    for path in [path for path in spoilt if path not in folders]:
        if kept.get(path.name.removesuffix("-cache")) is None:
            raise Lost(f"{path.name}, which is not kept whole again")
    return SURVIVED


def place_of_programs(bench: Bench, dice: random.Random) -> str:
    """A folder that others may write to, or that is no folder, full or gone: the run continues."""
    folder = _filled(bench)
    how, says = dice.choice(["others", "none", "full", "file", "gone"]), ""
    with contextlib.ExitStack() as stack:
        if how == "others":
            folder.chmod(dice.choice([0o777, 0o775, 0o757, 0o1777, 0o722]))
            says = "others may write"
        if how == "none":
            shutil.rmtree(folder)
            put_no_file(folder, dice)
        if how == "file":
            shutil.rmtree(folder.parent)
            folder.parent.write_text("mine")
        if how == "full":
            shutil.rmtree(folder)
            stack.enter_context(no_larger_files(dice.randrange(14_000, 20_000)))
        if how == "gone":
            stack.enter_context(mock.patch.dict(os.environ, {"HOME": "/proc/none"}))
        said = _train(bench, None if how == "gone" else folder.parent)
    if says not in said:
        raise Accepted(f"a folder of others, without a word: {said}")
    if how == "full" and any(folder.glob("tmp*")):
        raise Lost("what did not fit is left")
    return said or SURVIVED


def _exchange(path: Path, dice: random.Random) -> None:
    whole = path.parents[1].with_name("cache-whole") / "programs"
    path.write_bytes(dice.choice(sorted(whole.iterdir())).read_bytes())


def _grow(path: Path, dice: random.Random) -> None:
    os.truncate(path, dice.choice([2**35, path.stat().st_size + 1]))


def _share(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + b"mine")
    path.chmod(0o666)


def _filled(bench: Bench) -> Path:
    """A cache of all programs of a short run, in a fixed place, on which their keys depend."""
    place, whole = bench.path / "cache", bench.path / "cache-whole"
    if not whole.exists():
        _train(bench, place)
        shutil.copytree(place, whole)
    if place.is_file():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    return place / "programs"


def _train(bench: Bench, cache: Path | None) -> str:
    """Trains a short run, which must equal the undisturbed one, with a cache; returns warnings."""
    expected = bench.short
    jax.clear_caches()
    with _cache(cache), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        machine.use_compilation_cache()
        path = train(bench.compiled(bench.new_name(), SHORT), progress=Quiet()).path
    bench.require_same(path, expected)
    return "; ".join(dict.fromkeys(str(warning.message) for warning in found))


@contextlib.contextmanager
def _cache(place: Path | None) -> Iterator[None]:
    """Puts programs into another cache; None is that of a user without a home."""
    before = jax.config.values["jax_compilation_cache_dir"]
    given = {name: value for name, value in os.environ.items() if name != "CLEW_CACHE_DIR"}
    given |= {} if place is None else {"CLEW_CACHE_DIR": str(place)}
    with mock.patch.dict(os.environ, given, clear=True):
        keep_programs("")
        try:
            yield
        finally:
            jax.clear_caches()
    keep_programs(before)
