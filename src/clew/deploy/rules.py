"""The lowering of each JAX primitive to a graph; see `clew.deploy.lower`."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np

from clew.deploy.graph import Const
from clew.deploy.pairs import Value, as_pair, is_known, pair
from clew.errors import UserError
from clew.jaxprs import scan_parts

if TYPE_CHECKING:
    from clew.deploy.lower import Lowering

MOST_ROUNDS = 1024
"""Most rounds of a loop, or rows of an update, that are written out."""


def _elementwise(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    return low.elementwise(op, *values)


def _divided(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    """Integer division by 0 gives -1, and the remainder is the number itself, as in JAX."""
    x, y = values
    if x.dtype.kind not in "iu" or (isinstance(y, Const) and y.array.all()):
        return low.elementwise(op, x, y)
    never = low.elementwise("equal", y, low.number(0, y))
    found = low.elementwise(op, x, low.where(never, low.number(1, y), y))
    instead = x if op == "fmod" else low.number(np.array(-1).astype(x.dtype), x)
    return low.where(never, instead, found)


def _logical(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    if values[0].dtype != bool:
        raise low.unknown(equation)
    return low.elementwise(op, *values)


def _part(imaginary: bool, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    value = as_pair(low, values[0])
    return value.imag if imaginary else value.real


def _conjugate(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    value = as_pair(low, values[0])
    return pair(low, value.real, low.emit("negative", value.imag))


def _power(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    exponent = low.emit("cast", values[1], dtype=values[0].dtype.name)
    return low.elementwise("power", values[0], exponent)


def _integer_power(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), y = values, equation.params["y"]
    result, square, left = low.number(1, x), x, abs(y)
    while left:
        if left % 2:
            result = low.elementwise("multiply", result, square)
        square, left = low.elementwise("multiply", square, square), left // 2
    return result if y >= 0 else low.elementwise("divide", low.number(1, x), result)


def _log2(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    return low.elementwise("divide", low.emit("log", *values), low.number(math.log(2), values[0]))


def _one_minus_square(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,) = values
    one = low.number(1, x)
    return low.elementwise(
        "multiply", low.elementwise("add", one, x), low.elementwise("subtract", one, x)
    )


def _polynomial(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    """Horner's rule; the coefficients begin with the constant."""
    x, *rest, result = values
    for coefficient in reversed(rest):
        result = low.elementwise("add", low.elementwise("multiply", result, x), coefficient)
    return result


def _hyperbolic(sign: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    up = low.emit("exp", values[0])
    down = low.emit("exp", low.emit("negative", values[0]))
    return low.elementwise("multiply", low.elementwise(sign, up, down), low.number(0.5, values[0]))


def _clamp(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    least, x, most = values
    return low.elementwise("minimum", low.elementwise("maximum", x, least), most)


def _select(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    which, *cases = values
    if which.dtype == bool:
        return low.where(which, cases[1], cases[0])
    return _choose(low, which, cases)


def _choose(low: "Lowering", which: Value, cases: Sequence[Value]) -> Value:
    """The case with this number; larger numbers take the last one."""
    result = cases[-1]
    for number, case in reversed(list(enumerate(cases[:-1]))):
        reached = low.elementwise("less_equal", which, low.number(number, which))
        result = low.where(reached, case, result)
    return result


def _cast(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), dtype = values, np.dtype(equation.params["new_dtype"])
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return low.emit("cast", x, dtype=dtype.name)
    # Numbers out of range are clipped, and NaN becomes 0, as in JAX; processors differ in their
    # own results of such casts.
    limits = np.iinfo(dtype)
    x = low.where(low.elementwise("equal", x, x), x, low.number(0, x))
    above = low.elementwise("greater_equal", x, low.number(2.0 ** limits.max.bit_length(), x))
    below = low.elementwise("less_equal", x, low.number(limits.min, x))
    out = low.elementwise("logical_or", above, below)
    whole = low.emit("cast", low.where(out, low.number(0, x), x), dtype=dtype.name)
    whole = low.where(above, low.number(limits.max, whole), whole)
    return low.where(below, low.number(limits.min, whole), whole)


def _round(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), method = values, equation.params["rounding_method"]
    if method == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return low.emit("rint", x)
    size = low.emit("absolute", x)
    floor = low.emit("floor", size)
    rest = low.elementwise("subtract", size, floor)
    up = low.elementwise("greater_equal", rest, low.number(0.5, rest))
    up = low.emit("cast", up, dtype=x.dtype.name)
    return low.elementwise("multiply", low.emit("sign", x), low.elementwise("add", floor, up))


def _iota(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    ones = [n if i == axis else 1 for i, n in enumerate(shape)]
    dtype = np.dtype(equation.params["dtype"])
    return low.constant(np.arange(shape[axis], dtype=dtype).reshape(ones))


def _broadcast(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    shape = [1] * len(equation.params["shape"])
    for axis, n in zip(equation.params["broadcast_dimensions"], values[0].shape, strict=True):
        shape[axis] = n
    return low.reshape(values[0], shape)


def _reshape(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    shape = equation.outvars[0].aval.shape
    if math.prod(values[0].shape) == 1:
        return low.reshape(values[0], (1,) * len(shape))
    return low.reshape(_whole(low, equation, values)[0], shape)


def _squeeze(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    axes = equation.params["dimensions"]
    return low.reshape(values[0], [n for i, n in enumerate(values[0].shape) if i not in axes])


def _stack(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    axis = equation.params["axis"]
    values = _whole(low, equation, values)
    shapes = [(*v.shape[:axis], 1, *v.shape[axis:]) for v in values]
    parts = [low.reshape(v, shape) for v, shape in zip(values, shapes, strict=True)]
    return low.concatenate(parts, axis)


def _unstack(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    axis, (x,) = equation.params["axis"], _whole(low, equation, values)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [low.reshape(low.slice(x, axis, i, i + 1), shape) for i in range(x.shape[axis])]


def _tile(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,) = _whole(low, equation, values)
    for axis, count in enumerate(equation.params["reps"]):
        x = low.concatenate([x] * count, axis)
    return x


def _slice(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), p = values, equation.params
    steps = p["strides"] or (1,) * len(x.shape)
    bounds = zip(p["start_indices"], p["limit_indices"], steps, strict=True)
    for axis, (start, stop, step) in enumerate(bounds):
        x = low.slice(x, axis, start, stop, step)
    return x


def _split(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    axis = equation.params["axis"]
    ends = list(itertools.accumulate(equation.params["sizes"]))
    return [low.slice(values[0], axis, a, b) for a, b in zip([0, *ends], ends, strict=False)]


def _reverse(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,) = values
    for axis in equation.params["dimensions"]:
        x = low.take(x, low.constant(np.arange(x.shape[axis], dtype=np.int32)[::-1]), axis)
    return x


def _pad(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    x, filler = _whole(low, equation, values[:1])[0], values[1]
    for axis, (before, after, inner) in enumerate(equation.params["padding_config"]):
        if inner:
            raise low.unknown(equation)
        if before >= 0 and after >= 0:
            x = _padded(low, x, axis, before, after, filler)
            continue
        size = x.shape[axis]
        places = np.arange(size + before + after, dtype=np.int32) - before
        x = low.take(x, low.constant(np.clip(places, 0, size - 1)), axis)
        inside = ((places >= 0) & (places < size)).reshape(
            [-1 if i == axis else 1 for i in range(len(x.shape))]
        )
        x = low.whole(low.where(low.constant(inside), x, filler), x.shape)
    return x


def _padded(low: "Lowering", x: Value, axis: int, before: int, after: int, filler: Value) -> Value:
    def wide(n: int) -> Value:
        shape = [n if i == axis else m for i, m in enumerate(x.shape)]
        return low.whole(low.of_rank(filler, len(shape)), shape)

    parts = [*([wide(before)] if before else []), x, *([wide(after)] if after else [])]
    return low.concatenate(parts, axis)


def _reduce(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    rank = len(values[0].shape)
    if op in ("sum", "product"):
        values = _whole(low, equation, values)
    axes = [int(axis) - rank for axis in equation.params["axes"]]
    return low.emit(op, values[0], axes=axes) if axes else values[0]


def _any_or_all(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    if not equation.params["axes"]:
        return values[0]
    if 0 in equation.invars[0].aval.shape:
        return low.constant(np.full(equation.outvars[0].aval.shape, op == "smallest"))
    number = _reduce(op, low, equation, [low.emit("cast", values[0], dtype="int32")])
    return low.elementwise("not_equal", number, low.number(0, number))


def _argmax(sign: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), (axis,) = _whole(low, equation, values), equation.params["axes"]
    if x.dtype == bool:  # ONNX has no ArgMax of booleans
        x = low.emit("cast", x, dtype="int32")
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    moved = low.transpose(x, order)
    if sign == "+":
        return low.emit("argmax", moved)
    if x.dtype.kind == "f":
        return low.emit("argmax", low.emit("negative", moved))
    # The least integer of a type has no negative.
    top = low.number(np.iinfo(x.dtype).max if x.dtype.kind == "u" else -1, moved)
    return low.emit("argmax", low.elementwise("subtract", top, moved))


def _cumulative(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    (x,), axis = _whole(low, equation, values), equation.params["axis"]
    if x.shape[axis] > MOST_ROUNDS:
        raise low.unknown(equation)
    if not x.shape[axis]:
        return x
    rows = [low.slice(x, axis, i, i + 1) for i in range(x.shape[axis])]
    rows = rows[::-1] if equation.params["reverse"] else rows
    found = list(itertools.accumulate(rows, partial(low.elementwise, op)))
    return low.concatenate(found[::-1] if equation.params["reverse"] else found, axis)


def _dot(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    left, right = _widened(low, equation, _whole(low, equation, values))
    (left_sum, right_sum), (left_batch, _) = equation.params["dimension_numbers"]
    if left_batch or not (is_known(left) or is_known(right)):
        return _batched_dot(low, left, right, equation.params["dimension_numbers"])
    if is_known(right):
        return _times_matrix(low, left, right, left_sum, right_sum)
    swapped = _times_matrix(low, right, left, right_sum, left_sum)
    free = len(right.shape) - len(right_sum)
    axes = range(len(swapped.shape))
    return low.transpose(swapped, [*axes[free:], *axes[:free]])


def _widened(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    """The operands in the result's type if that is wider, so that no sum overflows."""
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    wider = dtype.itemsize > values[0].dtype.itemsize
    return [low.emit("cast", x, dtype=dtype.name) for x in values] if wider else values


def _free(shape: Sequence[int], *taken: Sequence[int]) -> list[int]:
    return [i for i in range(len(shape)) if i not in itertools.chain(*taken)]


def _sizes(value: Value, axes: Sequence[int]) -> list[int]:
    return [value.shape[axis] for axis in axes]


def _times_matrix(
    low: "Lowering", x: Value, matrix: Value, x_sum: Sequence[int], matrix_sum: Sequence[int]
) -> Value:
    """The free axes of x, then those of a known matrix."""
    x_free, free = _free(x.shape, x_sum), _free(matrix.shape, matrix_sum)
    rows, columns = _sizes(x, x_free), _sizes(matrix, free)
    inner = math.prod(_sizes(x, x_sum))
    x = low.reshape(low.transpose(x, [*x_free, *x_sum]), [*rows, inner])
    matrix = low.transpose(matrix, [*matrix_sum, *free])
    flat = low.reshape(matrix, [inner, math.prod(columns)])
    return low.reshape(low.emit("linear", x, flat), [*rows, *columns])


def _batched_dot(low: "Lowering", left: Value, right: Value, numbers: Any) -> Value:
    """The shared axes, then the free ones of both operands."""
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    left_free = _free(left.shape, left_sum, left_batch)
    right_free = _free(right.shape, right_sum, right_batch)
    batch, inner = _sizes(left, left_batch), math.prod(_sizes(left, left_sum))
    rows, columns = _sizes(left, left_free), _sizes(right, right_free)
    left = low.transpose(left, [*left_batch, *left_free, *left_sum])
    right = low.transpose(right, [*right_batch, *right_sum, *right_free])
    left = low.reshape(left, [*batch, math.prod(rows), inner])
    right = low.reshape(right, [*batch, inner, math.prod(columns)])
    return low.reshape(low.emit("matmul", left, right), [*batch, *rows, *columns])


def _index(low: "Lowering", value: Value) -> Value:
    """An index in a type that can represent every place of an axis."""
    return low.emit("cast", value, dtype="int32") if value.dtype.itemsize < 4 else value


def _dynamic_slice(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    x, *starts = values[0], *(_index(low, start) for start in values[1:])
    sizes = equation.params["slice_sizes"]
    shape = equation.invars[0].aval.shape
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if x.shape[axis] == 1 or size == shape[axis]:
            continue
        first = low.clipped(start, shape[axis] - size)
        if isinstance(first, Const):
            x = low.slice(x, axis, int(first.array), int(first.array) + size)
        else:
            offsets = low.constant(np.arange(size, dtype=first.dtype))
            x = low.take(x, low.elementwise("add", first, offsets), axis)
    return x


def _dynamic_update(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    x, update = _whole(low, equation, values[:2])
    starts = [_index(low, start) for start in values[2:]]
    placed = [
        (axis, low.clipped(start, x.shape[axis] - n))
        for axis, (start, n) in enumerate(zip(starts, update.shape, strict=True))
        if n < x.shape[axis]
    ]
    return _written(low, x, update, placed, lambda old, new: new)


def _written(
    low: "Lowering",
    x: Value,
    window: Value,
    placed: Sequence[tuple[int, Value]],
    join: Callable[[Value, Value], Value],
) -> Value:
    """x with a window of it joined to other numbers; a window that reaches beyond x is ignored.

    `placed` has axes, and the window's beginning on each; on all other axes it spans x.
    """
    inside: Value = low.constant(np.array(True))
    for axis, start in placed:
        n, size = x.shape[axis], window.shape[axis]
        ones = [n if i == axis else 1 for i in range(len(x.shape))]
        places = low.constant(np.arange(n, dtype=start.dtype).reshape(ones))
        offset = low.elementwise("subtract", places, start)
        if size == 1:
            here = low.elementwise("equal", offset, low.number(0, offset))
        else:
            fits = _within(low, start, n - size)
            here = low.elementwise("logical_and", _within(low, offset, size - 1), fits)
            index = low.reshape(low.clipped(offset, size - 1), [n])
            window = low.take(window, index, axis)
        inside = low.elementwise("logical_and", inside, here)
    return low.whole(low.where(inside, join(x, window), x), x.shape)


def _within(low: "Lowering", index: Value, most: int) -> Value:
    above = low.elementwise("greater_equal", index, low.number(0, index))
    below = low.elementwise("less_equal", index, low.number(most, index))
    return low.elementwise("logical_and", above, below)


def _scatter(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    x, indices, updates = _whole(low, equation, values)
    indices, update = _index(low, indices), equation.params["update_jaxpr"]
    # The new values may be computed from the old ones, which exports do not support.
    if op == "set" and update is not None and update.outvars != update.invars[1:]:
        raise low.unknown(equation)
    d = equation.params["dimension_numbers"]
    lead = indices.shape[:-1]
    if math.prod(lead) > MOST_ROUNDS:
        raise low.unknown(equation)
    axes = d.scatter_dims_to_operand_dims
    rows = _free(updates.shape, d.update_window_dims)
    order = [*rows, *d.update_window_dims]
    count = math.prod(lead)
    moved = low.transpose(updates, order)
    windows = low.reshape(moved, [count, *moved.shape[len(rows) :]])
    numbers = low.reshape(indices, [count, len(axes)])
    kept = _free(x.shape, d.inserted_window_dims, d.operand_batching_dims)
    shared = list(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
    clip = equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
    join = (lambda old, new: new) if op == "set" else partial(low.elementwise, op)
    for row in range(count):
        window = low.reshape(low.slice(windows, 0, row, row + 1), windows.shape[1:])
        shape = [1] * len(x.shape)
        for axis, n in zip(kept, window.shape, strict=True):
            shape[axis] = n
        where = np.unravel_index(row, lead)
        window = low.reshape(window, shape)
        placed: list[tuple[int, Value]] = []
        placed += [(axis, low.number(where[of], indices)) for axis, of in shared]
        for column, axis in enumerate(axes):
            one = low.slice(low.slice(numbers, 0, row, row + 1), 1, column, column + 1)
            start = low.reshape(one, ())
            start = low.clipped(start, x.shape[axis] - shape[axis]) if clip else start
            placed.append((axis, start))
        x = _written(low, x, window, placed, join)
    return x


def _gather(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    x, indices = _whole(low, equation, values)
    indices = _index(low, indices)
    d, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.outvars[0].aval.shape
    (axis, *others), rest = d.start_index_map, _free(x.shape, d.start_index_map[:1])
    whole = all(sizes[i] == x.shape[i] for i in rest) and sizes[axis] == 1
    if others or not whole or d.operand_batching_dims:
        found = _gather_any(low, x, indices, d, sizes, shape)
    else:
        index = low.reshape(indices, [math.prod(indices.shape)])
        rows = low.take(x, low.clipped(index, x.shape[axis] - 1), axis)
        first = low.transpose(rows, [axis, *rest])
        lead = _free(shape, d.offset_dims)
        wanted = [*lead, *d.offset_dims]
        split = low.reshape(first, [shape[i] for i in wanted])
        found = low.transpose(split, np.argsort(wanted))
    if equation.params["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP:
        return found
    return _filled(low, equation, found, x, indices)


def _gather_any(
    low: "Lowering", x: Value, indices: Value, d: Any, sizes: Sequence[int], shape: Sequence[int]
) -> Value:
    """Gathers every number of the result by its place in the flat operand."""
    strides = [math.prod(x.shape[i + 1 :]) for i in range(len(x.shape))]
    lead, axes = _free(shape, d.offset_dims), list(d.start_index_map)
    gone = (*d.collapsed_slice_dims, *d.operand_batching_dims)
    grid = np.indices(shape, dtype=np.int32)
    place = np.zeros(shape, np.int32)
    for axis, out in zip(_free(x.shape, gone), d.offset_dims, strict=True):
        place = place + strides[axis] * grid[out]
    for axis, batch in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
        place = place + strides[axis] * grid[lead[batch]]
    total: Value = low.constant(place)
    for column, axis in enumerate(axes):
        part = low.slice(indices, len(indices.shape) - 1, column, column + 1)
        start = low.emit("cast", low.clipped(part, x.shape[axis] - sizes[axis]), dtype="int32")
        ones = [n if i in lead else 1 for i, n in enumerate(shape)]
        offset = low.elementwise(
            "multiply", low.reshape(start, ones), low.number(strides[axis], start)
        )
        total = low.elementwise("add", total, offset)
    flat = low.reshape(low.whole(total, shape), [math.prod(shape)])
    return low.reshape(low.take(low.reshape(x, [math.prod(x.shape)]), flat, 0), shape)


def _filled(low: "Lowering", equation: Any, found: Value, x: Value, indices: Value) -> Value:
    """The gathered numbers, with the fill value for indices out of bounds."""
    d, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.outvars[0].aval.shape
    ones = [1 if i in d.offset_dims else n for i, n in enumerate(shape)]
    fine: Value = low.constant(np.array(True))
    for column, axis in enumerate(d.start_index_map):
        part = low.slice(indices, len(indices.shape) - 1, column, column + 1)
        inside = _within(low, part, x.shape[axis] - sizes[axis])
        fine = low.elementwise("logical_and", fine, low.reshape(inside, ones))
    filler = equation.params["fill_value"]
    if filler is None:
        limits = {"f": math.nan, "c": math.nan, "b": True, "u": -1, "i": None}
        filler = limits[x.dtype.kind]
        filler = np.iinfo(x.dtype).min if filler is None else np.array(filler).astype(x.dtype)
    return low.where(fine, found, low.number(filler, found))


def _windows(low: "Lowering", x: Value, axes: Sequence[int], window: Any) -> list[Value]:
    """The numbers at every place of a window that moves over some axes; x is already padded.

    `window` has for each axis its length, its stride and its dilation.
    """
    found = []
    for place in itertools.product(*(range(size) for size, _, _ in window)):
        part = x
        for axis, i, (size, step, apart) in zip(axes, place, window, strict=True):
            count = (x.shape[axis] - (size - 1) * apart - 1) // step + 1
            start = i * apart
            part = low.slice(part, axis, start, start + (count - 1) * step + 1, step)
        found.append(part)
    return found


def _convolution(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    """Windows side by side, times the kernel as a matrix."""
    p, (x, kernel) = equation.params, _widened(low, equation, _whole(low, equation, values))
    d = p["dimension_numbers"]
    plain = p["feature_group_count"] == p["batch_group_count"] == 1
    if not plain or any(n != 1 for n in p["lhs_dilation"]):
        raise low.unknown(equation)
    batch, channel, *space = d.lhs_spec
    x = low.transpose(x, [batch, *space, channel])
    out, into, *kernel_space = d.rhs_spec
    kernel = low.transpose(kernel, [*kernel_space, into, out])
    axes = range(1, len(x.shape) - 1)
    for axis, (before, after) in zip(axes, p["padding"], strict=True):
        x = _padded(low, x, axis, before, after, low.number(0, x))
    places = zip(kernel.shape, p["window_strides"], p["rhs_dilation"], strict=False)
    columns = low.concatenate(_windows(low, x, axes, list(places)), len(x.shape) - 1)
    flat = low.reshape(kernel, [math.prod(kernel.shape[:-1]), kernel.shape[-1]])
    if not is_known(flat):
        raise low.unknown(equation)
    y = low.emit("linear", columns, flat)
    order = [d.out_spec[0], *d.out_spec[2:], d.out_spec[1]]
    return low.transpose(y, np.argsort(order))


def _pool(op: str, low: "Lowering", equation: Any, values: list[Value]) -> Value:
    p, (x,) = equation.params, _whole(low, equation, values)
    if any(n != 1 for n in p["base_dilation"]):
        raise low.unknown(equation)
    beyond = {"maximum": -math.inf, "minimum": math.inf, "add": 0}[op]
    if beyond and x.dtype.kind != "f":
        raise low.unknown(equation)
    for axis, (before, after) in enumerate(p["padding"]):
        x = _padded(low, x, axis, before, after, low.number(beyond, x))
    window = zip(p["window_dimensions"], p["window_strides"], p["window_dilation"], strict=True)
    parts = _windows(low, x, range(len(x.shape)), list(window))
    return cast(Value, list(itertools.accumulate(parts, partial(low.elementwise, op)))[-1])


def _call(key: str, low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    return low.call(equation.params[key], values)


def _while(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    """Writes out the most rounds that are possible; after its end a loop keeps its values."""
    p = equation.params
    conditions, bodies = p["cond_nconsts"], p["body_nconsts"]
    known, rest = values[:conditions], values[conditions:]
    own, now = rest[:bodies], rest[bodies:]
    result, running = now, cast(Value, low.constant(np.array(True)))
    for _ in range(MOST_ROUNDS):
        (more,) = low.call(p["cond_jaxpr"], [*known, *now])
        running = low.elementwise("logical_and", running, more)
        if isinstance(running, Const) and not running.array:
            return result
        now = low.call(p["body_jaxpr"], [*own, *now])
        result = [low.where(running, a, b) for a, b in zip(now, result, strict=True)]
    raise UserError(
        f"cannot export: a loop's length is not known in advance, or is more than {MOST_ROUNDS} "
        "rounds"
    )


def _scan(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    p = equation.params
    length, (constants, carried) = p["length"], scan_parts(equation)
    if length > MOST_ROUNDS:
        raise UserError(f"cannot export: a scan has {length} steps, more than {MOST_ROUNDS}")
    known, rest = values[:constants], values[constants:]
    carry, xs = rest[:carried], rest[carried:]
    rows: list[list[Value]] = []
    order = range(length - 1, -1, -1) if p["reverse"] else range(length)
    for i in order:
        row = [low.reshape(low.slice(x, 0, i, i + 1), x.shape[1:]) for x in xs]
        results = low.call(p["jaxpr"], [*known, *carry, *row])
        carry = results[:carried]
        rows.append(results[carried:])
    rows = rows[::-1] if p["reverse"] else rows
    stacked = []
    for column, variable in enumerate(equation.outvars[carried:]):
        shape = variable.aval.shape
        if not rows:
            stacked.append(low.constant(np.zeros(shape, variable.aval.dtype)))
            continue
        parts = [low.whole(row[column], shape[1:]) for row in rows]
        parts = [low.reshape(part, (1, *shape[1:])) for part in parts]
        stacked.append(low.concatenate(parts, 0))
    return [*carry, *stacked]


def _cond(low: "Lowering", equation: Any, values: list[Value]) -> list[Value]:
    """The branch that is taken if it is known in advance, else all of them and a selection."""
    which, *operands = values
    branches = equation.params["branches"]
    if isinstance(which, Const):
        return low.call(branches[min(max(int(which.array), 0), len(branches) - 1)], operands)
    which = low.emit("cast", which, dtype="int32")
    results = [low.call(branch, operands) for branch in branches]
    return [_choose(low, which, cases) for cases in zip(*results, strict=True)]


def _platform(low: "Lowering", equation: Any, values: list[Value]) -> Value:
    """The branch for any platform, or else that for CPUs."""
    platforms = list(equation.params["platforms"])
    fitting = [i for i, names in enumerate(platforms) if names is None or "cpu" in names]
    return low.constant(np.array(fitting[0] if fitting else len(platforms) - 1, np.int32))


def _whole(low: "Lowering", equation: Any, values: Sequence[Value]) -> list[Value]:
    """The operands with all repetitions written out."""
    pairs = zip(values, equation.invars, strict=False)
    return [low.whole(value, variable.aval.shape) for value, variable in pairs]


_SAME = (
    *("neg:negative", "abs:absolute", "sign", "sqrt", "exp", "log", "log1p", "expm1", "erf"),
    *("sin", "cos", "tan", "tanh", "asin:arcsin", "acos:arccos", "atan:arctan"),
    *("logistic:sigmoid", "floor", "ceil", "is_finite:isfinite"),
    *("add", "add_any:add", "sub:subtract", "mul:multiply"),
    *("max:maximum", "min:minimum", "eq:equal", "ne:not_equal", "lt:less", "gt:greater"),
    *("le:less_equal", "ge:greater_equal"),
)
"""Primitives that are one operation; "primitive:operation" if the names differ."""
_CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat2", "checkpoint", "composite"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "eval_jaxpr"), "call_jaxpr"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vmap_call": "call",
}
"""Primitives that call a jaxpr, and its parameter in each."""
_IDENTITIES = ("copy", "copy_p", "stop_gradient", "optimization_barrier")

Rule = Callable[["Lowering", Any, list[Value]], Any]
RULES: dict[str, Rule] = {
    **{pair.partition(":")[0]: partial(_elementwise, pair.rpartition(":")[2]) for pair in _SAME},
    **{name: partial(_call, key) for name, key in _CALLS.items()},
    **dict.fromkeys(_IDENTITIES, lambda _, e, x: x if e.primitive.multiple_results else x[0]),
    "and": partial(_logical, "logical_and"),
    "or": partial(_logical, "logical_or"),
    "not": partial(_logical, "logical_not"),
    "xor": partial(_logical, "not_equal"),
    "div": partial(_divided, "divide"),
    "rem": partial(_divided, "fmod"),
    "complex": lambda low, _, x: pair(low, *x),
    "real": partial(_part, False),
    "imag": partial(_part, True),
    "conj": _conjugate,
    "pow": _power,
    "integer_pow": _integer_power,
    "round": _round,
    "square": lambda low, _, x: low.elementwise("multiply", *x, *x),
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "log2": _log2,
    "rsqrt": lambda low, _, x: low.elementwise("divide", low.number(1, x[0]), low.emit("sqrt", *x)),
    "exp2": lambda low, _, x: low.elementwise("power", low.number(2, x[0]), *x),
    "erfc": lambda low, _, x: low.elementwise("subtract", low.number(1, x[0]), low.emit("erf", *x)),
    "sinh": partial(_hyperbolic, "subtract"),
    "cosh": partial(_hyperbolic, "add"),
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _cast,
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": lambda low, e, x: low.transpose(x[0], e.params["permutation"]),
    "concatenate": lambda low, e, x: low.concatenate(_whole(low, e, x), e.params["dimension"]),
    "stack": _stack,
    "unstack": _unstack,
    "tile": _tile,
    "slice": _slice,
    "split": _split,
    "rev": _reverse,
    "pad": _pad,
    "reduce_sum": partial(_reduce, "sum"),
    "reduce_prod": partial(_reduce, "product"),
    "reduce_max": partial(_reduce, "largest"),
    "reduce_min": partial(_reduce, "smallest"),
    "reduce_or": partial(_any_or_all, "largest"),
    "reduce_and": partial(_any_or_all, "smallest"),
    "argmax": partial(_argmax, "+"),
    "argmin": partial(_argmax, "-"),
    "cumsum": partial(_cumulative, "add"),
    "cumprod": partial(_cumulative, "multiply"),
    "cummax": partial(_cumulative, "maximum"),
    "cummin": partial(_cumulative, "minimum"),
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "scatter": partial(_scatter, "set"),
    "scatter-add": partial(_scatter, "add"),
    "scatter-sub": partial(_scatter, "subtract"),
    "scatter-mul": partial(_scatter, "multiply"),
    "scatter-max": partial(_scatter, "maximum"),
    "scatter-min": partial(_scatter, "minimum"),
    "conv_general_dilated": _convolution,
    "reduce_window_max": partial(_pool, "maximum"),
    "reduce_window_min": partial(_pool, "minimum"),
    "reduce_window_sum": partial(_pool, "add"),
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "platform_index": _platform,
}
"""A rule for each primitive, by its name."""
