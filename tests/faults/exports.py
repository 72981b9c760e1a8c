"""Faults in exports: damaged, crafted and greedy ones, obstacles to writing one, names in C++."""

import hashlib
import io
import json
import os
import random
import shutil
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clew.deploy import runner
from clew.deploy.export import export, verify
from clew.deploy.files import MANIFEST, write_export, zipped
from clew.deploy.graph import GraphBuilder, Ref
from clew.deploy.header import header_file
from clew.deploy.header_check import check_header
from clew.deploy.load import load_policy
from clew.deploy.policy import Traced
from clew.errors import UserError
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost, damage, require_refused
from faults.stored import put_no_file, replace_something

HARMFUL = ("\x1b[2J\n", "\0", "../../x", "U9", "object", 10**9, -(2**63), [1] * 99, [-1], [10**9])
"""Values that might mislead the reader of an export, besides those of other files."""
PIECES = (
    "a",
    "b",
    "/",
    "_",
    " ",
    "\n",
    "\r",
    "\\",
    "//",
    "*/",
    "/*",
    "#error evil",
    "};",
    '"',
    "??/",
)
PIECES += ("%:", "static_assert(false);", "class", "int", "NAN", "é", "\u2028", "\x1b", "1", "")
"""Parts of difficult names in C++: ends of comments, starts of directives, keywords."""
MEMORY, SECONDS = 2**28, 30.0
"""Most memory and time for refusing a small export."""


def bytes_of_an_export(bench: Bench, dice: random.Random) -> str:
    """Bits, zeros, noise or a cut in a file of an export, or in its zip: never another policy."""
    folder, place = _copy(bench)
    in_zip = dice.random() < 0.3
    damage(place if in_zip else dice.choice(sorted(folder.iterdir())), dice)
    return _same_or_refused(bench, place if in_zip else folder)


def crafted_export(bench: Bench, dice: random.Random) -> str:
    """Values of a manifest, graph or header replaced, with new digests: a line, or no effect."""
    folder, _ = _copy(bench)
    name = dice.choice([MANIFEST, "graph.json", "policy.safetensors"])
    data, rest = (folder / name).read_bytes(), b""
    if name == "policy.safetensors":
        (length,) = struct.unpack_from("<Q", data)
        data, rest = data[8 : 8 + length], data[8 + length :]
    values = json.loads(data)
    for _ in range(dice.randrange(1, 3)):
        replace_something(values, dice, HARMFUL)
    text = json.dumps(values).encode()
    if name == "policy.safetensors":
        text = struct.pack("<Q", len(text)) + text + rest
    (folder / name).write_bytes(text)
    _seal(folder)
    return _same_or_refused(bench, folder)


def crafted_episode(bench: Bench, dice: random.Random) -> str:
    """Bytes of the golden episode's directory and headers replaced, with new digests."""
    folder, _ = _copy(bench)
    path = folder / "golden.npz"
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    if dice.random() < 0.5:
        name = dice.choice(sorted(members))
        start = bytearray(members[name][:128])
        for _ in range(dice.randrange(1, 6)):
            start[dice.randrange(128)] = dice.choice(b"(){}[]'<>|,:0123456789OUVMfiux \x00\xff")
        path.write_bytes(zipped(members | {name: bytes(start) + members[name][128:]}))
    else:
        data = bytearray(path.read_bytes())
        ends = [at for at in range(len(data)) if data[at : at + 2] == b"PK"]
        for _ in range(dice.randrange(1, 4)):
            data[min(dice.choice(ends) + dice.randrange(46), len(data) - 1)] = dice.randrange(256)
        path.write_bytes(bytes(data))
    _seal(folder)
    return _same_or_refused(bench, folder)


def greedy_export(bench: Bench, dice: random.Random) -> str:
    """A small export that asks for gigabytes or minutes: refused with little of both."""
    folder, place = _copy(bench)
    name = dice.choice(["sparse", "zip", "view", "numbers", "products", "operations", "directory"])
    path = folder
    if name == "sparse":
        os.truncate(dice.choice(sorted(folder.iterdir())), 2**34)
    elif name == "zip":
        larger = dice.choice([MANIFEST, "graph.json", "runner.py"])
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        place.write_bytes(zipped(files | {larger: bytes(2**26)}))
        path = place
    elif name == "directory":
        path = place
        _long_directory(place)
    else:
        graph = json.loads((folder / "graph.json").read_text())
        _grow(graph, name)
        (folder / "graph.json").write_text(json.dumps(graph))
        _seal(folder)
    return _refused_cheaply(path, name)


def way_of_an_export(bench: Bench, dice: random.Random) -> str:
    """Something in the way of an export: refused and untouched; an earlier export is replaced."""
    whole = _whole(bench)
    manifest = json.loads((whole / MANIFEST).read_text())
    files = {name: (whole / name).read_bytes() for name in manifest["files"]}
    output = bench.path / bench.new_name() / "export"
    output.parent.mkdir()
    way = dice.choice(sorted(WAYS))
    own = WAYS[way](output, partial(write_export, output, files, manifest), dice)
    before = tree(output.parent)
    again = partial(write_export, output, files, manifest | {"control_rate": dice.random()})
    if own:
        again()
        verify(output, compiles=False)
        verify(output.with_suffix(".zip"), compiles=False)
        after = tree(output.parent)
        if any(after.get(name) != before[name] for name in before if name.endswith("notes.txt")):
            raise Lost(f"what was beside the export: {way}")
        return SURVIVED
    line = require_refused(again, way)
    if tree(output.parent) != before:
        raise Lost(f"what was in the way: {way}")
    return line


def names_in_cpp(bench: Bench, dice: random.Random) -> str:
    """Names made from difficult parts: the header compiles, and no part of them becomes code."""
    names = {"".join(dice.choices(PIECES, k=dice.randrange(6))) for _ in range(12)}
    entries = [{"name": name, "shape": [2], "dtype": "float32"} for name in sorted(names)]
    builder, kind = GraphBuilder(), np.dtype(np.float32)
    given = {name: Ref(f"in/{name}", (2,), kind) for name in names}
    states = {name: Ref(f"state/{name}", (2,), kind) for name in names}
    one = builder.constant(np.ones(2, np.float32), sorted(names)[0])
    outputs = {name: builder.emit("add", ref, one) for name, ref in given.items()}
    after = {name: builder.emit("add", ref, one) for name, ref in states.items()}
    given |= {"start": Ref("start", (), np.dtype(bool))}
    inputs = [*entries, {"name": "start", "shape": [], "dtype": "bool"}]
    graph = builder.finish(given, states, outputs, after)
    first = {name: np.zeros(2, np.float32) for name in names}
    said = check_header(header_file(Traced(graph, inputs, entries, entries, first), "p"))
    return SURVIVED if "compiles with" in said else NO_EFFECT


def _whole(bench: Bench) -> Path:
    """An export of the undisturbed run."""
    path = bench.path / "export"
    if not path.exists():
        export(bench.short, path)
    return path


def _copy(bench: Bench) -> tuple[Path, Path]:
    """Its folder and its zip, to be damaged."""
    whole, home = _whole(bench), bench.path / bench.new_name()
    shutil.copytree(whole, home / "export")
    shutil.copy(whole.with_suffix(".zip"), home / "export.zip")
    return home / "export", home / "export.zip"


def _seal(folder: Path) -> None:
    """Writes correct digests into a manifest, as an attacker who crafts an export would."""
    manifest = json.loads((folder / MANIFEST).read_text())
    if isinstance(manifest.get("files"), dict):
        for name in runner.MOST_BYTES:
            if name in manifest["files"]:
                data = (folder / name).read_bytes()
                manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _actions(path: Path) -> list[Any]:
    """A policy's actions for the observations of its golden episode."""
    policy: Any = load_policy(path)
    golden = runner.read_golden(policy.model)
    pairs = zip(golden["input/observation"], golden["input/start"], strict=True)
    return [policy(observation[0], start=start[0]) for observation, start in pairs]


def _same_or_refused(bench: Bench, path: Path) -> str:
    """Verifies and plays a changed export: refused in a printable line, or unchanged."""
    try:
        verify(path, compiles=False)
        found = _actions(path)
    except (UserError, runner.PolicyError) as error:
        if not str(error).isprintable():
            raise Accepted(f"no line: {str(error)!r}") from error
        return str(error)
    if found != _actions(_whole(bench)):
        raise Accepted("another policy")
    return SURVIVED


def _refused_cheaply(path: Path, what: str) -> str:
    """The line with which an export is refused; raises `Accepted` if that takes many resources."""
    began = time.monotonic()
    tracemalloc.start()
    try:
        line = require_refused(partial(verify, path, compiles=False), what)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if most > MEMORY or time.monotonic() - began > SECONDS:
        raise Accepted(f"{what}: {most:,} bytes, {time.monotonic() - began:.0f} s")
    return line


def _grow(graph: Any, how: str) -> None:
    """Adds operations that take much, each of which is allowed or declared to be small."""

    def add(op: str, said: list[int], /, *names: str, **attributes: Any) -> str:
        out = f"more {len(graph['nodes'])}"
        entry = {"op": op, "in": names, "out": out, "shape": said, "dtype": "float32"}
        graph["nodes"].append(entry | {"attributes": attributes})
        return out

    size = {"numbers": 2**14, "products": 2_000, "view": 2**15, "operations": 1}[how]
    one = add("sum", [], graph["inputs"]["observation"], axes=[-1])
    one = add("reshape", [1, 1], one, rank=0, shape=[1, 1])
    said = [1, 1] if how == "view" else [size, size]
    last = add("expand", said, one, shape=[size, size])
    for _ in range(60_000 if how == "operations" else 3):
        last = add("matmul" if how == "products" else "add", said, last, last)


def _long_directory(place: Path) -> None:
    """A zip with as many names as fit into some megabytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for number in range(30_000):
            file.writestr(str(number), b"")
    place.write_bytes(whole.getvalue())


def _own(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    write()
    return True


def _own_with_notes(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    write()
    place = output.parent if dice.random() < 0.5 else output
    (place / "notes.txt").write_text("mine")
    for path in [*output.iterdir(), output.with_suffix(".zip")]:
        if path.name != "notes.txt":
            path.unlink()
    return place == output.parent


def _begun(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    """An export as a kill leaves it: without the zip, and perhaps without some files."""
    write()
    output.with_suffix(".zip").unlink()
    for path in dice.sample(sorted(output.iterdir()), dice.randrange(3)):
        path.unlink()
    return True


def _changed(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    write()
    path = dice.choice([*sorted(output.iterdir()), output.with_suffix(".zip")])
    path.write_bytes(path.read_bytes()[:-30])
    return False


def _no_file(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    write()
    put_no_file(dice.choice([*sorted(output.iterdir()), output.with_suffix(".zip")]), dice)
    return False


def _zip_alone(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    write()
    shutil.rmtree(output)
    return False


def _somebodys(output: Path, write: Callable[[], Any], dice: random.Random) -> bool:
    """A user's file, zip or folder, some with names as in an export."""
    kind = dice.choice(["file", "zip", "folder", "link"])
    if kind == "file":
        output.write_text("mine")
    if kind == "zip":
        output.with_suffix(".zip").write_bytes(zipped({dice.choice([MANIFEST, "x"]): b"{}"}))
    if kind == "folder":
        output.mkdir()
        (output / dice.choice([*runner.MOST_BYTES, "thesis.txt"])).write_text('{"format": 1}')
    if kind == "link":
        output.with_suffix(".zip").symlink_to("nowhere")
    return False


WAYS = {
    "own": _own,
    "own with notes": _own_with_notes,
    "begun": _begun,
    "changed": _changed,
    "no file": _no_file,
    "zip alone": _zip_alone,
    "somebody's": _somebodys,
}


def tree(folder: Path) -> dict[str, Any]:
    """Everything below a folder."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else path.lstat().st_mode
        )
        for path in folder.rglob("*")
    }
