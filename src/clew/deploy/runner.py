"""Runs an exported policy with NumPy alone: one file, which needs no other of clew and no JAX.

    python runner.py --verify                 replay the golden episode of this folder

    import runner
    policy = runner.Policy(".")
    action = policy(observation, start=True)          # the first observation of an episode
    action = policy(observation, reward=reward)       # every other one; a reward if it is asked for

    model = runner.Model(".")                         # any number of environments side by side
    state = model.init_state(64)
    outputs, state = model.step(state, {"observation": x, "start": start})

`graph.json` is a list of operations, each of which is a function below; there are no others.
Shapes in it are of one environment: every value that depends on an input has the batch as one more
axis in front, and axes are counted from the last one.
"""

import argparse
import hashlib
import io
import json
import math
import struct
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
Arrays = dict[str, np.ndarray]

FORMAT = 1
FILES = ("manifest.json", "graph.json", "policy.safetensors", "golden.npz")
TOLERANCE = 1e-5
"""Largest deviation from the golden episode, relative to 1 + the largest number; see `verify`."""
MOST_BYTES, MOST_NUMBERS = 2**31, 2**28
_KINDS = "F32 float32, F64 float64, BOOL bool, U8 uint8, I8 int8, U16 uint16, I16 int16"
_KINDS += ", U32 uint32, I32 int32, I64 int64"
TYPES: dict[str, str] = {pair.split()[0]: pair.split()[1] for pair in _KINDS.split(", ")}
"""Types in `policy.safetensors`, and NumPy's."""
_DAMAGE = (KeyError, TypeError, AttributeError, ValueError, IndexError, MemoryError)


class PolicyError(ValueError):
    """An export, an input or a state that does not fit; the message is one line."""


def _lead(x: Array, rank: int) -> tuple[int, ...]:
    """The batch's axis, or nothing for a constant."""
    return x.shape[: x.ndim - rank]


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return x / y
    quotient = np.where(y == 0, -1, np.abs(x) // np.maximum(np.abs(y), 1))
    return (quotient * np.sign(x) * np.where(y == 0, 1, np.sign(y))).astype(x.dtype)


def _transpose(x: Array, order: list[int]) -> Array:
    lead = x.ndim - len(order)
    return x.transpose(*range(lead), *(lead + axis for axis in order))


def _concatenate(*parts: Array, axis: int, rank: int) -> Array:
    batched = [x for x in parts if x.ndim > rank]
    if batched:
        count = (len(batched[0]),)
        wide = (x if x.ndim > rank else np.broadcast_to(x, count + x.shape) for x in parts)
        parts = tuple(wide)
    return np.concatenate(parts, axis=axis)


def _slice(x: Array, start: list[int], stop: list[int], step: list[int]) -> Array:
    return x[(..., *(slice(a, b, c) for a, b, c in zip(start, stop, step, strict=True)))]


def _take(x: Array, index: Array, rank: int) -> Array:
    """Rows of x [rows, ...] by index [k]; either may be a constant or batched."""
    if x.ndim == rank:
        return np.take(x, index, axis=0)
    if index.ndim == 1:
        return np.take(x, index, axis=1)
    return x[np.arange(len(x))[:, None], index]


_NUMPYS = """
    add subtract multiply fmod power maximum minimum equal not_equal less greater less_equal
    greater_equal logical_and logical_or logical_not negative absolute sign sqrt exp log log1p expm1
    sin cos tan tanh arcsin arccos arctan floor ceil rint isfinite where matmul
"""
OPERATIONS = {
    **{name: getattr(np, name) for name in _NUMPYS.split()},
    "divide": _divide,
    "erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "linear": np.matmul,
    "cast": lambda x, dtype: x.astype(dtype),
    "reshape": lambda x, rank, shape: x.reshape(_lead(x, rank) + tuple(shape)),
    "expand": lambda x, shape: np.broadcast_to(x, _lead(x, len(shape)) + tuple(shape)),
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "take": _take,
    "sum": lambda x, axes: x.sum(axis=tuple(axes), dtype=x.dtype),
    "product": lambda x, axes: x.prod(axis=tuple(axes), dtype=x.dtype),
    "largest": lambda x, axes: x.max(axis=tuple(axes)),
    "smallest": lambda x, axes: x.min(axis=tuple(axes)),
    "argmax": lambda x: np.argmax(x, axis=-1).astype(np.int32),
}
"""All operations; "linear" multiplies with a constant matrix, "matmul" matrices of one batch."""


def evaluate(op: str, attributes: Any, *values: Array) -> Array:
    """One operation on arrays."""
    with np.errstate(all="ignore"):
        return np.asarray(OPERATIONS[op](*values, **attributes))


class State(dict):
    """Arrays [batch, ...] by name, and the policy that they belong to."""

    def __init__(self, policy: str, leaves: Arrays):
        super().__init__(leaves)
        self.policy = policy


class Model:
    """The policy as a function of any number of environments.

    Args:
        path: the folder of the export, or the same as a zip.
        files: their bytes by name, if they have been read already.

    Raises:
        PolicyError: a file is missing, damaged or of another policy, or the graph has an operation
            that is not in `OPERATIONS`.
    """

    def __init__(self, path: str | Path = ".", files: dict[str, bytes] | None = None):
        self.files = read_export(path) if files is None else files
        self.manifest = manifest = read_manifest(self.files)
        graph = _json("graph.json", self.files["graph.json"])
        self.tensors = read_tensors(self.files["policy.safetensors"])
        try:
            self.policy = manifest["policy"]
            self.inputs = {entry["name"]: entry for entry in manifest["inputs"]}
            self.outputs = [entry["name"] for entry in manifest["outputs"]]
            self.leaves = {entry["name"]: entry for entry in manifest["state"]}
            self._compile(graph)
            self._try()
        except PolicyError:
            raise
        except _DAMAGE as error:
            shown = " ".join(f"{type(error).__name__} {error}".split())
            raise PolicyError(f"the export is incomplete or damaged: {shown:.200}") from error

    def init_state(self, batch: int = 1) -> State:
        """The state before any observation, for `batch` environments."""
        first = {name: self.tensors[entry["initial"]] for name, entry in self.leaves.items()}
        return State(self.policy, {n: np.repeat(x[None], batch, axis=0) for n, x in first.items()})

    def step(self, state: State, inputs: Arrays) -> tuple[Arrays, State]:
        """Reads one observation of every environment.

        Args:
            state: of this policy, from `init_state` or the step before.
            inputs: arrays [batch, ...] by name, as `manifest.json` lists them.

        Returns:
            The outputs by name, and the new state.

        Raises:
            PolicyError: an input is missing, unknown or of another shape or type; or the state is
                of another policy.
        """
        self._check(state, inputs)
        values = list(self._constants)
        for index, (where, name) in self._given.items():
            values[index] = (state if where == "states" else inputs)[name]
        with np.errstate(all="ignore"):
            for function, arguments, result in self._plan:
                values[result] = function(*[values[i] for i in arguments])
        batch = len(inputs["start"])
        outputs = {name: self._full(values[i], batch, name) for name, i in self._results.items()}
        leaves = {name: self._full(values[i], batch, name) for name, i in self._next.items()}
        return outputs, State(self.policy, leaves)

    def _full(self, value: Array, batch: int, name: str) -> Array:
        """A result with its batch, also where it depends on no input."""
        return np.repeat(value[None], batch, axis=0) if value.ndim == self._ranks[name] else value

    def _compile(self, graph: dict[str, Any]) -> None:
        """Numbers instead of names, functions instead of operations."""
        numbers = {name: i for i, name in enumerate(self.tensors)}
        self._constants: list[Any] = list(self.tensors.values())
        self._given = {}
        for where, entries in (("inputs", self.inputs), ("states", self.leaves)):
            for name in entries:
                numbers[graph[where][name]] = n = len(self._constants)
                self._constants.append(None)
                self._given[n] = (where, name)
        self._plan = []
        for node in graph["nodes"]:
            where = f"graph.json: {node['out']}"
            if node["op"] not in OPERATIONS:
                raise PolicyError(f"{where} is the unknown operation {node['op']!r:.40}")
            if math.prod(node["shape"]) > MOST_NUMBERS:
                raise PolicyError(f"{where} has more than {MOST_NUMBERS} numbers")
            for name in node["in"]:
                if name not in numbers:
                    raise PolicyError(f"{where} reads {name!r:.40}, which does not exist")
            arguments = [numbers[name] for name in node["in"]]
            numbers[node["out"]] = len(self._constants)
            self._constants.append(None)
            function = partial(OPERATIONS[node["op"]], **node["attributes"])
            self._plan.append((function, arguments, numbers[node["out"]]))
        self._results = {name: numbers[graph["outputs"][name]] for name in self.outputs}
        self._next = {name: numbers[graph["after"][name]] for name in self.leaves}
        self._ranks = {entry["name"]: len(entry["shape"]) for entry in self.manifest["outputs"]}
        self._ranks |= {name: len(entry["shape"]) for name, entry in self.leaves.items()}

    def _try(self) -> None:
        """One step, whose results must be what the manifest says."""
        inputs = {n: np.zeros((1, *e["shape"]), e["dtype"]) for n, e in self.inputs.items()}
        outputs, state = self.step(self.init_state(), inputs)
        for entry in self.manifest["outputs"]:
            _check_array(f"output {entry['name']}", outputs[entry["name"]], entry, (1,))
        self._check(state, inputs)

    def _check(self, state: State, inputs: Arrays) -> None:
        if not isinstance(state, State) or state.policy != self.policy:
            owner = state.policy if isinstance(state, State) else type(state).__name__
            raise PolicyError(
                f"the state belongs to another policy: {owner!r:.40}, not {self.policy!r}"
            )
        _same_names("input", inputs, self.inputs)
        _same_names("leaf of the state", state, self.leaves)
        batch = np.shape(inputs["start"])[:1] or (1,)
        for kind, given, wanted in (
            ("input", inputs, self.inputs),
            ("leaf of the state", state, self.leaves),
        ):
            for name, entry in wanted.items():
                _check_array(f"{kind} {name}", given[name], entry, batch)


def _same_names(kind: str, given: Any, wanted: Any) -> None:
    for name in wanted:
        if name not in given:
            raise PolicyError(f"the {kind} {name!r} is missing")
    for name in given:
        if name not in wanted:
            raise PolicyError(f"there is no {kind} {name!r:.40}; known: {', '.join(wanted)}")


def _check_array(what: str, value: Any, entry: dict[str, Any], batch: tuple[int, ...]) -> None:
    if not isinstance(value, np.ndarray):
        raise PolicyError(f"{what} is a {type(value).__name__}, expected an array")
    shape, dtype = batch + tuple(entry["shape"]), entry["dtype"]
    if value.shape != shape:
        wanted = ["batch", *entry["shape"]]
        raise PolicyError(f"{what} has shape {list(value.shape)}, expected {list(shape)}: {wanted}")
    if value.dtype != dtype:
        raise PolicyError(f"{what} has type {value.dtype}, expected {dtype}")


class Policy:
    """Chooses greedy actions for observations as the environment has them, and remembers these.

    Args:
        path: the folder of the export, or the same as a zip.
        model: the export, if it has been loaded already.
    """

    def __init__(self, path: str | Path = ".", model: Model | None = None):
        self.model = Model(path) if model is None else model
        self.manifest = self.model.manifest
        self.reset()

    def reset(self) -> None:
        """Forgets everything, as before the first observation."""
        self.state, self.outputs, self._fresh = self.model.init_state(1), None, True

    def __call__(
        self,
        observation: Any,
        start: bool = False,
        reward: Any = None,
        ended: bool = False,
        action_mask: Any = None,
    ) -> Any:
        """The action for this observation.

        Args:
            observation: as the environment gives it.
            start: whether it opens an episode; the memory then forgets first.
            reward: what the last action earned, for policies that see it, but not at a start.
            ended: whether it ended an episode of a trial, for policies trained on trials.
            action_mask: what is allowed, for policies that were trained with masks.

        Raises:
            PolicyError: the observation is of another shape, or the reward or mask is missing.
        """
        start, self._fresh = bool(start) or self._fresh, False
        given = {"start": start, "previous_reward": reward, "previous_ended": ended}
        given["action_mask"] = action_mask
        inputs = {n: self._read(e, observation, given) for n, e in self.model.inputs.items()}
        self.outputs, self.state = self.model.step(self.state, inputs)
        self._action = self.outputs["action"][0]
        action = self._action.astype(self.manifest["action"]["dtype"])
        return int(action) if action.ndim == 0 and action.dtype.kind in "iu" else action

    def _read(self, entry: dict[str, Any], observation: Any, given: dict[str, Any]) -> Array:
        """One input, as a batch of one."""
        name, kind, shape = entry["name"], entry["kind"], tuple(entry["shape"])
        value = given.get(kind, observation)
        for key in entry.get("path", ()):
            value = value[key]
        if kind.startswith("previous") and given["start"]:
            value = np.zeros(shape)
        elif kind == "previous_action":
            value = self._action
        elif value is None:
            how = kind.removeprefix("previous_")
            raise PolicyError(f"this policy sees its {kind.replace('_', ' ')}: give {how}=...")
        value = np.asarray(value)
        if value.shape != shape or value.dtype.kind not in "biuf":
            shown = f"shape {list(value.shape)} and type {value.dtype}"
            raise PolicyError(f"{name} has {shown}, expected numbers of shape {list(shape)}")
        if "splits" in entry and not all(x.any() for x in np.split(value, entry["splits"])):
            raise PolicyError(f"{name} allows no action")
        return value.astype(entry["dtype"])[None]


def read_export(path: str | Path) -> dict[str, bytes]:
    """The bytes of an export's files, from a folder or a zip.

    Raises:
        PolicyError: a file is missing or too large, or the zip is none.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return {name: _read(path / name) for name in FILES}
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            for name in FILES:
                if sizes.get(name, MOST_BYTES + 1) > MOST_BYTES:
                    raise PolicyError(f"{path}: {name} is missing or larger than {MOST_BYTES}")
            return {name: archive.read(name) for name in FILES}
    except zipfile.BadZipFile as error:
        raise PolicyError(f"{path} is not an export: {error}") from error
    except OSError as error:
        raise PolicyError(f"{error.filename or path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise PolicyError(f"{path} is missing")
    if path.stat().st_size > MOST_BYTES:
        raise PolicyError(f"{path} is larger than {MOST_BYTES} bytes")
    return path.read_bytes()


def read_manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """The manifest, after the digest of every other file was found right.

    Raises:
        PolicyError: the manifest is unreadable or of a newer format, or a file was changed.
    """
    manifest = _json("manifest.json", files["manifest.json"])
    if not isinstance(manifest.get("format"), int) or manifest["format"] > FORMAT:
        shown = f"{manifest.get('format')!r:.20}"
        raise PolicyError(f"manifest.json has format {shown}; this runner reads up to {FORMAT}")
    for name in FILES[1:]:
        digest = hashlib.sha256(files[name]).hexdigest()
        said = str(dict(manifest.get("files") or {}).get(name))
        if said != digest:
            raise PolicyError(f"{name} was changed: its SHA-256 is {digest}, expected {said:.64}")
    return manifest


def _json(name: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise PolicyError(f"{name} is not a JSON object")
    return found


def read_tensors(data: bytes) -> Arrays:
    """The arrays of a file in the safetensors format.

    8 bytes, the length n of the header, little-endian; n bytes of JSON, {name: {"dtype", "shape",
    "data_offsets": [begin, end]}}; then the arrays' bytes, little-endian, C order, without gaps.

    Raises:
        PolicyError: it is no such file, or says something impossible.
    """
    what = "policy.safetensors"
    if len(data) < 8 or struct.unpack("<Q", data[:8])[0] > len(data) - 8:
        raise PolicyError(f"{what} is cut short")
    (size,) = struct.unpack("<Q", data[:8])
    header, rest = _json(what, data[8 : 8 + size]), memoryview(data)[8 + size :]
    header.pop("__metadata__", None)
    found, end = {}, 0
    try:
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][1]):
            dtype, (begin, stop) = np.dtype(TYPES[entry["dtype"]]), entry["data_offsets"]
            count = math.prod(entry["shape"])
            if begin != end or stop - begin != count * dtype.itemsize or stop > len(rest):
                raise PolicyError(f"{what}: {name!r:.60} does not lie where its header says")
            found[name] = np.frombuffer(rest[begin:stop], dtype, count).reshape(entry["shape"])
            end = stop
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError(f"{what} has an impossible header: {error}") from error
    if end != len(rest):
        raise PolicyError(f"{what} has {len(rest)} bytes of arrays, its header says {end}")
    return found


def read_golden(model: Model) -> Arrays:
    """The arrays of the golden episode by name.

    Raises:
        PolicyError: they cannot be read, or do not fit the policy.
    """
    try:
        with np.load(io.BytesIO(model.files["golden.npz"]), allow_pickle=False) as golden:
            return {name: golden[name] for name in golden.files}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise PolicyError(f"golden.npz cannot be read: {error}") from error


def deviation(value: Any, expected: Array) -> float:
    """The largest difference relative to 1 + the largest number; NaN equals NaN alone."""
    if np.shape(value) != expected.shape:
        raise PolicyError(f"an output has shape {list(np.shape(value))}, not {expected.shape}")
    a, b = np.asarray(value, np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
        most = np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0.0)
    return float(np.nan_to_num(off, nan=np.inf).max(initial=0.0) / (1 + most))


def verify(model: Model, step: Any = None, most: float = 0.0) -> float:
    """Replays the golden episode, through this file or another `step` of the same form.

    Returns:
        The largest deviation of an output or a leaf of the state.

    Raises:
        PolicyError: it is above `most`, `TOLERANCE` and 3 times "rounding", or an array is missing.
    """
    golden, worst = read_golden(model), {}
    most = max(most, TOLERANCE, min(1e-3, 3 * float(np.max(golden.pop("rounding", 0.0)))))
    wanted = [f"input/{n}" for n in model.inputs] + [f"output/{n}" for n in model.outputs]
    wanted += [f"{side}/{n}" for n in model.leaves for side in ("before", "after")]
    _same_names("array of the golden episode", golden, dict.fromkeys([*wanted, "compared", "sure"]))
    state = State(model.policy, {name: golden[f"before/{name}"] for name in model.leaves})
    for t, compared in enumerate(golden["compared"]):
        inputs = {name: golden[f"input/{name}"][t] for name in model.inputs}
        found, state = (step or model.step)(state, inputs)
        for name in model.outputs:
            value = golden[f"output/{name}"][t]
            if compared and (value.dtype.kind == "f" or golden["sure"][t]):
                worst[name] = max(worst.get(name, 0.0), deviation(found[name], value))
    for name in model.leaves:
        worst[f"state {name}"] = deviation(state[name], golden[f"after/{name}"])
    name = max(worst, key=lambda name: worst[name])
    if not worst[name] <= most:
        raise PolicyError(
            f"{name} deviates by {worst[name]:.3g} from golden.npz, at most {most:.3g} is allowed"
        )
    return worst[name]


def main() -> None:
    """`python runner.py [EXPORT] --verify`."""
    parser = argparse.ArgumentParser(description="Runs an exported policy with NumPy alone.")
    parser.add_argument("export", nargs="?", default=Path(__file__).parent, help="folder or zip")
    parser.add_argument("--verify", action="store_true", help="replay the golden episode")
    arguments = parser.parse_args()
    try:
        model = Model(arguments.export)
        print(
            f"policy {model.policy}: {len(model.inputs)} inputs, {len(model.leaves)} state arrays"
        )
        if arguments.verify:
            print(f"golden episode replayed; largest deviation {verify(model):.2g}")
    except PolicyError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
