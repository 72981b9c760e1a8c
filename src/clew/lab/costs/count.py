"""The costs of a memory: parameters, state and arithmetic, counted and not timed.

Everything here works on shapes alone: a model may be an abstract value from
`equinox.filter_eval_shape`, and nothing is computed or allocated.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from clew.jaxprs import scan_parts
from clew.memory.base import count_floats
from clew.memory.kernels import without_kernels


class StateSize(NamedTuple):
    """The size of the state that a memory carries, for one environment."""

    floats: int
    """floating-point numbers; a complex number counts as two"""
    integers: int
    """integers and booleans: counters, flags"""
    bytes: int
    """bytes of all of them as stored"""


class Arithmetic(NamedTuple):
    """Multiply-adds of one step, see `multiply_adds` for what is counted."""

    products: int
    """in matrix products that depend on the observation or the state"""
    elementwise: int
    """in elementwise multiplications that depend on the observation or the state"""
    shared: int
    """of either kind that depend only on parameters: computed once per batch of environments"""
    uncounted: tuple[str, ...]
    """primitives whose work is not visible, for example a compiled kernel; sorted"""

    @property
    def per_step(self) -> int:
        """Multiply-adds of every step of every environment."""
        return self.products + self.elementwise


def state_size(module: Any) -> StateSize:
    """The size of the state that `module.init_state()` returns, for one environment.

    Args:
        module: a memory, or an agent; anything with `init_state()`.
    """
    shapes = _state_shape(module)
    sizes = [(math.prod(leaf.shape), leaf) for leaf in jax.tree.leaves(shapes)]
    integers = sum(size for size, leaf in sizes if not is_float(leaf))
    stored = sum(size * leaf.dtype.itemsize for size, leaf in sizes)
    return StateSize(count_floats(shapes), integers, stored)


def multiply_adds(
    module: Any,
    input_size: int | None = None,
    length: int | None = None,
    observation: jax.ShapeDtypeStruct | None = None,
) -> Arithmetic:
    """Counts the multiply-adds of one `module.step`, for one environment, from its jaxpr.

    With `length`, those of one `module.unroll` over a whole chunk of that many observations.

    Counted are: for matrix products and convolutions one for every product of two elements; for
    `mul` and `square` of floats one for every element of the result; for `integer_pow` with
    exponent y, |y| - 1 for every element; four times as many if the result is complex. A `scan`
    counts its body times its length, a `cond` its most expensive branch, and a `while`, whose
    number of iterations is not in the jaxpr, one iteration: so a model with a dynamic loop has a
    lower bound. Functions with a custom derivative count as their forward pass. Not counted are
    additions, divisions, comparisons, reductions, exponentials and other functions, and all integer
    arithmetic. Work that depends only on the parameters, for example projected position codes, is
    reported as `shared`, because a batch of environments computes it once.

    One multiply-add is two floating-point operations.

    Args:
        module: a memory, or an agent; anything with `init_state()` and `step(state, x, start)`.
        input_size: length of the observation; by default `module.input_size`.
        length: of a chunk; by default one step is counted.
        observation: shape and dtype of an observation that is not a vector, such as a picture.
    """
    if observation is None:
        size = module.input_size if input_size is None else input_size
        observation = jax.ShapeDtypeStruct((size,), jnp.float32)
    weights, static = eqx.partition(module, _is_array)
    lead = () if length is None else (length,)
    x = jax.ShapeDtypeStruct((*lead, *observation.shape), observation.dtype)
    start = jax.ShapeDtypeStruct(lead, jnp.bool_)

    def run(weights: Any, *inputs: Any) -> Any:
        module = eqx.combine(weights, static)
        return eqx.filter((module.unroll if lead else module.step)(*inputs), _is_array)

    with without_kernels():  # a jaxpr does not show their insides; XLA computes the same
        closed = jax.make_jaxpr(run)(weights, _state_shape(module), x, start)
    known = len(jax.tree.leaves(weights))
    varying = [index >= known for index in range(len(closed.jaxpr.invars))]
    tally = walk(closed.jaxpr, varying)
    uncounted = tuple(sorted(tally.uncounted))
    return Arithmetic(tally.products, tally.elementwise, tally.shared, uncounted)


def _state_shape(module: Any) -> Any:
    return eqx.filter_eval_shape(lambda m: jax.tree.map(jnp.asarray, m.init_state()), module)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray)


class Tally:
    """Counts of a jaxpr, and which of its outputs vary with the observation or the state."""

    def __init__(self) -> None:
        self.products = self.elementwise = self.shared = 0
        self.uncounted: set[str] = set()
        self.varying: list[bool] = []

    @property
    def total(self) -> int:
        """Multiply-adds of every kind."""
        return self.products + self.elementwise + self.shared

    def add(self, other: "Tally", times: int = 1) -> None:
        """Adds another's counts, `times` over."""
        self.products += times * other.products
        self.elementwise += times * other.elementwise
        self.shared += times * other.shared
        self.uncounted |= other.uncounted


def walk(jaxpr: Any, varying: Sequence[bool]) -> Tally:
    """Counts every equation of an open jaxpr, of which some inputs vary; constants do not vary."""
    tally = Tally()
    varies: dict[Any, bool] = dict(zip(jaxpr.invars, varying, strict=True))

    def lookup(atom: Any) -> bool:
        return not isinstance(atom, Literal) and varies.get(atom, False)

    for equation in jaxpr.eqns:
        inputs = [lookup(atom) for atom in equation.invars]
        outputs = _count(equation, inputs, tally)
        varies.update(zip(equation.outvars, outputs, strict=True))
    tally.varying = [lookup(atom) for atom in jaxpr.outvars]
    return tally


def _count(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """Adds one equation to the tally; returns which of its outputs vary."""
    name = equation.primitive.name
    special = _CONTROL_FLOW.get(name)
    if special is not None:
        return special(equation, inputs, tally)
    body = _body(equation.params, len(inputs))
    if body is not None:
        inner = walk(body, inputs)
        tally.add(inner)
        return inner.varying
    if name in _OPAQUE:
        tally.uncounted.add(name)
    work, is_product = _work(equation)
    if not any(inputs):
        tally.shared += work
    elif is_product:
        tally.products += work
    else:
        tally.elementwise += work
    return [any(inputs)] * len(equation.outvars)


def _work(equation: Any) -> tuple[int, bool]:
    """Multiply-adds of one plain equation, and whether it is a matrix product."""
    times, is_product = _products(equation)
    out = equation.outvars[0].aval
    is_complex = times > 0 and jnp.issubdtype(out.dtype, jnp.complexfloating)
    return times * (4 if is_complex else 1), is_product


def _products(equation: Any) -> tuple[int, bool]:
    """The same with each product of two elements counted once, whatever its dtype."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return math.prod(out.shape) * math.prod(shape[axis] for axis in contracted), True
    if name == "product":
        return math.prod(out.shape) * equation.invars[1].aval.shape[0], True
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return math.prod(out.shape) * math.prod(kernel) // features, True
    if not is_float(out):
        return 0, False
    times = {"mul": 1, "square": 1}.get(name, 0)
    if name == "integer_pow":
        times = max(abs(equation.params["y"]) - 1, 0)
    return times * math.prod(out.shape), False


def _scan(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A scan: its body times its length; the carry varies once any iteration makes it vary."""
    settings = equation.params
    inner, outputs = _fixed_point(settings["jaxpr"].jaxpr, inputs, *scan_parts(equation))
    tally.add(inner, settings["length"])
    return outputs


def _while(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A while loop: one iteration, since their number is not in the jaxpr."""
    settings = equation.params
    of_condition, of_body = settings["cond_nconsts"], settings["body_nconsts"]
    start = of_condition + of_body
    body_inputs = inputs[of_condition:]
    body, carry = _fixed_point(
        settings["body_jaxpr"].jaxpr, body_inputs, of_body, len(inputs) - start
    )
    tally.add(body)
    condition = walk(settings["cond_jaxpr"].jaxpr, inputs[:of_condition] + carry)
    tally.add(condition)
    # The results of a loop whose end depends on data vary with that data.
    return [True] * len(carry) if any(condition.varying) else carry


def _fixed_point(
    jaxpr: Any, inputs: list[bool], constants: int, carried: int
) -> tuple[Tally, list[bool]]:
    """Walks a loop's body until the varying part of its carry no longer grows."""
    inputs = list(inputs)
    while True:
        tally = walk(jaxpr, inputs)
        carry = inputs[constants : constants + carried]
        grown = [a or b for a, b in zip(carry, tally.varying[:carried], strict=True)]
        if grown == carry:
            return tally, grown + tally.varying[carried:]
        inputs[constants : constants + carried] = grown


def _cond(equation: Any, inputs: list[bool], tally: Tally) -> list[bool]:
    """A conditional: its most expensive branch."""
    chosen, *operands = inputs
    branches = [walk(branch.jaxpr, operands) for branch in equation.params["branches"]]
    costliest = max(branches, key=lambda branch: branch.total)
    tally.add(costliest)
    for branch in branches:
        tally.uncounted |= branch.uncounted
    return [chosen or any(flags) for flags in zip(*(b.varying for b in branches), strict=True)]


def _body(settings: Mapping[str, Any], count: int) -> Any:
    """The jaxpr that an equation merely calls (jit, a custom derivative or vmap), or None."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        inner = settings.get(name)
        inner = getattr(inner, "jaxpr", inner)  # foreign: closed jaxprs of JAX
        if inner is not None and len(inner.invars) == count:
            return inner
    return None


def is_float(leaf: Any) -> bool:
    """Whether something is, or stands for, an array of floating-point numbers."""
    dtype = getattr(leaf, "dtype", None)  # foreign: arrays, their shapes, JAX's avals
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


_CONTROL_FLOW = {"scan": _scan, "while": _while, "cond": _cond}
_OPAQUE = {"ffi_call", "pallas_call", "pure_callback", "io_callback", "custom_call"}
