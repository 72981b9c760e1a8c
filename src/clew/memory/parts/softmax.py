"""The softmax, with derivatives that stay accurate where one score is far above the others."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def softmax(scores: Float[Array, "*shape n"]) -> Float[Array, "*shape n"]:
    """p_i = exp(s_i) / sum_j exp(s_j) over the last axis; 0 where a score is -inf.

    Its derivative is p_i (d_i - sum_j p_j d_j); subtracting a constant from all d does not change
    it. Here that constant is the d of the largest p. With the d themselves, as in other libraries,
    the derivative where p_i is nearly 1 is the rounding error of two equal numbers.
    """
    return jax.nn.softmax(scores, axis=-1)


@softmax.defjvp
def _tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (change,), weights = tangents, softmax(*primals)
    first = jnp.argmax(weights, axis=-1, keepdims=True)
    largest = jax.lax.broadcasted_iota(first.dtype, weights.shape, weights.ndim - 1) == first
    there = jnp.sum(jnp.where(largest, change, 0), axis=-1, keepdims=True)
    # 0 there instead of a difference, which need not be 0 if a compiler computes it twice
    change = weights * jnp.where(largest, 0, change - there)
    return weights, change - weights * jnp.sum(change, axis=-1, keepdims=True)
