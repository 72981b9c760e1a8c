"""Initial parameters: the draws of all weights, and constants.

Draws are slow to compile: the random numbers of every shape are a separate program, and so is every
QR factorisation. Outside compiled functions the numbers therefore come from a few programs that
serve all shapes, and the factorisation from SciPy's LAPACK, whose routines XLA calls too. The
values are bit for bit those of `jax.nn.initializers`, which is used within compiled functions.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.linalg import get_lapack_funcs

Shape = tuple[int, ...]

_FEWEST, _GROWTH = 2**16, 16
"""How many numbers the smallest program draws, and the factor to the next one."""


def beside(key: PRNGKeyArray, number: int = 0) -> PRNGKeyArray:
    """A key that differs from all keys of `jax.random.split(key, n)`.

    `jax.random.fold_in(key, i)` does not: it is the i-th of them, so both give the same draws.
    """
    return jax.random.fold_in(key, 2**31 + number)


def weight(
    init: str, key: PRNGKeyArray, shape: Shape, *, bound: float, gain: float = math.sqrt(2.0)
) -> Array:
    """Draws a weight by the name of its distribution; the last axis is the output's.

    `bound` applies to uniform weights, `gain` to orthogonal ones.
    """
    if init == "orthogonal":
        return orthogonal(key, shape, gain)
    return lecun(key, shape) if init == "lecun" else uniform(key, shape, bound)


def bias(init: str, key: PRNGKeyArray, size: int, *, bound: float) -> Float[Array, " size"]:
    """The bias for a `weight` of the same key: zero, or uniform as the weight is."""
    if init != "uniform":
        return constant(size)
    return uniform(jax.random.fold_in(key, 1), (size,), bound)


def orthogonal(key: PRNGKeyArray, shape: Shape, gain: float = math.sqrt(2.0)) -> Array:
    """Orthonormal rows or columns, whichever are fewer, times a gain.

    Args:
        shape: of the weight; the matrix is [product of the other axes, last axis].
        gain: standard deviation of an entry times the square root of the longer side.

    Source: Saxe et al. (2014); the uniform distribution by QR from Mezzadri (2007).
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    drawn = _draw(_normal, key, (max(rows, columns), min(rows, columns)))
    if isinstance(drawn, Tracer):
        return jax.nn.initializers.orthogonal(gain)(key, shape, jnp.float32)
    matrix = _orthonormal_columns(np.asarray(drawn))
    matrix = matrix.T if rows < columns else matrix
    return _put(np.float32(gain) * matrix.reshape(shape))


def lecun(key: PRNGKeyArray, shape: Shape) -> Array:
    """A truncated normal of variance 1 / (product of all axes but the last)."""
    return jax.nn.initializers.lecun_normal()(key, shape, jnp.float32)


def uniform(key: PRNGKeyArray, shape: Shape, bound: float) -> Array:
    """Uniform from -bound to bound."""
    return _put(
        _draw(lambda k, s: jax.random.uniform(k, s, jnp.float32, -bound, bound), key, shape)
    )


def lasting(key: PRNGKeyArray, size: int, longest: int) -> Float[Array, " size"]:
    """Biases of forgetting gates s = sigmoid(x W + b), so that memories last up to `longest` steps.

    b = -log(u - 1) with u uniform from 2 to longest: where x W is 0, s = 1 / u, and (1 - s)^t falls
    to 1 / e in about u steps.

    Source: Tallec and Ollivier (2018), "Can recurrent neural networks warp time?", section 2.
    """
    span = (longest - 2) / 2
    return -jnp.log1p(span + uniform(key, (size,), span))


def time_steps(key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
    """Biases b for which dt = softplus(b) is log-uniform from 0.001 to 0.1.

    Source: Gu and Dao (2023), Mamba, section 3.6.
    """
    dt = 10.0 ** uniform(key, (size,), 1.0) * 0.01
    return jnp.log(jnp.expm1(dt))


def log_rates(key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
    """The logarithms of A, uniform from 1 to 16, as the code of Mamba-2 draws them."""
    return jnp.log(8.5 + uniform(key, (size,), 7.5))


def normal(key: PRNGKeyArray, shape: Shape) -> Array:
    """Standard normal."""
    return _put(_draw(_normal, key, shape))


def constant(shape: int | Shape, value: float = 0.0) -> Array:
    """The same number everywhere; nothing is compiled."""
    return _put(np.full(shape, value, np.float32))


def _put(numbers: Array | np.ndarray) -> Array:
    """The numbers as JAX's own. `jnp.array` would compile a program for every shape."""
    return numbers if isinstance(numbers, Array) else jax.device_put(numbers, may_alias=False)


def _normal(key: PRNGKeyArray, shape: Shape) -> Array:
    return jax.random.normal(key, shape, jnp.float32)


def _draw(
    draw: Callable[[PRNGKeyArray, Shape], Array], key: PRNGKeyArray, shape: Shape
) -> Array | Float[np.ndarray, "..."]:
    """`draw(key, shape)`, as the first of more numbers, so that other shapes share the program.

    The n-th number of a Threefry key depends on n alone, unless JAX is set to its former way of
    drawing.
    """
    counted = jax.config.values["jax_threefry_partitionable"]
    threefry = jax.random.key_impl(key) == "threefry2x32"
    if isinstance(key, Tracer) or not (counted and threefry):
        return draw(key, shape)
    count, most = math.prod(shape), _FEWEST
    while most < count:
        most *= _GROWTH
    drawn = draw(key, (most,))
    if isinstance(drawn, Tracer):  # a concrete key within a compiled function
        return draw(key, shape)
    return np.asarray(drawn)[:count].reshape(shape)


def _orthonormal_columns(matrix: np.ndarray) -> np.ndarray:
    """Q of QR = matrix, [m, n] with m >= n, where R's diagonal is positive."""
    size, factor, multiply = get_lapack_funcs(("geqrf_lwork", "geqrf", "orgqr"), (matrix,))
    room = int(size(*matrix.shape)[0])
    factored, scales, *_ = factor(matrix, lwork=room)
    return multiply(factored, scales, lwork=room)[0] * np.sign(np.diagonal(factored))
