"""Complex numbers in a graph, as two real values: the real and the imaginary part.

If a value is known to be real, its imaginary part is a constant of zeros, and no product with it is
written. In files a complex leaf of the state has one more axis, the last one, with its two parts.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.deploy.graph import Const, Real
from clew.errors import UserError

if TYPE_CHECKING:
    from clew.deploy.lower import Lowering

PARTS = ("real", "imag")
"""The entries of the last axis of a complex leaf of the state."""
TYPES = {"complex64": "float32", "complex128": "float64"}
"""Complex types, and those of their parts."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A complex value; `pair` makes its parts one shape."""

    real: Real
    imag: Real

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each part."""
        return self.real.shape

    @property
    def dtype(self) -> np.dtype:
        """The complex type."""
        return np.result_type(self.real.dtype, np.complex64)


Value = Real | Pair


def pair(low: "Lowering", real: Value, imag: Value) -> Pair:
    """A complex value of real parts, which may have repeated axes."""
    shape = np.broadcast_shapes(real.shape, imag.shape)
    real, imag = (low.whole(low.of_rank(part, len(shape)), shape) for part in (real, imag))
    assert not isinstance(real, Pair) and not isinstance(imag, Pair)
    return Pair(real, imag)


def as_pair(low: "Lowering", value: Value) -> Pair:
    """A value converted to a complex one."""
    return value if isinstance(value, Pair) else pair(low, value, low.number(0, value))


def is_known(value: Value) -> bool:
    """Whether a value is constant when the policy is exported."""
    parts = (value.real, value.imag) if isinstance(value, Pair) else (value,)
    return all(isinstance(part, Const) for part in parts)


def stored(array: Any) -> Any:
    """An array in the form of files: [..., 2] for a complex one."""
    if not np.issubdtype(array.dtype, np.complexfloating):
        return array
    return np.stack([np.real(array), np.imag(array)], axis=-1)


def restored(array: np.ndarray) -> np.ndarray:
    """The complex array of a stored one."""
    return np.ascontiguousarray(array).view(np.result_type(array.dtype, np.complex64))[..., 0]


def read_stored(low: "Lowering", leaf: Value) -> Pair:
    """The complex value of a leaf [..., 2]."""
    axis, shape = len(leaf.shape) - 1, leaf.shape[:-1]
    real, imag = (low.reshape(low.slice(leaf, axis, i, i + 1), shape) for i in range(2))
    return pair(low, real, imag)


def to_store(low: "Lowering", value: Value) -> Real:
    """`stored` of a value."""
    if isinstance(value, Pair):
        parts = [low.reshape(part, (*value.shape, 1)) for part in (value.real, value.imag)]
        value = low.concatenate(parts, len(value.shape))
    assert not isinstance(value, Pair)
    return value


def emit(low: "Lowering", op: str, values: Sequence[Value], attributes: dict[str, Any]) -> Value:
    """An operation with a complex operand, composed of operations on real ones.

    Raises:
        UserError: exports do not support it for complex numbers.
    """
    if op in _RULES:
        return _RULES[op](low, *values, **attributes)
    if op not in _EACH:
        raise UserError(f"cannot export: {op!r} of complex numbers is not supported in exports")
    is_real = [number == _EACH[op] for number in range(len(values))]
    parts = (
        [x if real else part(as_pair(low, x)) for x, real in zip(values, is_real, strict=True)]
        for part in map(operator.attrgetter, PARTS)
    )
    return pair(low, *(low.emit(op, *part, **attributes) for part in parts))


def _is_real(value: Pair) -> bool:
    return isinstance(value.imag, Const) and not value.imag.array.any()


def _product(op: str, low: "Lowering", left: Value, right: Value) -> Value:
    """(a + ib)(c + id) = (ac - bd) + i(ad + bc), of numbers or of matrices."""
    one, other = as_pair(low, left), as_pair(low, right)
    times = partial(low.emit, op)
    first = times(one.real, other.real)
    if _is_real(one):
        return pair(low, first, times(one.real, other.imag))
    third = times(one.imag, other.real)
    if _is_real(other):
        return pair(low, first, third)
    second, fourth = times(one.real, other.imag), times(one.imag, other.imag)
    real = low.elementwise("subtract", first, fourth)
    return pair(low, real, low.elementwise("add", second, third))


def _divide(low: "Lowering", left: Value, right: Value) -> Value:
    """(a + ib)(c - id) / (c^2 + d^2), both divided by max(|c|, |d|), so that neither overflows."""
    one, other = as_pair(low, left), as_pair(low, right)
    sizes = [low.emit("absolute", part) for part in (other.real, other.imag)]
    most = low.elementwise("maximum", *sizes)
    c, d = (low.elementwise("divide", part, most) for part in (other.real, other.imag))
    below = low.elementwise(
        "add",
        low.elementwise("multiply", c, other.real),
        low.elementwise("multiply", d, other.imag),
    )
    above = as_pair(low, low.emit("multiply", one, pair(low, c, low.emit("negative", d))))
    parts = (low.elementwise("divide", part, below) for part in (above.real, above.imag))
    return pair(low, *parts)


def _exp(low: "Lowering", value: Pair) -> Value:
    """exp(a) (cos b + i sin b)."""
    size = low.emit("exp", value.real)
    parts = (low.elementwise("multiply", size, low.emit(f, value.imag)) for f in ("cos", "sin"))
    return pair(low, *parts)


def _absolute(low: "Lowering", value: Pair) -> Value:
    """m sqrt(1 + (n / m)^2), with m the larger part and n the smaller one."""
    sizes = [low.emit("absolute", part) for part in (value.real, value.imag)]
    most, least = (low.elementwise(op, *sizes) for op in ("maximum", "minimum"))
    tiny = low.number(np.finfo(most.dtype).tiny, most)
    ratio = low.elementwise("divide", least, low.elementwise("maximum", most, tiny))
    square = low.elementwise("multiply", ratio, ratio)
    root = low.emit("sqrt", low.elementwise("add", low.number(1, square), square))
    return low.elementwise("multiply", most, root)


def _cast(low: "Lowering", value: Pair, dtype: str) -> Value:
    """The value in another complex type, or its real part."""
    if dtype not in TYPES:
        return low.emit("cast", value.real, dtype=dtype)
    parts = (low.emit("cast", part, dtype=TYPES[dtype]) for part in (value.real, value.imag))
    return pair(low, *parts)


_EACH: dict[str, int | None] = {
    **dict.fromkeys(("reshape", "expand", "transpose", "slice", "concatenate", "sum")),
    **dict.fromkeys(("add", "subtract", "negative")),
    "where": 0,
    "take": 1,
}
"""Operations that apply to each part separately, and which operand is real."""
_RULES: dict[str, Callable[..., Value]] = {
    **{op: partial(_product, op) for op in ("multiply", "linear", "matmul")},
    "divide": _divide,
    "exp": _exp,
    "absolute": _absolute,
    "cast": _cast,
}
