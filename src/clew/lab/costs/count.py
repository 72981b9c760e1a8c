"""What a memory costs: parameters, state and arithmetic, counted and not timed.

Everything here works on shapes alone, so a model may be given as an abstract value of
`equinox.filter_eval_shape`, and nothing is computed or allocated.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.lab.costs.walk import is_float, walk
from clew.memory.kernels import without_kernels


class StateSize(NamedTuple):
    """Numbers that a memory carries from one observation to the next, for one environment."""

    floats: int
    """floating-point numbers"""
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
    """of either kind that depend on parameters alone: paid once per batch of environments"""
    uncounted: tuple[str, ...]
    """primitives whose work cannot be seen, for example a compiled kernel; sorted"""

    @property
    def per_step(self) -> int:
        """Multiply-adds that every environment pays at every step."""
        return self.products + self.elementwise


def parameters(module: Any) -> int:
    """Counts the trainable numbers of a module: the elements of its floating-point arrays."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(module) if is_float(leaf))


def state_size(module: Any) -> StateSize:
    """Measures the state that `module.init_state()` returns, for one environment.

    Args:
        module: a memory, or an agent; anything with `init_state()`.
    """
    leaves = jax.tree.leaves(_state_shape(module))
    sizes = [(math.prod(leaf.shape), leaf) for leaf in leaves]
    floats = sum(size for size, leaf in sizes if is_float(leaf))
    integers = sum(size for size, leaf in sizes if not is_float(leaf))
    return StateSize(floats, integers, sum(size * leaf.dtype.itemsize for size, leaf in sizes))


def multiply_adds(
    module: Any,
    input_size: int | None = None,
    length: int | None = None,
    observation: jax.ShapeDtypeStruct | None = None,
) -> Arithmetic:
    """Counts the multiply-adds of one `module.step`, for one environment, from its jaxpr.

    With `length` those of one `module.unroll` over so many observations, of the whole chunk.

    Counted: for matrix products and convolutions one for every product of two elements; for `mul`
    and `square` of floating-point numbers one for every element of the result; for
    `integer_pow` with exponent y, |y| - 1 for every element. A `scan` counts its body times its
    length; a `cond` its dearest branch; a `while`, whose number of trips no jaxpr knows, one
    trip: so a model with a dynamic loop has a lower bound. Functions with a custom derivative
    count as their forward pass. Not counted: additions, divisions, comparisons, reductions,
    exponentials and other functions, and all integer arithmetic. What depends on the parameters
    alone, for example projected position codes, is reported as `shared`, because a batch of
    environments computes it once.

    One multiply-add is two floating-point operations.

    Args:
        module: a memory, or an agent; anything with `init_state()` and `step(state, x, start)`.
        input_size: length of the observation; by default `module.input_size`.
        length: of a chunk; by default one step is counted.
        observation: shape and type of an observation that is no row of numbers, such as a picture.
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

    with without_kernels():  # whose insides no jaxpr shows; they compute the same
        closed = jax.make_jaxpr(run)(weights, _state_shape(module), x, start)
    known = len(jax.tree.leaves(weights))
    varying = [index >= known for index in range(len(closed.jaxpr.invars))]
    tally = walk(closed.jaxpr, varying)
    uncounted = tuple(sorted(tally.uncounted))
    return Arithmetic(tally.products, tally.elementwise, tally.shared, uncounted)


def _state_shape(module: Any) -> Any:
    return eqx.filter_eval_shape(lambda m: m.init_state(), module)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray)
