"""Runs an exported policy with NumPy alone: a single file that needs neither clew nor JAX.

    python runner.py --verify                 replay the golden episode of this folder

    import runner
    policy = runner.Policy(".")
    action = policy(observation, start=True)          # the first observation of an episode
    action = policy(observation, reward=reward)       # every other one; reward only if required

    model = runner.Model(".")                         # any number of environments side by side
    state = model.init_state(64)
    outputs, state = model.step(state, {"observation": x, "start": start})

`graph.json` is a list of operations, each of which is a function below; there are no others.
Shapes in it are those of one environment: every value that depends on an input has the batch as an
additional first axis, and axes are counted from the last one.
"""

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
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
MOST_BYTES = {
    "manifest.json": 2**24,
    "graph.json": 2**25,
    "policy.safetensors": 2**31,
    "golden.npz": 2**30,
    "runner.py": 2**20,
    "policy.hpp": 2**33,
    "policy.onnx": 2**31,
}
"""All files that an export may have, with their largest sizes."""
MOST_NODES, MOST_NUMBERS, MOST_PRODUCTS, MOST_STEPS = 50_000, 2**28, 2**32, 1_000
"""Limits of one step in operations, numbers made and products, and of the episode in steps."""
_BLOCK = 2**20
_KINDS = "F32 float32, F64 float64, BOOL bool, U8 uint8, I8 int8, U16 uint16, I16 int16"
_KINDS += ", U32 uint32, I32 int32, I64 int64"
TYPES: dict[str, str] = {pair.split()[0]: pair.split()[1] for pair in _KINDS.split(", ")}
"""Types in `policy.safetensors` to NumPy's."""


class PolicyError(ValueError):
    """An export, an input or a state is invalid; the message is one printable line."""

    def __init__(self, message: str):
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line))


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns every exception while reading a file from somebody else into a `PolicyError`.

    The readers (zipfile, zlib, NumPy and its parser of headers) raise a dozen types.
    """
    try:
        yield
    except PolicyError:
        raise
    except OSError as error:
        raise PolicyError(f"{error.filename or what}: {error.strerror or error}") from error
    except Exception as error:
        raise PolicyError(f"{what}: {type(error).__name__} {str(error):.200}") from error


def _lead(x: Array, rank: int) -> tuple[int, ...]:
    """The batch axis, or () for a constant."""
    return x.shape[: x.ndim - rank]


def _divide(x: Array, y: Array) -> Array:
    return x / y if x.dtype.kind == "f" else ((x - np.fmod(x, y)) // y).astype(x.dtype)


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


def _cast(x: Array, dtype: str) -> Array:
    if dtype not in TYPES.values():
        raise PolicyError(f"cast to {dtype!r:.40}, expected one of {', '.join(TYPES.values())}")
    return x.astype(dtype)


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
    "cast": _cast,
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
"""All operations; "linear" multiplies by a constant matrix, "matmul" two matrices of a batch."""
_VIEWS, _PRODUCTS = ("expand", "transpose", "slice"), ("linear", "matmul")
"""Operations that only view other numbers, and those whose time exceeds their number of results."""


def evaluate(op: str, attributes: Any, *values: Array) -> Array:
    """One operation on arrays."""
    with np.errstate(all="ignore"):
        return np.asarray(OPERATIONS[op](*values, **attributes))


class State(dict):
    """Arrays [batch, ...] by name, and the policy that they belong to.

    Args:
        policy: its digest, as the manifest has it.
        leaves: the arrays.
        action: the last actions [batch, ...], which some policies see; None where not known.
        fresh: whether the state is that before any observation.
    """

    action: Array | None = None  # of states that were pickled without it
    fresh = False

    def __init__(
        self, policy: str, leaves: Arrays, action: Array | None = None, fresh: bool = False
    ):
        super().__init__(leaves)
        self.policy, self.action, self.fresh = policy, action, fresh


class Model:
    """The policy as a function of any number of environments.

    Args:
        path: the folder or the zip of the export.
        files: their bytes by name, if they are already read.

    Raises:
        PolicyError: a file is missing, damaged or from another policy, or the graph has an
            operation that is not in `OPERATIONS`.
    """

    def __init__(self, path: str | Path = ".", files: dict[str, bytes] | None = None):
        self.files = read_export(path) if files is None else files
        self.manifest = manifest = read_manifest(self.files)
        graph = _json("graph.json", self.files["graph.json"])
        self.tensors = read_tensors(self.files["policy.safetensors"])
        with reading("the export is incomplete or damaged"):
            self.policy = manifest["policy"]
            self.inputs = _entries(manifest, "inputs")
            self.outputs = list(_entries(manifest, "outputs"))
            self.leaves = _entries(manifest, "state")
            _check_use(manifest)
            self._compile(graph)
            self._try(graph["nodes"])

    def init_state(self, batch: int = 1) -> State:
        """The state before any observation, for `batch` environments."""
        first = {name: self.tensors[entry["initial"]] for name, entry in self.leaves.items()}
        leaves = {name: np.repeat(x[None], batch, axis=0) for name, x in first.items()}
        return State(self.policy, leaves, fresh=True)

    def step(self, state: State, inputs: Arrays) -> tuple[Arrays, State]:
        """Reads one observation of every environment.

        Args:
            state: of this policy, from `init_state` or the previous step.
            inputs: arrays [batch, ...] by name, as `manifest.json` lists them.

        Returns:
            The outputs by name, and the new state.

        Raises:
            PolicyError: an input is missing, unknown or of another shape or type; or the state
                belongs to another policy.
        """
        self._check(state, inputs)
        values = self._values(state, inputs)
        with np.errstate(all="ignore"):
            for function, arguments, result in self._plan:
                values[result] = function(*[values[i] for i in arguments])
        batch = len(inputs["start"])
        outputs = {name: self._full(values[i], batch, name) for name, i in self._results.items()}
        leaves = {name: self._full(values[i], batch, name) for name, i in self._next.items()}
        return outputs, State(self.policy, leaves, outputs["action"])

    def _values(self, state: State, inputs: Arrays) -> list[Any]:
        """The values before the first operation."""
        values = list(self._constants)
        for index, (where, name) in self._given.items():
            values[index] = (state if where == "states" else inputs)[name]
        return values

    def _full(self, value: Array, batch: int, name: str) -> Array:
        """A result with its batch axis, even if it depends on no input."""
        return np.repeat(value[None], batch, axis=0) if value.ndim == self._ranks[name] else value

    def _compile(self, graph: dict[str, Any]) -> None:
        """Replaces names by indices, and operations by functions."""
        numbers = {name: i for i, name in enumerate(self.tensors)}
        self._constants: list[Any] = list(self.tensors.values())
        self._given = {}
        for where, entries in (("inputs", self.inputs), ("states", self.leaves)):
            for name in entries:
                numbers[graph[where][name]] = n = len(self._constants)
                self._constants.append(None)
                self._given[n] = (where, name)
        self._plan, count = [], 0
        if len(graph["nodes"]) > MOST_NODES:
            raise PolicyError(f"graph.json has more than {MOST_NODES} operations")
        for node in graph["nodes"]:
            where = f"graph.json: {node['out']!s:.40}"
            if node["op"] not in OPERATIONS:
                raise PolicyError(f"{where} is the unknown operation {node['op']!r:.40}")
            count += _count(where, node["shape"]) * (node["op"] not in _VIEWS)
            if count > MOST_NUMBERS:
                raise PolicyError(f"{where}: a step makes more than {MOST_NUMBERS} numbers")
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

    def _try(self, nodes: list[dict[str, Any]]) -> None:
        """Runs one step, whose results must agree with the graph and the manifest.

        Before that, a step with a batch of 0 checks the shapes without any numbers.
        """
        for batch in (0, 1):
            inputs = {n: np.zeros((batch, *e["shape"]), e["dtype"]) for n, e in self.inputs.items()}
            state = self.init_state(batch)
            self._check(state, inputs)
            self._try_operations(nodes, self._values(state, inputs), batch)
        outputs, state = self.step(state, inputs)
        for entry in self.manifest["outputs"]:
            _check_array(f"output {entry['name']}", outputs[entry["name"]], entry, (1,))
        self._check(state, inputs)

    def _try_operations(self, nodes: list[dict[str, Any]], values: list[Any], batch: int) -> None:
        known, products = {i for i, x in enumerate(values) if i not in self._given}, 0
        for node, (function, arguments, result) in zip(nodes, self._plan, strict=True):
            where, given = f"graph.json: {node['out']!s:.40}", [values[i] for i in arguments]
            if known.issuperset(arguments):
                raise PolicyError(f"{where} depends on no input")
            if sum(x.size for x in given) > MOST_NUMBERS:
                raise PolicyError(f"{where} reads more than {MOST_NUMBERS} numbers")
            if node["op"] in _PRODUCTS:
                inner = given[0].shape[-1]
                products += math.prod(node["shape"]) * inner
                if not inner or products > MOST_PRODUCTS:
                    raise PolicyError(
                        f"{where}: a step takes none or over {MOST_PRODUCTS} products"
                    )
            with np.errstate(all="ignore"):
                values[result] = value = function(*given)
            known.discard(result)
            shape = [batch, *node["shape"]]
            if list(value.shape) != shape or value.dtype != node["dtype"]:
                found = f"{where} is {value.dtype} {list(value.shape)}"
                raise PolicyError(f"{found}, said as {node['dtype']!r:.20} {shape!r:.60}")

    def _check(self, state: State, inputs: Arrays) -> None:
        _same_names("input", inputs, self.inputs)
        batch = np.shape(inputs["start"])[:1] or (1,)
        for name, entry in self.inputs.items():
            _check_array(f"input {name}", inputs[name], entry, batch)
        self.check_state(state, batch)

    def check_state(self, state: State, batch: tuple[int, ...]) -> None:
        """Refuses a state that is not of this policy, or of another batch, with a `PolicyError`."""
        if not isinstance(state, State) or state.policy != self.policy:
            owner = state.policy if isinstance(state, State) else type(state).__name__
            raise PolicyError(
                f"the state belongs to another policy: {owner!r:.40}, not {self.policy!r}"
            )
        _same_names("leaf of the state", state, self.leaves)
        for name, entry in self.leaves.items():
            _check_array(f"leaf of the state {name}", state[name], entry, batch)


def _entries(manifest: dict[str, Any], part: str) -> dict[str, dict[str, Any]]:
    """The manifest's entries of inputs, outputs or state, by name, with valid shapes and types."""
    found: dict[str, dict[str, Any]] = {}
    for entry in manifest[part]:
        name, dtype = entry["name"], entry["dtype"]
        if not isinstance(name, str) or name in found:
            raise PolicyError(f"manifest.json: {part} {name!r:.40} is no name, or there twice")
        if dtype not in TYPES.values():
            raise PolicyError(f"manifest.json: {part} {name!r:.40} has the type {dtype!r:.40}")
        _count(f"manifest.json: {part} {name!r:.40}", entry["shape"])
        found[name] = entry
    return found


def _count(where: str, shape: Any) -> int:
    """The number of elements of an array."""
    fine = isinstance(shape, list) and len(shape) <= 32
    if not fine or any(type(n) is not int or n < 0 for n in shape):
        raise PolicyError(f"{where} has the impossible shape {shape!r:.60}")
    count = math.prod(shape)
    if count > MOST_NUMBERS:
        raise PolicyError(f"{where} has more than {MOST_NUMBERS} numbers")
    return count


def _check_use(manifest: dict[str, Any]) -> None:
    """Checks the other entries of a manifest that `Policy` needs."""
    policy, kind = manifest["policy"], manifest["action"]["dtype"]
    if not isinstance(policy, str) or not policy.isalnum():
        raise PolicyError(f"manifest.json: the policy is {policy!r:.40}, expected a digest")
    if not isinstance(kind, str) or np.dtype(kind).kind not in "biuf":
        raise PolicyError(f"manifest.json: the action has the type {kind!r:.40}")
    for entry in manifest["inputs"]:
        path, splits = entry.get("path", []), entry.get("splits", [])
        fine = isinstance(entry["kind"], str) and isinstance(path, list)
        if not fine or any(not isinstance(key, str | int) for key in path):
            raise PolicyError(f"manifest.json: no observation has the path {path!r:.40}")
        if list(splits) != sorted({int(at) for at in splits}) or not all(
            0 < at < entry["shape"][0] for at in splits
        ):
            raise PolicyError(f"manifest.json: {entry['name']} cannot be split at {splits!r:.40}")
        if "categories" in entry:
            shown, ends = f"{entry['categories']!r:.40}", np.asarray(entry["categories"])
            if ends.dtype.kind != "i" or ends.shape != (2, *entry["shape"]):
                raise PolicyError(f"manifest.json: {entry['name']} cannot be from and to {shown}")
    if "action" not in [entry["name"] for entry in manifest["outputs"]]:
        raise PolicyError("manifest.json: there is no output 'action'")


def _same_names(kind: str, given: Any, wanted: Any) -> None:
    for name in given:
        if name not in wanted:
            known = [str(name) for name in wanted]
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f" did you mean {near[0]!r}?" if near else ""
            raise PolicyError(f"there is no {kind} {name!r:.40};{hint} known: {', '.join(known)}")
    for name in wanted:
        if name not in given:
            raise PolicyError(f"the {kind} {name!r} is missing")


def _check_array(what: str, value: Any, entry: dict[str, Any], batch: tuple[int, ...]) -> None:
    if not isinstance(value, np.ndarray):
        raise PolicyError(f"{what} is a {type(value).__name__}, expected an array")
    shape, dtype = batch + tuple(entry["shape"]), entry["dtype"]
    if value.shape != shape:
        wanted = ["batch", *entry["shape"]]
        raise PolicyError(f"{what} has shape {list(value.shape)}, expected {list(shape)}: {wanted}")
    if value.dtype != dtype:
        raise PolicyError(f"{what} has type {value.dtype}, expected {dtype}")


def _unfit(what: str, value: Any, expected: str) -> PolicyError:
    hint = ""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        hint = "; this looks like what reset returns: its first part is the observation"
    return PolicyError(f"{what} is {value!r:.60}, expected {expected}{hint}")


def _field(entry: dict[str, Any]) -> str:
    """The name of an input in errors; entries of an observation have their path in it."""
    return f"{entry['kind']} {'.'.join(map(str, entry.get('path', ())))}".rstrip()


def _is_text(value: Any) -> bool:
    """Whether an entry of an observation is only text, which policies ignore."""
    if isinstance(value, Mapping | tuple | list):
        return all(map(_is_text, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str | bytes) or np.asarray(value).dtype.kind in "SU"


def _parts(path: tuple[Any, ...], value: Any, wanted: dict[Any, None]) -> Mapping[Any, Any]:
    """The parts of a dict by name or of a tuple by place, checked to be the wanted ones."""
    whole = {"kind": "observation", "path": path}
    given = value
    if not isinstance(value, Mapping):
        row = isinstance(value, tuple | list) or (isinstance(value, Array) and value.ndim > 0)
        if not row or not all(isinstance(key, int) for key in wanted):
            raise _unfit(_field(whole), value, f"the entries {', '.join(map(str, wanted))}")
        given = dict(enumerate(value))
    # As in training, entries of a dict that are not in its space are ignored.
    more = given is not value and given.keys() - wanted.keys()
    if more or wanted.keys() - given.keys():
        read = {key: part for key, part in given.items() if key in wanted or not _is_text(part)}
        _same_names(f"{_field(whole)} entry", read, wanted)
    return given


def read_value(entry: dict[str, Any], value: Any) -> Array:
    """One input of one environment as an array of its type, a copy.

    Args:
        entry: its entry in the manifest.
        value: as the environment gives it.

    Raises:
        PolicyError: it has another shape, or a number that is not finite, does not fit its type or
            is not a category of its space; or it is a mask that allows nothing.
    """
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
    try:
        array = np.asarray(value)
    except ValueError as error:  # of rows of different lengths
        raise _unfit(_field(entry), value, f"numbers of shape {list(shape)}") from error
    if array.dtype.kind not in "biuf":
        raise _unfit(_field(entry), value, f"numbers of shape {list(shape)}")
    if array.shape != shape:
        shown = f"{_field(entry)} has shape {list(array.shape)}"
        raise PolicyError(f"{shown}, expected numbers of shape {list(shape)}")
    if array.dtype.kind == "f" and array.dtype != dtype:
        with np.errstate(all="ignore"):
            read = array.astype(dtype)
    else:
        read = array.astype(dtype)
    _check_numbers(entry, array, read)
    if "splits" in entry and not all(x.any() for x in np.split(read, entry["splits"])):
        raise PolicyError(f"{_field(entry)} allows no action")
    return read


def _check_numbers(entry: dict[str, Any], given: Array, read: Array) -> None:
    """Refuses numbers that are not finite, not integers where required, or not categories."""
    categories = entry.get("categories")
    if read.dtype.kind == "f":
        wrong = ~np.isfinite(read)
    elif categories is not None:
        wrong = (given < categories[0]) | (given > categories[1]) | (given != read)
    elif given.dtype != read.dtype:
        wrong = given != read
    else:
        return
    if not np.count_nonzero(wrong):
        return
    at = tuple(np.argwhere(wrong)[0].tolist())
    place = f" at {list(at)}" if at else ""
    if read.dtype.kind == "f":
        raise PolicyError(f"{_field(entry)} is not finite: {read[at]}{place}")
    expected = f"a value of {read.dtype}"
    if categories is not None:
        first, last = (end[at] for end in categories)
        expected = f"a whole number from {first} to {last}"
    raise PolicyError(f"{_field(entry)} is {given[at]}{place}, expected {expected}")


class Reader:
    """Converts an environment's values to the inputs of a step.

    Args:
        inputs: the manifest's entries.
    """

    def __init__(self, inputs: Iterable[dict[str, Any]]):
        self._leaves: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._names: dict[tuple[Any, ...], dict[Any, None]] = {}
        self._others: list[dict[str, Any]] = []
        for entry in inputs:
            if entry["kind"] != "observation":
                self._others.append(entry)
                continue
            path, ends = tuple(entry.get("path", ())), entry.get("categories")
            ends = None if ends is None else tuple(map(np.asarray, ends))
            self._leaves.append((path, {**entry, "categories": ends}))
            for depth, key in enumerate(path):
                self._names.setdefault(path[:depth], {})[key] = None

    def __call__(self, observation: Any, **given: Any) -> Arrays:
        """The arrays of an observation and of the other inputs, by the names of the inputs.

        Args:
            observation: an array, or a dict or tuple of arrays; texts and unknown entries of a
                dict are ignored.
            given: the other inputs by their kinds; None if unknown.

        Raises:
            PolicyError: an entry or an input is missing, a tuple has another length, or as
                `read_value`; the entry is named.
        """
        found: dict[tuple[Any, ...], Any] = {(): observation}
        for path, names in self._names.items():
            parts = _parts(path, found[path], names)
            for name in names:
                found[*path, name] = parts[name]
        read = {entry["name"]: read_value(entry, found[path]) for path, entry in self._leaves}
        return read | {entry["name"]: _read_other(entry, given) for entry in self._others}


def _read_other(entry: dict[str, Any], given: Mapping[str, Any]) -> Array:
    """One input that is not an observation."""
    kind = entry["kind"]
    value = given.get(kind)
    if kind.startswith("previous") and given["start"]:
        value = np.zeros(entry["shape"])
    elif value is None and kind == "previous_action":
        raise PolicyError(
            "this policy sees its previous action, which the state lacks: start=True, or a state "
            "that a step has returned"
        )
    elif value is None:
        how = kind.removeprefix("previous_")
        raise PolicyError(f"this policy sees its {kind.replace('_', ' ')}: give {how}=...")
    elif "splits" in entry and isinstance(value, tuple | list) and np.ndim(value[0]):
        value = np.concatenate([np.ravel(part) for part in value])  # one mask for each choice
    return read_value(entry, value)


class Policy:
    """Chooses greedy actions for the environment's observations, and keeps the memory's state.

    Args:
        path: the folder or the zip of the export.
        model: the export, if it is already loaded.
    """

    def __init__(self, path: str | Path = ".", model: Model | None = None):
        self.model = Model(path) if model is None else model
        self.manifest = self.model.manifest
        self._read = Reader(self.model.inputs.values())
        self.reset()

    def reset(self) -> None:
        """Resets the memory, as before the first observation."""
        self.state, self.outputs = self.model.init_state(1), None

    @property
    def state(self) -> State:
        """What the policy remembers between two calls; a policy that is given it continues from it.

        Raises:
            PolicyError: when it is set to one that is not of this policy and one environment.
        """
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self.model.check_state(state, (1,))
        self._state = state

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
            start: whether it opens an episode; the memory is then reset first.
            reward: of the last action, for policies that observe it; not at a start.
            ended: whether that action ended an episode of a trial, for policies trained on trials.
            action_mask: the allowed actions, for policies that were trained with masks.

        Raises:
            PolicyError: the observation is not in its space, or the reward or mask is missing.
        """
        read = self._read(
            observation,
            start=bool(start) or self._state.fresh,
            previous_action=None if self._state.action is None else self._state.action[0],
            previous_reward=reward,
            previous_ended=ended,
            action_mask=action_mask,
        )
        inputs = {name: value[None] for name, value in read.items()}
        self.outputs, self._state = self.model.step(self._state, inputs)
        action = self.outputs["action"][0].astype(self.manifest["action"]["dtype"])
        return int(action) if action.ndim == 0 and action.dtype.kind in "iu" else action


def read_export(path: str | Path) -> dict[str, bytes]:
    """The bytes of the export's files that a policy needs, from a folder or a zip.

    Raises:
        PolicyError: as `read_blocks`.
    """
    return {name: b"".join(read_blocks(path, name)) for name in FILES}


def read_blocks(path: str | Path, name: str) -> Iterator[bytes]:
    """One file of an export in blocks, from its folder or the zip.

    Raises:
        PolicyError: it is missing, damaged or larger than `MOST_BYTES`, or there is no export.
    """
    path = Path(path)
    with reading(f"{path} is not an export"):
        if not path.is_dir():
            if path.exists() and not path.is_file():
                raise PolicyError(f"{path} is neither a file nor a folder")
            with open_zip(io.FileIO(path)) as archive:
                yield from _unzip(archive, name, MOST_BYTES[name], str(path))
            return
        if not (path / name).is_file():
            raise PolicyError(f"{path / name} is missing")
        with open(path / name, "rb") as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES[name]:
                raise PolicyError(f"{path / name} is larger than {MOST_BYTES[name]} bytes")
            yield from _limited(file, MOST_BYTES[name], str(path / name))


class _SmallReads(io.BufferedReader):
    """A zip file that refuses large single reads, such as of a zip's directory of false size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > _BLOCK:
            raise PolicyError(
                f"the directory of the zip has {size} bytes, at most {_BLOCK} are read"
            )
        return super().read(size)


@contextlib.contextmanager
def open_zip(file: Any) -> Iterator[zipfile.ZipFile]:
    """Opens a zip; its directory may have at most a megabyte, for 10,000 files."""
    with _SmallReads(file) as small, zipfile.ZipFile(small) as archive:
        yield archive


def _unzip(archive: zipfile.ZipFile, name: str, most: int, where: str) -> Iterator[bytes]:
    """One file of a zip in blocks, up to the size in the directory and up to `most`."""
    if name not in archive.NameToInfo:
        raise PolicyError(f"{where}: {name} is missing")
    entry = archive.getinfo(name)
    if entry.file_size > most:
        raise PolicyError(f"{where}: {name} is larger than {most} bytes")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PolicyError(f"{where}: {name} is packed by method {entry.compress_type}, not deflate")
    with archive.open(entry) as file:
        yield from _limited(file, entry.file_size, f"{where}: {name}")


def _limited(file: Any, most: int, where: str) -> Iterator[bytes]:
    count = 0
    while block := file.read(_BLOCK):
        count += len(block)
        if count > most:
            raise PolicyError(f"{where} is larger than {most} bytes")
        yield block


def read_manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """The manifest, after checking the digest of every other file.

    Raises:
        PolicyError: as `parse_manifest`, or a file was changed.
    """
    manifest = parse_manifest(files["manifest.json"])
    for name in FILES[1:]:
        digest, said = hashlib.sha256(files[name]).hexdigest(), manifest["files"][name]
        if said != digest:
            raise PolicyError(f"{name} was changed: its SHA-256 is {digest}, expected {said!s:.64}")
    return manifest


def parse_manifest(data: bytes) -> dict[str, Any]:
    """A manifest in a format that this file reads, with the digests of the other files.

    Raises:
        PolicyError: it has another format, or names files that exports do not have.
    """
    manifest = _json("manifest.json", data)
    if type(manifest.get("format")) is not int or manifest["format"] > FORMAT:
        shown = f"{manifest.get('format')!r:.20}"
        raise PolicyError(f"manifest.json has format {shown}; this runner reads up to {FORMAT}")
    files = manifest.get("files")
    if not isinstance(files, dict) or not set(FILES[1:]) <= set(files):
        raise PolicyError("manifest.json has no digests of the other files")
    for name in set(files) - set(MOST_BYTES):
        raise PolicyError(f"manifest.json: {name!r:.40} does not belong to an export")
    return manifest


def _json(name: str, text: bytes) -> dict[str, Any]:
    with reading(f"{name} is not valid JSON"):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise PolicyError(f"{name} is not a JSON object")
    return found


def read_tensors(data: bytes) -> Arrays:
    """The arrays of a file in the safetensors format.

    8 bytes, the length n of the header, little-endian; n bytes of JSON, {name: {"dtype", "shape",
    "data_offsets": [begin, end]}}; then the arrays' bytes, little-endian, C order, without gaps.

    Raises:
        PolicyError: it is not such a file, or its header is impossible.
    """
    what = "policy.safetensors"
    if len(data) < 8 or struct.unpack("<Q", data[:8])[0] > len(data) - 8:
        raise PolicyError(f"{what} is cut short")
    (size,) = struct.unpack("<Q", data[:8])
    header, rest = _json(what, data[8 : 8 + size]), memoryview(data)[8 + size :]
    header.pop("__metadata__", None)
    found, end = {}, 0
    with reading(f"{what} has an impossible header"):
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][1]):
            dtype, (begin, stop) = np.dtype(TYPES[entry["dtype"]]), entry["data_offsets"]
            count = math.prod(entry["shape"])
            if begin != end or stop - begin != count * dtype.itemsize or stop > len(rest):
                raise PolicyError(f"{what}: {name!r:.60} does not lie where its header says")
            found[name] = np.frombuffer(rest[begin:stop], dtype, count).reshape(entry["shape"])
            end = stop
    if end != len(rest):
        raise PolicyError(f"{what} has {len(rest)} bytes of arrays, its header says {end}")
    return found


def read_golden(model: Model) -> Arrays:
    """The arrays of the golden episode by name.

    Raises:
        PolicyError: they cannot be read, or do not fit the policy.
    """
    found, left = {}, MOST_BYTES["golden.npz"]
    with (
        reading("golden.npz cannot be read"),
        open_zip(io.BytesIO(model.files["golden.npz"])) as archive,
    ):
        for name in archive.namelist():
            data = b"".join(_unzip(archive, name, left, "golden.npz"))
            found[name.removesuffix(".npy")] = _read_array(name, data)
            left -= len(data)
    return found


def _read_array(name: str, data: bytes) -> Array:
    """An array in NumPy's format, version 1.0, of numbers in C order."""
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
    if in_columns or dtype.name not in TYPES.values():
        raise PolicyError(f"golden.npz: {name} has the type {dtype!s:.40}, or is in columns")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)


def deviation(value: Any, expected: Array) -> float:
    """The largest difference relative to 1 + the largest number; NaN equals only NaN."""
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
    wanted = [f"input/{n}" for n in model.inputs] + [f"output/{n}" for n in model.outputs]
    wanted += [f"{side}/{n}" for n in model.leaves for side in ("before", "after")]
    with reading("golden.npz cannot be replayed"):
        most = max(most, TOLERANCE, min(1e-3, 3 * float(np.max(golden.pop("rounding", 0.0)))))
        names = dict.fromkeys([*wanted, "compared", "sure"])
        _same_names("array of the golden episode", golden, names)
        if golden["input/start"].shape[1:] != (1,) or len(golden["compared"]) > MOST_STEPS:
            raise PolicyError(f"golden.npz is not one episode of at most {MOST_STEPS} steps")
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
