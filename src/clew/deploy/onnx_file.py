"""`policy.onnx`: a policy's graph for ONNX Runtime and other readers of ONNX.

Inputs are those of the manifest and "state/LEAF", outputs are those of the manifest and
"next_state/LEAF". The first axis of each is the batch, of any size.
"""

from collections.abc import Callable, Sequence
from importlib import util
from typing import Any

import numpy as np

from clew.deploy import runner
from clew.deploy.graph import Const, Node, Real
from clew.deploy.policy import Traced
from clew.errors import UserError

OPSET, IR_VERSION = 18, 9
"""Versions that ONNX 1.14, ONNX Runtime 1.14 and all later ones support."""
BEFORE, AFTER = "state/", "next_state/"

_SAME = {
    name.lower(): name
    for name in "Add Equal Less Greater Sqrt Exp Log Sin Cos Tan Tanh Floor Ceil Sign "
    "Erf Sigmoid".split()
}
_SAME |= {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "negative": "Neg",
    "absolute": "Abs",
    "less_equal": "LessOrEqual",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_not": "Not",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "rint": "Round",
    "linear": "MatMul",
    "matmul": "MatMul",
}
"""Operations with another name in ONNX."""
_REDUCTIONS = {
    "sum": "ReduceSum",
    "product": "ReduceProd",
    "largest": "ReduceMax",
    "smallest": "ReduceMin",
}


def is_installed(package: str) -> bool:
    """Whether `onnx`, which writes the file, or `onnxruntime`, which runs it, is installed."""
    return util.find_spec(package) is not None


class _Writer:
    """Collects the nodes of an ONNX graph."""

    def __init__(self) -> None:
        import onnx  # pyright: ignore # optional: onnx

        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Adds a node, and returns its output's name."""
        out = out or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [out], **attributes))
        return out

    def constant(self, array: np.ndarray, name: str = "") -> str:
        """The name of a constant array."""
        name = f"constant/{name or len(self.constants)}"
        if name not in self.constants:
            little = np.ascontiguousarray(array).reshape(array.shape)
            self.constants[name] = self.onnx.numpy_helper.from_array(little, name)
        return name

    def numbers(self, *numbers: int) -> str:
        """The name of a vector of integers, which many ONNX operations take."""
        return self.constant(np.array(numbers, np.int64), f"int64/{'_'.join(map(str, numbers))}")

    def kind(self, dtype: Any) -> int:
        """ONNX's number for a type."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def read(self, value: Real) -> str:
        """A value's name."""
        return self.constant(value.array, value.name) if isinstance(value, Const) else value.name

    def read_all(self, node: Node) -> list[str]:
        """The names of an operation's operands."""
        return [self.read(value) for value in node.inputs]

    def batched(self, value: Real) -> str:
        """A value with the batch's axis, even if it depends on no input."""
        name = self.read(value)
        if not isinstance(value, Const):
            return name
        batch = self.add("Shape", "start")
        shape = self.add("Concat", batch, self.numbers(*value.shape), axis=0)
        return self.add("Expand", name, shape)

    def node(self, node: Node) -> None:
        """One operation."""
        rule = _RULES.get(node.op)
        if rule is not None:
            name = rule(self, node, **node.attributes)
        elif node.op in _REDUCTIONS:
            axes = self.numbers(*node.attributes["axes"])
            name = self.add(_REDUCTIONS[node.op], *self.read_all(node), axes, keepdims=0)
        else:
            name = self.add(_SAME[node.op], *self.read_all(node))
        self.add("Identity", name, out=node.out.name)


def _reshape(writer: _Writer, node: Node, rank: int, shape: list[int]) -> str:
    return writer.add("Reshape", *writer.read_all(node), writer.numbers(-1, *shape))


def _transpose(writer: _Writer, node: Node, order: list[int]) -> str:
    perm = [0, *(axis + 1 for axis in order)]
    return writer.add("Transpose", writer.read(node.inputs[0]), perm=perm)


def _slice(writer: _Writer, node: Node, start: list[int], stop: list[int], step: list[int]) -> str:
    axes = writer.numbers(*range(1, len(start) + 1))
    parts = (writer.numbers(*part) for part in (start, stop))
    return writer.add("Slice", writer.read(node.inputs[0]), *parts, axes, writer.numbers(*step))


def _concatenate(writer: _Writer, node: Node, axis: int, rank: int) -> str:
    return writer.add("Concat", *map(writer.batched, node.inputs), axis=axis)


def _take(writer: _Writer, node: Node, rank: int) -> str:
    x, index = writer.read_all(node)
    is_known = [isinstance(value, Const) for value in node.inputs]
    if any(is_known):
        return writer.add("Gather", x, index, axis=is_known.index(True))
    wide = writer.add("Cast", index, to=writer.kind(np.int64))
    places = writer.add("Unsqueeze", wide, writer.numbers(-1))
    return writer.add("GatherND", x, places, batch_dims=1)


def _where(writer: _Writer, node: Node) -> str:
    condition, chosen, other = writer.read_all(node)
    if node.out.dtype != bool:
        return writer.add("Where", condition, chosen, other)
    first = writer.add("And", condition, chosen)  # ONNX Runtime's Where does not take booleans
    return writer.add("Or", first, writer.add("And", writer.add("Not", condition), other))


def _argmax(writer: _Writer, node: Node) -> str:
    place = writer.add("ArgMax", writer.read(node.inputs[0]), axis=-1, keepdims=0)
    return writer.add("Cast", place, to=writer.kind(node.out.dtype))


def _is_finite(writer: _Writer, node: Node) -> str:
    x = writer.read(node.inputs[0])
    return writer.add("Not", writer.add("Or", writer.add("IsNaN", x), writer.add("IsInf", x)))


def _log1p(writer: _Writer, node: Node) -> str:
    one = writer.constant(np.ones((), node.out.dtype))
    return writer.add("Log", writer.add("Add", writer.read(node.inputs[0]), one))


def _expm1(writer: _Writer, node: Node) -> str:
    one = writer.constant(np.ones((), node.out.dtype))
    return writer.add("Sub", writer.add("Exp", writer.read(node.inputs[0])), one)


_RULES: dict[str, Callable[..., str]] = {
    "cast": lambda to, node, dtype: to.add("Cast", *to.read_all(node), to=to.kind(dtype)),
    "reshape": _reshape,
    "expand": lambda to, node, shape: to.add("Expand", *to.read_all(node), to.numbers(1, *shape)),
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "take": _take,
    "where": _where,
    "argmax": _argmax,
    "not_equal": lambda to, node: to.add("Not", to.add("Equal", *to.read_all(node))),
    "isfinite": _is_finite,
    "fmod": lambda to, node: to.add("Mod", *to.read_all(node), fmod=1),
    "log1p": _log1p,
    "expm1": _expm1,
}
"""Operations with another form in ONNX."""


_OPERATIONS = {*_SAME.values(), *_REDUCTIONS.values()} | set(
    """Add And ArgMax Cast Concat Equal Expand Gather GatherND Identity IsInf IsNaN Log Mod Not Or
    Reshape Shape Slice Sub Transpose Unsqueeze Where""".split()
)
"""All operations that exports write; none of them is a loop."""


def onnx_file(traced: Traced, policy: str) -> bytes:
    """The bytes of `policy.onnx`; `policy` is the policy's name in the manifest."""
    writer, graph = _Writer(), traced.graph
    helper = writer.onnx.helper
    for node in graph.nodes:
        writer.node(node)
    for prefix, values in (("", graph.outputs), (AFTER, graph.after)):
        for name, value in values.items():
            writer.add("Identity", writer.batched(value), out=prefix + name)

    def described(prefix: str, entries: Sequence[dict[str, Any]]) -> list[Any]:
        return [
            helper.make_tensor_value_info(
                prefix + entry["name"], writer.kind(entry["dtype"]), ["batch", *entry["shape"]]
            )
            for entry in entries
        ]

    whole = helper.make_graph(
        writer.nodes,
        "policy",
        [*described("", traced.inputs), *described(BEFORE, traced.state)],
        [*described("", traced.outputs), *described(AFTER, traced.state)],
        list(writer.constants.values()),
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(
        whole, opset_imports=[opset], ir_version=IR_VERSION, producer_name="clew"
    )
    helper.set_model_props(model, {"policy": policy})
    writer.onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def check_onnx(data: bytes, manifest: dict[str, Any]) -> None:
    """Compares a file with its manifest: policy, opset, names, types and shapes.

    Only operations that exports write are allowed, so that none can run forever.

    Raises:
        UserError: they do not fit.
    """
    import onnx  # pyright: ignore # optional: onnx
    from google.protobuf.message import DecodeError  # pyright: ignore # optional: comes with onnx

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise UserError(f"policy.onnx cannot be read: {error}") from error
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    said = {"": manifest["onnx"]["opset"]}
    if opsets != said:
        raise UserError(f"policy.onnx has opsets {opsets}, the manifest says {said}")
    others = {node.op_type for node in model.graph.node} - _OPERATIONS
    if others or model.functions:
        raise UserError(f"policy.onnx has operations that no export writes: {sorted(others)!s:.80}")
    policy = {entry.key: entry.value for entry in model.metadata_props}.get("policy")
    if policy != manifest["policy"]:
        raise UserError(f"policy.onnx belongs to another policy: {policy!r:.40}")
    for entries, prefixes, found in (
        (("inputs", "state"), ("", BEFORE), model.graph.input),
        (("outputs", "state"), ("", AFTER), model.graph.output),
    ):
        wanted = {
            prefix + entry["name"]: (entry["dtype"], entry["shape"])
            for part, prefix in zip(entries, prefixes, strict=True)
            for entry in manifest[part]
        }
        shown = {value.name: _described(onnx, value) for value in found}
        for name in wanted.keys() | shown.keys():
            if wanted.get(name) != shown.get(name):
                raise UserError(
                    f"policy.onnx: {name!r:.60} is {shown.get(name)}, the manifest says "
                    f"{wanted.get(name)}"
                )


def _described(onnx: Any, value: Any) -> tuple[str, list[int]]:
    kind = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    return dtype, [axis.dim_value for axis in kind.shape.dim[1:]]


class OnnxModel:
    """`policy.onnx` in ONNX Runtime, called like the `runner.Model` of the same export."""

    def __init__(self, data: bytes, model: runner.Model):
        import onnxruntime  # pyright: ignore # optional: onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a step is too small for more
        self._session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._read = {entry.name for entry in self._session.get_inputs()}
        self._policy = model.policy

    def step(
        self, state: runner.State, inputs: runner.Arrays
    ) -> tuple[runner.Arrays, runner.State]:
        """Reads one observation of every environment."""
        given = inputs | {BEFORE + name: leaf for name, leaf in state.items()}
        found = map(np.asarray, self._session.run(self._names, {n: given[n] for n in self._read}))
        values = dict(zip(self._names, found, strict=True))
        leaves = {n: values.pop(AFTER + n) for n in state}
        return values, runner.State(self._policy, leaves)
