"""`policy.hpp`: a policy as one C++17 header without dependencies; weights and state are static.

Each operation of the graph becomes loops over numbers in one row-major block. Operations that only
reorder numbers (slices, transpositions, repetitions) become strides in the operations that read
them. Blocks that are no longer read are reused.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from clew.deploy.graph import Const, Node, Real
from clew.deploy.policy import Traced

_TYPES = {"bool": "bool", "float32": "float", "float64": "double"} | {
    f"{sign}int{bits}": f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32)
}
_TYPES["int64"] = "std::int64_t"

_EXPRESSIONS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "greater": "{0} > {1}",
    "less_equal": "{0} <= {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_not": "!{0}",
    "negative": "-{0}",
    "where": "{0} ? {1} : {2}",
    "cast": "cast<{to}, {type}>({0})",
    "copy": "{0}",
    "power": "std::pow({0}, {1})",
    "arcsin": "std::asin({0})",
    "arccos": "std::acos({0})",
    "arctan": "std::atan({0})",
    "rint": "std::nearbyint({0})",
}
_EXPRESSIONS |= {
    name: f"std::{name}({{0}})"
    for name in "sqrt exp log log1p expm1 sin cos tan tanh floor ceil isfinite erf".split()
}
_EXPRESSIONS |= {
    name: f"detail::{name}<{{type}}>({{0}})" for name in "absolute sign sigmoid".split()
}
_EXPRESSIONS |= {
    name: f"detail::{name}<{{type}}>({{0}}, {{1}})"
    for name in "divide fmod maximum minimum".split()
}
"""The expression of one number of the result, from one number of each operand."""

_HELPERS = """namespace detail {
template <class T> inline bool nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}
template <class T> inline T maximum(T a, T b) { return a > b || nan(a) ? a : b; }
template <class T> inline T minimum(T a, T b) { return a < b || nan(a) ? a : b; }
template <class T> inline T absolute(T x) { return x < T(0) ? T(-x) : x == T(0) ? T(0) : x; }
template <class T> inline T sign(T x) { return nan(x) ? x : T((x > T(0)) - (x < T(0))); }
template <class T> inline T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }
template <class T> inline T divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a / b;
  else return b == T(0) ? T(-1) : T(a / b);
}
template <class T> inline T fmod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
  else return b == T(0) ? T(0) : T(a % b);
}
template <class To, class From> inline To cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double most = static_cast<double>(std::numeric_limits<To>::max());
    const double least = static_cast<double>(std::numeric_limits<To>::min());
    const double y = static_cast<double>(x);
    return y >= least && y <= most ? static_cast<To>(x) : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(x);
  }
}
}  // namespace detail
"""


@dataclass(frozen=True)
class _View:
    """Numbers in a block, by strides; a constant with one number is a literal without strides."""

    block: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0
    literal: bool = False

    def at(self, indices: Sequence[str]) -> str:
        """One number; missing axes and axes of length 1 are repeated."""
        if self.literal:
            return self.block
        own = indices[len(indices) - len(self.shape) :]
        parts = [
            index if stride == 1 else f"{index} * {stride}"
            for index, n, stride in zip(own, self.shape, self.strides, strict=True)
            if n != 1 and stride and index != "0"
        ]
        parts += [str(self.offset)] if self.offset or not parts else []
        return f"{self.block}[{' + '.join(parts)}]"

    @property
    def in_order(self) -> bool:
        """Whether its numbers are contiguous in row-major order."""
        wanted = _row_major(self.shape)
        steps = zip(self.shape, self.strides, wanted, strict=True)
        return all(n == 1 or a == b for n, a, b in steps)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _whole(block: str, shape: Sequence[int], dtype: str) -> _View:
    return _View(block, tuple(shape), _row_major(shape), dtype)


def _loops(shape: Sequence[int], body: Callable[[list[str]], str], depth: int = 0) -> str:
    """Loops over all indices of a shape; the variables are numbered from `depth`."""
    indices = [f"i{depth + k}" if n != 1 else "0" for k, n in enumerate(shape)]
    heads = [
        f"for (int {index} = 0; {index} < {n}; ++{index}) "
        for index, n in zip(indices, shape, strict=True)
        if n != 1
    ]
    return "".join(heads) + body(indices)


def _literal(array: np.ndarray) -> list[str]:
    """Numbers as C++ literals, in the shortest form that is read as the same number."""
    if array.dtype.kind == "b":
        return ["true" if x else "false" for x in array.ravel()]
    if array.dtype.kind != "f":
        return [str(x) for x in array.ravel().tolist()]
    suffix = "f" if array.dtype == np.float32 else ""
    kind = _TYPES[array.dtype.name]
    limits = f"std::numeric_limits<{kind}>::"
    rare = {"inf": f"{limits}infinity()", "-inf": f"-{limits}infinity()"}
    rare["nan"] = f"{limits}quiet_NaN()"
    return [rare.get(text) or text + suffix for text in array.ravel().astype(str).tolist()]


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Names of the manifest as distinct C++ identifiers: "observation/eye" is observation_eye.

    If two would be equal, the later one gets a number: "a/b" and "a_b" are a_b and a_b_2. Keywords
    and names of macros get an underscore.
    """
    found: dict[str, str] = {}
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not word or word[0].isdigit():
            word = f"_{word}"
        if word in _WORDS or re.fullmatch(r"[A-Z][A-Z0-9_]{2,}|__\w+|_[A-Z]\w*|M_\w+", word):
            word = f"x{word}" if word[0] == "_" else f"{word}_"
        taken, number = set(found.values()), 2
        found[name] = word
        while found[name] in taken:
            found[name] = f"{word}_{number}"
            number += 1
    return found


_WORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq errno linux unix i386 math_errhandling Inputs Outputs State""".split()
)
"""Keywords of C++17 and C++20, macros in lower case, and the names of the structs."""


def _comment(name: str) -> str:
    """A name escaped for a comment, so that it cannot end the comment."""
    return re.sub(r"[^\w/. -]", lambda found: f"\\u{ord(found[0]):04x}", name, flags=re.ASCII)


class _Writer:
    """Writes the statements of a graph's operations."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}
        self.statements: list[str] = []
        self._views: dict[str, _View] = {}
        self._sizes: dict[str, tuple[int, str]] = {}
        self._used: dict[str, list[int]] = {}

    def given(self, name: str, view: _View) -> None:
        """An input or a leaf of the state."""
        self._views[name] = view

    def view(self, value: Real) -> _View:
        """The view of a value."""
        if isinstance(value, Const):
            return self._constant(value)
        return self._views[value.name]

    def node(self, node: Node) -> None:
        """One operation."""
        views = [self.view(value) for value in node.inputs]
        shape, dtype = node.out.shape, node.out.dtype.name
        rule = _RULES.get(node.op)
        if node.op in _LOOKS:
            self._views[node.out.name] = _LOOKS[node.op](self, views[0], **node.attributes)
        elif rule:
            out = self.block(shape, dtype)
            self._write(out, views, rule(out, views, **node.attributes))
            self._views[node.out.name] = out
        else:
            self._views[node.out.name] = self.elementwise(node.op, shape, dtype, views)

    def elementwise(
        self, op: str, shape: Sequence[int], dtype: str, views: Sequence[_View]
    ) -> _View:
        """A new block with the results of an elementwise operation."""
        out = self.block(shape, dtype)
        kind, to = _TYPES[views[0].dtype], _TYPES[dtype]

        def body(indices: list[str]) -> str:
            operands = [view.at(indices) for view in views]
            expression = _EXPRESSIONS[op].format(*operands, type=kind, to=to)
            return f"{out.at(indices)} = static_cast<{to}>({expression});"

        self._write(out, views, _loops(shape, body))
        return out

    def block(self, shape: Sequence[int], dtype: str) -> _View:
        """A block that is written once."""
        name = f"t{len(self._sizes)}"
        self._sizes[name] = (math.prod(shape), dtype)
        self._used[name] = []
        return _whole(name, shape, dtype)

    def reads(self, view: _View) -> None:
        """Records that the next statement reads a block."""
        if view.block in self._used:
            self._used[view.block].append(len(self.statements))

    def _write(self, out: _View, views: Sequence[_View], code: str) -> None:
        for view in (out, *views):
            self.reads(view)
        self.statements.append(code)

    def _constant(self, value: Const) -> _View:
        dtype = value.dtype.name
        if value.array.size == 1:
            (text,) = _literal(value.array)
            return _View(f"({text})", value.shape, (0,) * len(value.shape), dtype, literal=True)
        if value.name not in self.constants:
            name = f"w{len(self.constants)}"
            numbers = ", ".join(_literal(value.array))
            line = f"inline const {_TYPES[dtype]} {name}[] = {{{numbers}}};"
            self.constants[value.name] = f"{line}  // {_comment(value.name)} {list(value.shape)}"
        name = f"w{list(self.constants).index(value.name)}"
        return _whole(name, value.shape, dtype)

    def layout(self) -> tuple[dict[str, int], list[str]]:
        """Size of the working memory of each type, and the place of each block in it."""
        ends: dict[str, int] = {}
        free: dict[str, list[tuple[int, int]]] = {}
        lines: list[str] = []
        living: list[tuple[int, str, int, int]] = []
        for name, (size, dtype) in self._sizes.items():
            first, last = self._used[name][0], self._used[name][-1]
            for block in [block for block in living if block[0] < first]:
                living.remove(block)
                free.setdefault(block[1], []).append(block[2:])
            fitting = [slot for slot in free.get(dtype, []) if slot[1] >= size]
            if fitting:
                slot = min(fitting, key=lambda slot: slot[1])
                free[dtype].remove(slot)
            else:
                slot = (ends.get(dtype, 0), size)
                ends[dtype] = slot[0] + size
            living.append((last, dtype, *slot))
            kind = _TYPES[dtype]
            lines.append(f"{kind}* const {name} = detail::work_{dtype} + {slot[0]};")
        return ends, lines


def _reshape(writer: _Writer, view: _View, rank: int, shape: list[int]) -> _View:
    if not (view.literal or view.in_order):
        view = writer.elementwise("copy", view.shape, view.dtype, [view])
    return replace(view, shape=tuple(shape), strides=_row_major(shape))


def _expand(writer: _Writer, view: _View, shape: list[int]) -> _View:
    added = len(shape) - len(view.shape)
    own = zip(view.shape, view.strides, strict=True)
    strides = (0,) * added + tuple(0 if n == 1 else stride for n, stride in own)
    return replace(view, shape=tuple(shape), strides=strides)


def _transpose(writer: _Writer, view: _View, order: list[int]) -> _View:
    shape, strides = (tuple(part[i] for i in order) for part in (view.shape, view.strides))
    return replace(view, shape=shape, strides=strides)


def _slice(
    writer: _Writer, view: _View, start: list[int], stop: list[int], step: list[int]
) -> _View:
    shape = [len(range(n)[a:b:c]) for n, a, b, c in zip(view.shape, start, stop, step, strict=True)]
    offset = view.offset + sum(a * s for a, s in zip(start, view.strides, strict=True))
    strides = tuple(c * s for c, s in zip(step, view.strides, strict=True))
    return replace(view, shape=tuple(shape), strides=strides, offset=offset)


_LOOKS: dict[str, Callable[..., _View]] = {
    "reshape": _reshape,
    "expand": _expand,
    "transpose": _transpose,
    "slice": _slice,
}
"""Operations that only change the view."""


def _product(out: _View, views: list[_View]) -> str:
    """Matrix products over the last two axes, row by row, so that the inner loop is contiguous."""
    left, right = views
    inner, columns = left.shape[-1], right.shape[-1]
    rows = out.shape[:-1]
    kind = _TYPES[out.dtype]

    def body(indices: list[str]) -> str:
        lead = indices[: len(right.shape) - 2] if len(right.shape) > 2 else []
        y = out.at([*indices, "j"])
        product = f"a * {right.at([*lead, 'k', 'j'])}"
        over = f"for (int j = 0; j < {columns}; ++j)"
        return (
            f"{{ {over} {y} = 0; for (int k = 0; k < {inner}; ++k) "
            f"{{ const {kind} a = {left.at([*indices, 'k'])}; {over} {y} += {product}; }} }}"
        )

    return _loops(rows, body)


def _concatenate(out: _View, views: list[_View], axis: int, rank: int) -> str:
    axis += rank
    ends = list(itertools.accumulate(view.shape[axis] for view in views))
    lines = []
    for view, end in zip(views, ends, strict=True):
        begin = (end - view.shape[axis]) * out.strides[axis]
        part = _View(out.block, view.shape, out.strides, out.dtype, begin)
        lines.append(
            _loops(view.shape, lambda i, part=part, view=view: f"{part.at(i)} = {view.at(i)};")
        )
    return "\n  ".join(lines)


def _take(out: _View, views: list[_View], rank: int) -> str:
    x, index = views
    return _loops(out.shape, lambda i: f"{out.at(i)} = {x.at([f'({index.at(i[:1])})', *i[1:]])};")


def _reduce(first: str, join: str, out: _View, views: list[_View], *, axes: list[int]) -> str:
    (x,), kind = views, _TYPES[out.dtype]
    gone = [axis % len(x.shape) for axis in axes]
    kept = [axis for axis in range(len(x.shape)) if axis not in gone]

    def body(indices: list[str]) -> str:
        of = dict(zip(kept, indices, strict=True))
        places = [of.get(axis, "0") for axis in range(len(x.shape))]
        begin = x.at(places) if first == "x" else first

        def inner(places: list[str]) -> str:
            where = of | dict(zip(gone, places, strict=True))
            value = x.at([where[axis] for axis in range(len(x.shape))])
            return f"a = {join.format(value, kind=kind)};"

        loops = _loops([x.shape[axis] for axis in gone], inner, depth=len(kept))
        return f"{{ {kind} a = {begin}; {loops} {out.at(indices)} = a; }}"

    return _loops([x.shape[axis] for axis in kept], body)


def _argmax(out: _View, views: list[_View]) -> str:
    (x,) = views

    def body(indices: list[str]) -> str:
        now, best = x.at([*indices, "k"]), x.at([*indices, "b"])
        return (
            f"{{ int b = 0; for (int k = 1; k < {x.shape[-1]}; ++k) if ({now} > {best} || "
            f"(detail::nan({now}) && !detail::nan({best}))) b = k; {out.at(indices)} = b; }}"
        )

    return _loops(out.shape, body)


_RULES: dict[str, Callable[..., str]] = {
    "linear": _product,
    "matmul": _product,
    "concatenate": _concatenate,
    "take": _take,
    "argmax": _argmax,
    "sum": partial(_reduce, "0", "a + {0}"),
    "product": partial(_reduce, "1", "a * {0}"),
    "largest": partial(_reduce, "x", "detail::maximum<{kind}>(a, {0})"),
    "smallest": partial(_reduce, "x", "detail::minimum<{kind}>(a, {0})"),
}
"""Operations that combine several numbers of an operand."""


def header_file(traced: Traced, policy: str) -> bytes:
    """The bytes of `policy.hpp`; `policy` is the policy's name in the manifest."""
    writer, graph = _Writer(), traced.graph
    for struct, entries, values in (
        ("in", traced.inputs, graph.inputs),
        ("state", traced.state, graph.states),
    ):
        words = _words(entries)
        for entry in entries:
            pointer = _pointer(f"{struct}.{words[entry['name']]}", entry["shape"])
            ref = values[entry["name"]]
            writer.given(ref.name, _whole(pointer, ref.shape, ref.dtype.name))
    for node in graph.nodes:
        writer.node(node)
    _results(writer, traced)
    ends, blocks = writer.layout()
    work = [f"inline {_TYPES[kind]} work_{kind}[{size}];" for kind, size in ends.items()]
    lines = [
        _ABOUT.format(policy=policy, includes="\n".join(f"#include <{n}>" for n in INCLUDES)),
        _struct("Inputs", traced.inputs),
        _struct("Outputs", traced.outputs),
        _struct("State", traced.state, traced.initial),
        _HELPERS,
        "namespace detail {",
        *writer.constants.values(),
        *work,
        "}  // namespace detail\n",
        "inline void step([[maybe_unused]] State& state, const Inputs& in, Outputs& out) {",
        "  using namespace detail;",
        *(f"  {line}" for line in (*blocks, *writer.statements)),
        "}",
        _END,
    ]
    return "\n".join(lines).encode()


def _results(writer: _Writer, traced: Traced) -> None:
    """Writes the outputs, and the new state once nothing reads the old one."""
    graph, names = traced.graph, {}
    words = {"out": _words(traced.outputs), "state": _words(traced.state)}
    for struct, values in (("out", graph.outputs), ("state", graph.after)):
        for name, value in values.items():
            view = writer.view(value)
            if view.block.startswith(("state.", "(&state.")):
                view = writer.elementwise("copy", view.shape, view.dtype, [view])
            names[struct, name] = view
    for (struct, name), view in names.items():
        pointer = _pointer(f"{struct}.{words[struct][name]}", view.shape)
        place = _whole(pointer, view.shape, view.dtype)
        writer.reads(view)
        writer.statements.append(
            _loops(view.shape, lambda i, p=place, v=view: f"{p.at(i)} = {v.at(i)};")
        )


def _words(entries: list[dict[str, Any]]) -> dict[str, str]:
    return identifiers(entry["name"] for entry in entries)


def _pointer(name: str, shape: Sequence[int]) -> str:
    return name if len(shape) else f"(&{name})"


def _struct(
    title: str, entries: list[dict[str, Any]], initial: dict[str, np.ndarray] | None = None
) -> str:
    """A struct with a field for each entry, row-major."""
    lines, words = [f"struct {title} {{"], _words(entries)
    for entry in entries:
        name, shape = entry["name"], entry["shape"]
        size = f"[{math.prod(shape)}]" if shape else ""
        begin = ""
        if initial is not None:
            begin = f" = {{{','.join(_literal(np.asarray(initial[name])))}}}"
        field = f"  {_TYPES[entry['dtype']]} {words[name]}{size}{begin};"
        lines.append(f"{field}  // {_comment(name)} {list(shape)}")
    return "\n".join([*lines, "};\n"])


INCLUDES = ("cmath", "cstdint", "limits", "type_traits")
"""Everything that the header includes."""
_ABOUT = """// The policy {policy}, written by `clew export`. C++17 without dependencies.
//
//   policy::Inputs in;  policy::Outputs out;
//   in.start = true;             // the first observation of an episode: the state is cleared
//   policy::step(in, out);       // reads and updates the one static state
//
// Arrays are row-major. step(state, in, out) takes a state of yours, for several environments.
// Working memory is static too, so call it from one thread.
#pragma once

{includes}

namespace policy {{
"""
_END = """
inline State state;

inline void step(const Inputs& in, Outputs& out) { step(state, in, out); }

}  // namespace policy
"""
