"""Products with weights, laid out so that their gradients are cheapest."""

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from clew.errors import UserError
from clew.memory.parts.placement import placed

_product_p = Primitive("product")


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
