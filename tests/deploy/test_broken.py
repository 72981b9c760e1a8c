"""Exports that are damaged, crafted or mistaken for others are refused, each in one line."""

import io
import json
import os
import shutil
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exports import LeakyMean, agent_of
from gymnasium import spaces

import clew
from clew.cli import run
from clew.deploy import runner
from clew.deploy.export import export_agent, verify
from clew.deploy.files import archive, digest, safetensors, zipped
from clew.errors import UserError
from memory_samples import INPUT_SIZE, quick_compilation

__all__ = ["quick_compilation"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An intact export."""
    agent = agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0)))
    space = spaces.Box(-1.0, 1.0, (INPUT_SIZE,), np.float32)
    folder = tmp_path_factory.mktemp("exports") / "own"
    return export_agent(agent, space, spaces.Discrete(3), folder).folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(whole, tmp_path / "broken"))


def changed(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Changes the contents of a JSON file."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))


def resealed(folder: Path) -> None:
    """Writes correct digests into the manifest, as an attacker who crafts an export would."""

    def seal(manifest: Any) -> None:
        for name in manifest["files"]:
            manifest["files"][name] = digest((folder / name).read_bytes())

    changed(folder, "manifest.json", seal)


def tensors(folder: Path, change: Callable[[dict], Any]) -> None:
    """Changes the arrays of an export."""
    arrays = runner.read_tensors((folder / "policy.safetensors").read_bytes())
    change(arrays)
    (folder / "policy.safetensors").write_bytes(safetensors(arrays))


def golden(folder: Path, change: Callable[[dict], Any]) -> None:
    """Changes the arrays of the golden episode."""
    with np.load(folder / "golden.npz") as file:
        arrays = dict(file)
    change(arrays)
    (folder / "golden.npz").write_bytes(archive(arrays))


def manifest(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Breaks the manifest."""
    return lambda folder: changed(folder, "manifest.json", change)


def graph(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Breaks the graph."""
    return lambda folder: changed(folder, "graph.json", change)


def appended(op: str, dtype: str, shape: list[int], times: int, /, **attributes: Any) -> Any:
    """Breaks the graph by one more operation on the observation."""

    def append(g: Any) -> None:
        given = [g["inputs"]["observation"]] * times
        entry = {"op": op, "in": given, "attributes": attributes, "out": "last"}
        g["nodes"].append(entry | {"shape": shape, "dtype": dtype})

    return graph(append)


def square(g: Any, size: int) -> None:
    """A broadcast view with many numbers, and the operations that read it."""
    for op, shape, attributes in (
        ("sum", [], {"axes": [-1]}),
        ("reshape", [1, 1], {"rank": 0, "shape": [1, 1]}),
        ("expand", [size, size], {"shape": [size, size]}),
    ):
        before = g["nodes"][-1]["out"] if op != "sum" else g["inputs"]["observation"]
        entry = {"op": op, "in": [before], "attributes": attributes, "out": f"square {op}"}
        g["nodes"].append(entry | {"shape": shape, "dtype": "float32"})


def more(g: Any, op: str, count: int) -> None:
    """Operations on the last value and itself."""
    last = g["nodes"][-1]
    for number in range(count):
        entry = {"op": op, "in": [last["out"]] * 2, "attributes": {}, "out": f"more {number}"}
        g["nodes"].append(last | entry)


def many_numbers(folder: Path) -> None:
    """Each array is allowed, but not all together."""
    changed(folder, "graph.json", lambda g: (square(g, 2**13), more(g, "add", 5)))


def many_products(folder: Path) -> None:
    """The same for products."""
    changed(folder, "graph.json", lambda g: (square(g, 1_000), more(g, "matmul", 5)))


def flipped(name: str) -> Callable[[Path], None]:
    """Flips one bit in the middle of a file."""

    def flip(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return flip


def renamed_offsets(folder: Path) -> None:
    """A header of the tensors in which two arrays overlap."""
    path = folder / "policy.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"data_offsets": [0, ', b'"data_offsets": [4, '))


def widened(arrays: dict) -> None:
    """Another shape for a parameter."""
    name = next(n for n, x in arrays.items() if n.endswith("weight") and x.ndim == 2)
    arrays[name] = np.zeros((7, 9), np.float32)


def weightless(arrays: dict) -> None:
    """Another value for a parameter."""
    arrays["memory/weight"] = np.zeros_like(arrays["memory/weight"])


def pickled(folder: Path) -> None:
    """A golden episode that would run code if it were unpickled."""
    np.savez(folder / "golden.npz", **{"input/start": np.array([print], object)})


def golden_of(header: str) -> Callable[[Path], None]:
    """A golden episode with another header of its first array."""

    def write(folder: Path) -> None:
        with zipfile.ZipFile(folder / "golden.npz") as file:
            members = {name: file.read(name) for name in file.namelist()}
        name, text = next(iter(members)), header.encode() + b"\n"
        start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        (folder / "golden.npz").write_bytes(zipped(members | {name: start + members[name]}))

    return write


def golden_bytes(change: Callable[[bytearray, int], Any]) -> Callable[[Path], None]:
    """Changes bytes of the golden episode; `change` gets the offset of its directory."""

    def write(folder: Path) -> None:
        data = bytearray((folder / "golden.npz").read_bytes())
        change(data, data.index(b"PK\x01\x02"))
        (folder / "golden.npz").write_bytes(bytes(data))

    return write


# name: the change, whether the digests are corrected afterwards, the expected error
BROKEN: dict[str, tuple[Callable[[Path], Any], bool, str]] = {
    "file missing": (lambda f: (f / "graph.json").unlink(), False, r"graph\.json is missing"),
    "graph changed": (flipped("graph.json"), False, r"graph\.json was changed"),
    "weights changed": (flipped("policy.safetensors"), False, "policy.safetensors was changed"),
    "episode changed": (flipped("golden.npz"), False, r"golden\.npz was changed"),
    "manifest cut": (lambda f: (f / "manifest.json").write_text("{"), False, "is not valid JSON"),
    "manifest a list": (
        lambda f: (f / "manifest.json").write_text("[]"),
        False,
        "is not a JSON object",
    ),
    "newer format": (manifest(lambda m: m.update(format=9)), False, "has format 9; this runner"),
    "no format": (manifest(lambda m: m.pop("format")), False, "has format None"),
    "no state": (manifest(lambda m: m.pop("state")), False, "or damaged: KeyError 'state'"),
    "input renamed": (
        manifest(lambda m: m["inputs"][0].update(name="seen")),
        False,
        "or damaged: KeyError 'seen'",
    ),
    "no action": (manifest(lambda m: m.update(action=None)), False, "or damaged: TypeError"),
    "action of objects": (
        manifest(lambda m: m["action"].update(dtype="O")),
        False,
        "the action has the type 'O'",
    ),
    "a name of escapes": (
        manifest(lambda m: m.update(policy="\x1b[2J")),
        False,
        r"the policy is '\\x1b\[2J', expected a digest",
    ),
    "no digests": (manifest(lambda m: m.update(files=[1])), False, "has no digests of the other"),
    "input of objects": (
        manifest(lambda m: m["inputs"][0].update(dtype="O")),
        False,
        "inputs 'observation' has the type 'O'",
    ),
    "input twice": (
        manifest(lambda m: m["inputs"].append(m["inputs"][0])),
        False,
        "'observation' is no name, or there twice",
    ),
    "input without end": (
        manifest(lambda m: m["inputs"][0].update(shape=[2**70])),
        False,
        "has more than 268435456 numbers",
    ),
    "input of no shape": (
        manifest(lambda m: m["inputs"][0].update(shape=["5"])),
        False,
        r"has the impossible shape \['5'\]",
    ),
    "path of objects": (
        manifest(lambda m: m["inputs"][0].update(path=[{}])),
        False,
        r"no observation has the path \[\{\}\]",
    ),
    "splits beyond": (
        manifest(lambda m: m["inputs"][0].update(splits=[9])),
        False,
        r"observation cannot be split at \[9\]",
    ),
    "categories of another shape": (
        manifest(lambda m: m["inputs"][0].update(categories=[0, 3])),
        False,
        r"observation cannot be from and to \[0, 3\]",
    ),
    "input reshaped": (
        manifest(lambda m: m["inputs"][0].update(shape=[99])),
        False,
        "or damaged: ValueError",
    ),
    "output of another type": (
        manifest(lambda m: m["outputs"][0].update(dtype="float64")),
        False,
        "output action has type int32, expected float64",
    ),
    "state of another shape": (
        manifest(lambda m: m["state"][1].update(shape=[5])),
        False,
        r"leaf of the state mean has shape \[0, 6\], expected \[0, 5\]",
    ),
    "tensors cut": (
        lambda f: (f / "policy.safetensors").write_bytes(b"12345678"),
        True,
        "policy.safetensors is cut short",
    ),
    "tensors overlap": (renamed_offsets, True, "does not lie where its header says"),
    "leaf missing": (
        lambda f: tensors(f, lambda x: x.pop("initial/mean")),
        True,
        "or damaged: KeyError 'initial/mean'",
    ),
    "parameter of another shape": (lambda f: tensors(f, widened), True, "or damaged: ValueError"),
    "unknown operation": (
        graph(lambda g: g["nodes"][0].update(op="os.system")),
        True,
        "is the unknown operation 'os.system'",
    ),
    "read from nowhere": (
        graph(lambda g: g["nodes"][0].update({"in": ["v9999"]})),
        True,
        "reads 'v9999', which does not exist",
    ),
    "unknown attribute": (
        graph(lambda g: g["nodes"][0]["attributes"].update(rate=2)),
        True,
        "or damaged: TypeError",
    ),
    "cast to objects": (
        appended("cast", "object", [INPUT_SIZE], 1, dtype="object"),
        True,
        "cast to 'object', expected one of float32",
    ),
    "cast to text": (
        appended("cast", "U999", [INPUT_SIZE], 1, dtype="U999"),
        True,
        "cast to 'U999', expected one of float32",
    ),
    "expanded without a word": (
        graph(lambda g: (square(g, 2**15), g["nodes"][-1].update(shape=[1, 1]))),
        True,
        r"is float32 \[0, 32768, 32768\], said as 'float32' \[0, 1, 1\]",
    ),
    "batches joined": (
        appended("concatenate", "float32", [INPUT_SIZE], 2, axis=-2, rank=1),
        True,
        r"is float32 \[2, 5\], said as 'float32' \[1, 5\]",
    ),
    "too many operations": (
        graph(lambda g: more(g, "add", 50_000)),
        True,
        "graph.json has more than 50000 operations",
    ),
    "too many numbers": (many_numbers, True, "a step makes more than 268435456 numbers"),
    "too many products": (many_products, True, "a step takes none or over 4294967296 products"),
    "of constants alone": (
        graph(lambda g: g["nodes"][0].update({"in": ["initial/mean", "initial/mean"]})),
        True,
        "depends on no input",
    ),
    "huge value": (
        graph(lambda g: g["nodes"][0].update(shape=[2**40])),
        True,
        "has more than 268435456 numbers",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_export_is_refused(name: str, copy: Path, capsys: Any) -> None:
    """When it is loaded, by the library and by its own runner, and when it is verified."""
    breach, sealed, said = BROKEN[name]
    breach(copy)
    if sealed:
        resealed(copy)
    with pytest.raises(runner.PolicyError, match=said) as error:
        runner.Model(copy)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
    if name != "file missing":
        with pytest.raises(UserError, match=said):
            clew.load_policy(copy)
    assert run(["export", str(copy), "--verify"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")


UNTRUE: dict[str, tuple[Callable[[Path], Any], bool, str]] = {
    "another output": (
        lambda f: golden(f, lambda x: x["output/logits"].__iadd__(0.01)),
        True,
        r"logits deviates by .* from golden\.npz, at most 1e-05 is",
    ),
    "another weight": (
        lambda f: tensors(
            f, lambda x: x.update({"memory/weight": np.ones((INPUT_SIZE, 6), np.float32)})
        ),
        True,
        r"deviates by .* from golden\.npz",
    ),
    "array missing": (
        lambda f: golden(f, lambda x: x.pop("after/mean")),
        True,
        "the array of the golden episode 'after/mean' is missing",
    ),
    "a pickle": (pickled, True, r"golden\.npz: input/start.npy has the type object"),
    "runner changed": (flipped("runner.py"), False, r"runner\.py was changed"),
    "runner missing": (lambda f: (f / "runner.py").unlink(), False, r"runner\.py is missing"),
    "golden of text": (
        golden_of("{'descr': '<U2', 'fortran_order': False, 'shape': (5,), }"),
        True,
        "has the type <U2, or is in columns",
    ),
    "golden without end": (
        golden_of(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62},), }}"),
        True,
        "golden.npz cannot be read: ValueError",
    ),
    "golden of a bad header": (golden_of("((((("), True, "golden.npz cannot be read: "),
    "golden of a deep header": (golden_of("(" * 9_000), True, "golden.npz cannot be read: "),
    "golden of a long number": (
        golden_of("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ("9" * 5_000)),
        True,
        "golden.npz cannot be read: ",
    ),
    "golden encrypted": (
        golden_bytes(lambda data, at: data.__setitem__(at + 8, 1)),
        True,
        "golden.npz cannot be read: RuntimeError",
    ),
    "golden of another packing": (
        golden_bytes(lambda data, at: struct.pack_into("<H", data, at + 10, 14)),
        True,
        "is packed by method 14, not deflate",
    ),
    "golden unpacked wrong": (
        golden_bytes(lambda data, at: data.__setitem__(slice(60, 90), b"\xff" * 30)),
        True,
        "golden.npz cannot be read: error",
    ),
    "golden with a long directory": (
        golden_bytes(lambda data, at: struct.pack_into("<I", data, len(data) - 10, 2**31)),
        True,
        "golden.npz cannot be read: BadZipFile|has 2147483648 bytes",
    ),
    "golden of other steps": (
        lambda f: golden(f, lambda x: x.update(compared=np.ones((120, 2), bool))),
        True,
        "golden.npz cannot be replayed: ValueError",
    ),
    "golden too long": (
        lambda f: golden(f, lambda x: x.update(compared=np.ones(1_001, bool))),
        True,
        "golden.npz is not one episode of at most 1000 steps",
    ),
    "golden of no rounding": (
        lambda f: golden(f, lambda x: x.update(rounding=np.zeros(0, np.float32))),
        True,
        "golden.npz cannot be replayed: ValueError",
    ),
    "header changed": (flipped("policy.hpp"), False, r"policy\.hpp was changed"),
    "header with a directive": (
        lambda f: (f / "policy.hpp").write_text("#include </dev/zero>\n"),
        True,
        "has the line '#include </dev/zero>', which no export writes",
    ),
    "a file from elsewhere": (
        manifest(lambda m: m["files"].update({"../../passwords": "0"})),
        False,
        r"'../../passwords' does not belong to an export",
    ),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_what_verify_finds(name: str, copy: Path) -> None:
    """Exports that load but do not act as they did."""
    breach, sealed, said = UNTRUE[name]
    breach(copy)
    if sealed:
        resealed(copy)
    with pytest.raises(UserError, match=said) as error:
        verify(copy)
    assert "\n" not in str(error.value)


def test_archives(whole: Path, tmp_path: Path) -> None:
    """A file that is no zip, a zip without a file, and one that claims too large a size."""
    path = tmp_path / "export.zip"
    path.write_bytes(b"PK")
    with pytest.raises(UserError, match="is not an export: BadZipFile File is not"):
        clew.load_policy(path)
    path.write_bytes(zipped({"manifest.json": (whole / "manifest.json").read_bytes()}))
    with pytest.raises(UserError, match=r"graph\.json is missing"):
        clew.load_policy(path)
    with pytest.raises(UserError, match="No such file"):
        verify(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(UserError, match=r"pipe.zip is neither a file nor a folder"):
        verify(tmp_path / "pipe.zip")


def test_a_file_beyond_its_limit_is_not_begun(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is enough; reading two gigabytes up to the limit would be too much."""
    monkeypatch.setattr(runner, "_limited", lambda *given: pytest.fail("it was read"))
    os.truncate(copy / "policy.safetensors", 2**34)
    with pytest.raises(runner.PolicyError, match="policy.safetensors is larger than"):
        b"".join(runner.read_blocks(copy, "policy.safetensors"))


@pytest.mark.parametrize("name", runner.MOST_BYTES)
@pytest.mark.parametrize("way", ["sparse", "zip"])
def test_what_is_too_large_is_not_read(
    name: str, way: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a sparse file, nor what a small zip unpacks to, or claims to."""
    monkeypatch.setitem(runner.MOST_BYTES, name, 2**20)
    changed(copy, "manifest.json", lambda m: m["files"].update({"policy.onnx": "0"}))
    (copy / "policy.onnx").touch()
    os.truncate(copy / name, 2**25)
    if way == "zip":
        files = {path.name: path.read_bytes() for path in copy.iterdir()}
        (copy.parent / "bomb.zip").write_bytes(zipped(files))
        copy = copy.parent / "bomb.zip"
        assert copy.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"larger than 1048576 bytes"):
            verify(copy)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_zip_that_unpacks_to_more_than_it_says(whole: Path, tmp_path: Path) -> None:
    """Unpacking never exceeds the size in its directory."""
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    data = zipped(files | {"runner.py": bytes(2**24)})
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        entry = file.getinfo("runner.py")
    said = struct.pack("<II", entry.compress_size, entry.file_size)
    assert data.count(said) == 2
    path.write_bytes(data.replace(said, struct.pack("<II", entry.compress_size, 100)))
    with pytest.raises(UserError, match=r"not an export: BadZipFile|runner.py was changed"):
        verify(path)


def test_what_a_runner_prints(copy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text of a manifest reaches the terminal unescaped: no escape code, no second line."""
    for change in (
        lambda m: m.update(policy="\x1b[2J"),
        lambda m: m["outputs"][0].update(name="\x1b]0;x\x07\n"),
        lambda m: m["files"].update({"\x1b[2J\n": "0"}),
        lambda m: m.update(format="\x9b"),
    ):
        before = (copy / "manifest.json").read_bytes()
        changed(copy, "manifest.json", change)
        monkeypatch.setattr(sys, "argv", ["runner.py", str(copy), "--verify"])
        with pytest.raises(SystemExit) as ended:
            runner.main()
        said = str(ended.value) + capsys.readouterr().out
        assert said.startswith("error: ") and said.isprintable()
        (copy / "manifest.json").write_bytes(before)
    runner.main()
    assert "golden episode replayed" in capsys.readouterr().out


def test_inputs_and_states(whole: Path) -> None:
    """A caller's names, ranks, shapes and types are checked, and so is a state's policy."""
    model = runner.Model(whole)
    state = model.init_state(2)
    fine = {"observation": np.zeros((2, INPUT_SIZE), np.float32), "start": np.ones(2, bool)}
    model.step(state, fine)
    for change, said in (
        ({"observation": np.zeros((2, 3), np.float32)}, rf"expected \[2, {INPUT_SIZE}\]"),
        ({"observation": np.zeros(INPUT_SIZE, np.float32)}, "input observation has shape"),
        ({"observation": np.zeros((2, INPUT_SIZE))}, "has type float64, expected float32"),
        ({"observation": [[0.0] * INPUT_SIZE] * 2}, "is a list, expected an array"),
        ({"start": np.array(True)}, r"input observation has shape .* expected \[1,"),
        ({"start": np.ones(3, bool)}, r"input observation has shape .* expected \[3,"),
        ({"reward": np.zeros(2)}, "there is no input 'reward'; known: observation, start"),
    ):
        with pytest.raises(runner.PolicyError, match=said):
            model.step(state, fine | change)
    with pytest.raises(runner.PolicyError, match="the input 'start' is missing"):
        model.step(state, {"observation": fine["observation"]})
    other = runner.State("another", dict(state))
    for wrong, said in (
        (other, "the state belongs to another policy: 'another'"),
        (dict(state), "the state belongs to another policy: 'dict'"),
        (runner.State(model.policy, {"mean": state["mean"]}), "'count' is missing"),
        (model.init_state(3), r"leaf of the state count has shape \[3\], expected \[2\]"),
    ):
        with pytest.raises(runner.PolicyError, match=said):
            model.step(wrong, fine)
    policy = clew.load_policy(whole)
    with pytest.raises(runner.PolicyError, match=r"observation has shape \[3\]"):
        policy(np.zeros(3))
