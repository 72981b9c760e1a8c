"""Faults in stored files: checkpoints, rows, settings, and other things in place of files.

Some are followed by a complete resumption; those tried by the dozen end where the resumption would
begin, with the state and the rows that it would begin with.
"""

import copy
import hashlib
import json
import math
import os
import random
import shutil
import socket
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import UserError
from clew.run import checkpoint, folder, json_lines
from clew.run.checkpoint import Checkpoint, CheckpointWarning, Identity
from clew.run.metrics import read_metrics
from clew.run.progress import Quiet
from clew.run.train import train
from faults.bench import (
    NO_EFFECT,
    SHORT,
    SURVIVED,
    Accepted,
    Bench,
    Lost,
    config_of,
    damage,
    require_refused,
    untimed,
)

ANYTHING = (None, True, -1, 0, 7, 2**70, 0.5, math.nan, "", "float32", [], [2**40], {}, [[]])
"""Values to replace those of a header or of settings."""
FOREIGN_CODE = ("os:system", "gymnasium:os:Evil-v0", "gymnax:os:system", "clew_evil:make")


def damaged_checkpoint(bench: Bench, dice: random.Random) -> str:
    """The newest checkpoint changed on disk: the run resumes from the one before it."""
    path = bench.interrupted(dice)
    kept = _checkpoints(path)
    return _resumed_past(bench, path, partial(damage, kept[-1], dice))


def foreign_checkpoint(bench: Bench, dice: random.Random) -> str:
    """A checkpoint of another run, of the same shapes, as the newest: it is not used."""
    path = bench.interrupted(dice)
    other = dice.choice(_checkpoints(bench.foreign))
    place = _checkpoints(path)[-1].with_name(f"update-{SHORT - 1:09d}.clew")
    same_name = dice.random() < 0.5
    return _resumed_past(
        bench, path, lambda: shutil.copy(other, place.with_name(other.name) if same_name else place)
    )


def renamed_checkpoint(bench: Bench, dice: random.Random) -> str:
    """An older checkpoint under the name of a newer one: it is not used."""
    path = bench.interrupted(dice)
    older = dice.choice(_checkpoints(path)[:-1])
    place = older.with_name(f"update-{dice.randrange(37, SHORT):09d}.clew")
    return _resumed_past(bench, path, lambda: shutil.copy(older, place))


def something_in_place_of_a_checkpoint(bench: Bench, dice: random.Random) -> str:
    """A pipe, a socket, a device, a folder or a dead link: skipped without waiting."""
    path = bench.interrupted(dice)
    place = _checkpoints(path)[-1].with_name(f"update-{SHORT - 1:09d}.clew")
    return _resumed_past(bench, path, lambda: put_no_file(place, dice))


def all_checkpoints_damaged(bench: Bench, dice: random.Random) -> str:
    """Every checkpoint cut short: refused, naming each."""
    path = bench.interrupted(dice)
    for kept in _checkpoints(path):
        os.truncate(kept, dice.randrange(kept.stat().st_size))
    return require_refused(lambda: train(resume=path, progress=Quiet()), "no checkpoint is whole")


def bytes_of_a_checkpoint(bench: Bench, dice: random.Random) -> str:
    """Flipped bits, zeros, noise, a cut or a tail in a checkpoint: never another state."""
    return _read_or_refused(bench, dice, partial(damage, dice=dice))


def tail_of_a_checkpoint(bench: Bench, dice: random.Random) -> str:
    """More bytes after a checkpoint's end."""

    def lengthen(path: Path) -> None:
        with path.open("ab") as file:
            file.write(dice.randbytes(dice.randrange(1, 5_000)))

    return _read_or_refused(bench, dice, lengthen)


def crafted_header(bench: Bench, dice: random.Random) -> str:
    """Values of a header replaced, with a new checksum: a line, and nothing is allocated."""

    def craft(path: Path) -> None:
        data = path.read_bytes()
        length = struct.unpack_from("<8sIQ32s", data)[2]
        header = json.loads(data[52 : 52 + length])
        for _ in range(dice.randrange(1, 3)):
            replace_something(header, dice)
        raw = json.dumps(header).encode()
        head = struct.pack("<8sIQ32s", data[:8], 1, len(raw), hashlib.sha256(raw).digest())
        path.write_bytes(head + raw + data[52 + length :])

    return _read_or_refused(bench, dice, craft)


def damaged_rows(bench: Bench, dice: random.Random) -> str:
    """metrics.jsonl changed on disk: no other row is lost, and none is invented."""
    path = bench.copy()
    file, whole = path / folder.METRICS, untimed(read_metrics(path))
    lines = file.read_bytes().splitlines(keepends=True)
    for _ in range(dice.choice([1, 1, 1, 3])):
        damage(file, dice)
    if file.read_bytes() == b"".join(lines):
        return NO_EFFECT
    left = file.read_bytes().split(b"\n")
    with warnings_caught():
        rows = untimed(read_metrics(path))
    if any(row not in whole for row in rows):
        raise Accepted("a row that nobody wrote")
    for row, line in zip(whole, lines, strict=True):
        if line[:-1] in left and row not in rows:
            raise Lost(f"the row of update {row['update']}, which was not damaged")
    owned = json_lines.RowFile(file)
    owned.close()
    if untimed(owned.rows) != rows or untimed(read_metrics(path)) != rows:
        raise Lost("rows, when their owner mended the file")
    return SURVIVED


def damaged_config(bench: Bench, dice: random.Random) -> str:
    """Bytes of config.json changed on disk: refused, or without effect on the settings."""
    path = bench.copy()
    return _same_settings(path, lambda file: damage(file, dice))


def edited_config(bench: Bench, dice: random.Random) -> str:
    """A setting changed by hand, to the same type or another: refused."""
    path = bench.copy()

    def edit(file: Path) -> None:
        text = json.loads(file.read_text())
        if dice.random() < 0.5:
            replace_something(text["config"], dice)
        else:
            numbers = [k for k, v in text["config"].items() if type(v) in (int, float)]
            text["config"][dice.choice(numbers)] += dice.choice([1, -1, 10_000])
        file.write_text(json.dumps(text))

    return _same_settings(path, edit)


def code_in_a_config(bench: Bench, dice: random.Random) -> str:
    """Settings that name code, with correct checksums: refused, naming the code that would run."""
    path, name = bench.copy(), dice.choice(FOREIGN_CODE)
    marker = bench.path / "marker"
    options = {"command": f"touch {marker}"}
    config = replace(folder.read_config(path), env=name, env_options=options)
    folder.write_config(path, config, Identity("ab", (config.digest(),)))
    line = require_refused(lambda: train(resume=path, progress=Quiet()), name)
    if marker.exists():
        raise Accepted(f"{name} was run")
    if "Nothing was run" not in line:
        raise Accepted(f"{name}: {line}")
    return line


def no_file(bench: Bench, dice: random.Random) -> str:
    """A pipe, a socket, a device, a folder or a link in place of a run's file: a line at once."""
    path = bench.copy()
    name = dice.choice([folder.CONFIG, folder.METRICS, ".lock"])
    with warnings_caught():
        put_no_file(path / name, dice)
        return require_refused(lambda: train(resume=path, progress=Quiet()), f"no file: {name}")


def put_no_file(place: Path, dice: random.Random) -> None:
    """Puts something there that is not a file."""
    place.unlink(missing_ok=True)
    kind = dice.choice(["pipe", "socket", "device", "folder", "link"])
    if kind == "pipe":
        os.mkfifo(place)
    if kind == "socket":
        # The path of a socket must be short.
        with closing(socket.socket(socket.AF_UNIX)) as made, chdir(place.parent):
            made.bind(place.name)
    if kind == "device":
        place.symlink_to(dice.choice(["/dev/zero", "/dev/full"]))
    if kind == "folder":
        place.mkdir()
    if kind == "link":
        place.symlink_to("/proc/self/mem")


@contextmanager
def warnings_caught() -> Iterator[list[str]]:
    """Collects warnings instead of showing them."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield said
    said += [str(w.message) for w in found if issubclass(w.category, CheckpointWarning)]


def _checkpoints(path: Path) -> list[Path]:
    return checkpoint.list_checkpoints(path / folder.CHECKPOINTS)


def resumed_past(path: Path, spoil: Callable[[], Any], resume: Callable[[], Any], name: str) -> str:
    """Resumes a run whose newest checkpoint was made unusable: it says so, and ends like another.

    Args:
        path: the run's folder.
        spoil: changes the contents of its checkpoints' folder.
        resume: resumes it and compares its end with that of an undisturbed one.
        name: of the file that the warning must name.
    """
    kept = path / folder.CHECKPOINTS
    before = {file: _bytes(file) for file in kept.iterdir()}
    spoil()
    if {file: _bytes(file) for file in kept.iterdir()} == before:
        return NO_EFFECT
    with warnings_caught() as said:
        resume()
    if not any(name in line for line in said):
        raise Accepted("a checkpoint that was none of this run's")
    return SURVIVED


def _resumed_past(bench: Bench, path: Path, spoil: Callable[[], Any]) -> str:
    return resumed_past(path, spoil, lambda: bench.resume(path, bench.short), "")


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _read_or_refused(bench: Bench, dice: random.Random, spoil: Callable[[Path], Any]) -> str:
    """The state that a run resumes from after a change of a checkpoint: the same or earlier."""
    path = bench.interrupted(dice)
    kept = _checkpoints(path)
    identity = folder.read_run(path).identity
    states = {one: identity.check(checkpoint.read(one)) for one in kept}
    spoilt = kept[-1]
    before = spoilt.read_bytes()
    spoil(spoilt)
    if spoilt.read_bytes() == before:
        return NO_EFFECT
    template = {name: leaf for name, leaf in states[spoilt].leaves.items()}

    def accept(found: Checkpoint) -> Checkpoint:
        return _require_shapes(identity.check(found), template)

    with warnings_caught():
        loaded = checkpoint.load_newest(spoilt.parent, accept)
    assert loaded is not None
    found, expected = loaded[0], states[loaded[0].path]
    if any(found.leaves[n].tobytes() != expected.leaves[n].tobytes() for n in template):
        raise Accepted(f"another state in {found.path.name}")
    if found.path == spoilt:
        # The same state under other versions, which are only recorded, or other seconds.
        return NO_EFFECT
    return SURVIVED


def _require_shapes(found: Checkpoint, template: dict[str, np.ndarray]) -> Checkpoint:
    """Refuses leaves of other names, shapes or types, as `restore` does."""
    for name, like in template.items():
        leaf = found.leaves.get(name)
        if leaf is None or (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
            raise checkpoint.CheckpointError(f"{found.path}: {name} is of another shape or type")
    return found


def replace_something(holder: Any, dice: random.Random, more: Sequence[Any] = ()) -> None:
    """Replaces a value of a JSON object, at any depth, by one of `ANYTHING` or of more."""
    key = dice.choice(list(holder))
    while isinstance(holder[key], dict | list) and holder[key] and dice.random() < 0.7:
        holder = holder[key]
        key = dice.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key] = copy.deepcopy(dice.choice([*ANYTHING, *more]))


def _same_settings(path: Path, change: Callable[[Path], Any]) -> str:
    """Reads changed settings: refused, or the same as before."""
    before, file = _text(config_of(path)), path / folder.CONFIG
    whole = _text(json.loads(file.read_bytes()))
    change(file)
    with suppress(ValueError):
        if _text(json.loads(file.read_bytes())) == whole:
            return NO_EFFECT
    try:
        after = folder.read_config(path).to_json()
    except UserError as error:
        return str(error)
    if _text(after) != before:
        raise Accepted("other settings")
    return SURVIVED


def _text(values: Any) -> str:
    """JSON values as a text, in which True is not 1."""
    return json.dumps(values, sort_keys=True)
