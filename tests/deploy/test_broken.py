"""Exports that are damaged, crafted or mistaken for others are refused, each in one line."""

import json
import shutil
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
    """An export as it should be."""
    agent = agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0)))
    space = spaces.Box(-1.0, 1.0, (INPUT_SIZE,), np.float32)
    folder = tmp_path_factory.mktemp("exports") / "own"
    return export_agent(agent, space, spaces.Discrete(3), folder).folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """One to break."""
    return Path(shutil.copytree(whole, tmp_path / "broken"))


def changed(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Changes what a JSON file says."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))


def resealed(folder: Path) -> None:
    """Writes the right digests into the manifest, as somebody who crafts an export would."""

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
    """A breach by the manifest."""
    return lambda folder: changed(folder, "manifest.json", change)


def graph(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """A breach by the graph."""
    return lambda folder: changed(folder, "graph.json", change)


def flipped(name: str) -> Callable[[Path], None]:
    """A breach of one bit in the middle of a file."""

    def flip(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return flip


def renamed_offsets(folder: Path) -> None:
    """A header of the tensors by which two arrays overlap."""
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
    """A golden episode that would run code when it is read by the unwary."""
    np.savez(folder / "golden.npz", **{"input/start": np.array([print], object)})


# name: what is done, whether the digests are made right again, what is said
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
        r"leaf of the state mean has shape \[1, 6\], expected \[1, 5\]",
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
    "a pickle": (pickled, True, r"golden\.npz cannot be read"),
    "runner changed": (flipped("runner.py"), False, r"runner\.py was changed"),
    "runner missing": (lambda f: (f / "runner.py").unlink(), False, r"'runner.py' is missing"),
    "a file from elsewhere": (
        manifest(lambda m: m["files"].update({"../../passwords": "0"})),
        False,
        r"'../../passwords' does not belong to an export",
    ),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_what_verify_finds(name: str, copy: Path) -> None:
    """Exports that load, and do not do what they did."""
    breach, sealed, said = UNTRUE[name]
    breach(copy)
    if sealed:
        resealed(copy)
    with pytest.raises(UserError, match=said) as error:
        verify(copy)
    assert "\n" not in str(error.value)


def test_archives(whole: Path, tmp_path: Path) -> None:
    """A zip that is none, one without a file, one that says it is larger than it can be."""
    path = tmp_path / "export.zip"
    path.write_bytes(b"PK")
    with pytest.raises(UserError, match="is not an export: File is not a zip file"):
        clew.load_policy(path)
    path.write_bytes(zipped({"manifest.json": (whole / "manifest.json").read_bytes()}))
    with pytest.raises(UserError, match=r"graph\.json is missing or larger"):
        clew.load_policy(path)
    with pytest.raises(UserError, match="No such file"):
        verify(tmp_path / "nowhere")


def test_inputs_and_states(whole: Path) -> None:
    """Names, ranks, shapes and types of what a caller gives; a state of another policy."""
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
