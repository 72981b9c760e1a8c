"""A vector repeated over time and batch, whose gradient is cheap."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from clew.memory.parts.placement import placed

_like_p = Primitive("like")
_repeat_p = Primitive("repeat")


def like(vector: Float[Array, " n"], x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
    """A parameter vector repeated over the leading axes of `x`: explicit broadcasting.

    Its gradient is a sum over these axes, and over the batch that `vmap` adds. XLA fuses such a sum
    with everything that makes its terms, and computes them once more, column by column, which on a
    CPU took up to a quarter of a learning pass. Here it is a product with a row of ones, for which
    the terms are computed once, row by row. Only a primitive knows of a batch that x has and
    the vector has not.
    """
    lead = jnp.shape(x)[:-1]
    if math.prod(lead) == 1 or placed((vector, x)):
        return jnp.broadcast_to(vector, jnp.shape(x))
    return _like_p.bind(vector, x)


def _repeat(vectors: Array, *, lead: tuple[int, ...]) -> Array:
    *batch, size = vectors.shape
    return jnp.broadcast_to(
        vectors.reshape(*batch, *(1 for _ in lead), size), (*batch, *lead, size)
    )


def _sum_repeats(gradient: Array, vectors: Any, *, lead: tuple[int, ...]) -> tuple[Array]:
    *batch, size = vectors.aval.shape
    rows = gradient.reshape(*batch, math.prod(lead), size)
    ones = jnp.ones((*batch, 1, rows.shape[-2]), rows.dtype)
    return (jnp.matmul(ones, rows, precision=jax.lax.Precision.HIGHEST)[..., 0, :],)


def _batch_repeat(
    vectors: tuple[Array], axes: tuple[int], *, lead: tuple[int, ...]
) -> tuple[Array, int]:
    return _repeat_p.bind(jnp.moveaxis(vectors[0], axes[0], 0), lead=lead), 0


def _batch_like(
    arguments: tuple[Array, Array], axes: tuple[int | None, int | None]
) -> tuple[Array, int]:
    (vector, x), (vector_axis, x_axis) = arguments, axes
    if x_axis is not None:
        x = jnp.moveaxis(x, x_axis, 0)
    if vector_axis is None:
        return _like_p.bind(vector, x), 0
    # Separate vectors for each batch member.
    lead = x.shape[:-1] if x_axis is None else x.shape[1:-1]
    return _batch_repeat((vector,), (vector_axis,), lead=lead)


def _like(vector: Array, x: Array) -> Array:
    return _repeat(vector, lead=x.shape[:-1])


_like_p.def_impl(jax.jit(_like))
_like_p.def_abstract_eval(lambda vector, x: ShapedArray(x.shape, vector.dtype))
mlir.register_lowering(_like_p, mlir.lower_fun(_like, multiple_results=False))
batching.primitive_batchers[_like_p] = _batch_like
# Of x only the shape matters: no gradient keeps its numbers.
ad.defjvp(_like_p, lambda change, _, x: _repeat_p.bind(change, lead=x.shape[:-1]), None)

_repeat_p.def_impl(jax.jit(_repeat, static_argnames="lead"))
_repeat_p.def_abstract_eval(
    lambda vectors, *, lead: ShapedArray(
        (*vectors.shape[:-1], *lead, *vectors.shape[-1:]), vectors.dtype
    )
)
mlir.register_lowering(_repeat_p, mlir.lower_fun(_repeat, multiple_results=False))
batching.primitive_batchers[_repeat_p] = _batch_repeat
ad.deflinear2(_repeat_p, _sum_repeats)
