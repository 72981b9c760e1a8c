"""Products with weights, and vectors repeated over time, whose gradients are cheap."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from clew.errors import UserError
from clew.memory.parts.placement import placed

_product_p = Primitive("product")
_like_p = Primitive("like")
_repeat_p = Primitive("repeat")


def product(x: Float[Array, "*lead in"], weight: Float[Array, "in out"]) -> Array:
    """x W over the last axis, [..., out]; the same numbers as `x @ weight`.

    In JAX a product whose batch comes from `vmap` has several leading axes, and the gradient of W
    is a sum over all of them. XLA first transposes the larger operand of such a sum, number by
    number, which on a CPU took a third of a learning pass. This is a primitive that avoids it:
    batch axes stand in front, and the gradient of W is x^T y with all leading axes merged, which
    needs no copy. `docs/kernels.md` has figures.

    All transformations of JAX work on it, in every order.

    Raises:
        UserError: for an x of another width, before anything is compiled.
    """
    if jnp.shape(x)[-1:] != weight.shape[:1]:
        raise UserError(
            f"a product with a weight of shape {list(weight.shape)} expected [..., "
            f"{weight.shape[0]}], got {list(jnp.shape(x))}"
        )
    if jnp.result_type(x) != jnp.result_type(weight) or placed((x, weight)):
        return x @ weight
    return _product_p.bind(x, weight)


def like(vector: Float[Array, " n"], x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
    """A parameter vector repeated over the leading axes of `x`: explicit broadcasting.

    Its gradient is a sum over these axes, and over the batch that `vmap` adds. XLA fuses such a sum
    with everything that makes its terms, and computes them once more, column by column, which on a
    CPU took up to a quarter of a learning pass. Here it is a product with a row of ones, for which
    the terms are computed once, row by row. These are primitives, since only a primitive knows of a
    batch that x has and the vector has not.
    """
    lead = jnp.shape(x)[:-1]
    if math.prod(lead) == 1 or placed((vector, x)):
        return jnp.broadcast_to(vector, jnp.shape(x))
    return _like_p.bind(vector, x)


def exact_einsum(axes: str, a: Array, b: Array) -> Array:
    """`jnp.einsum` at full precision, for a state that sums thousands of steps.

    By default a GPU rounds the factors to TF32's eleven bits.
    """
    return jnp.einsum(axes, a, b, precision=jax.lax.Precision.HIGHEST)


def _compute(x: Array, weight: Array) -> Array:
    return (_rows(x) @ weight).reshape(*x.shape[:-1], weight.shape[1])


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _batch(
    arguments: tuple[Array, Array], axes: tuple[int | None, int | None]
) -> tuple[Array, int]:
    (x, weight), (x_axis, weight_axis) = arguments, axes
    if x_axis is not None:
        x = jnp.moveaxis(x, x_axis, 0)
    if weight_axis is None:
        return product(x, weight), 0
    # Separate weights for each batch member, as in a search or with several seeds at once.
    weight = jnp.moveaxis(weight, weight_axis, 0)
    return jax.vmap(_compute, in_axes=(None if x_axis is None else 0, 0))(x, weight), 0


_product_p.def_impl(jax.jit(_compute))
_product_p.def_abstract_eval(
    lambda x, weight: ShapedArray((*x.shape[:-1], weight.shape[1]), x.dtype)
)
mlir.register_lowering(_product_p, mlir.lower_fun(_compute, multiple_results=False))
batching.primitive_batchers[_product_p] = _batch
ad.defbilinear(
    _product_p,
    lambda gradient, _, weight: product(gradient, weight.T),
    lambda gradient, x, _: _rows(x).T @ _rows(gradient),
)


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
