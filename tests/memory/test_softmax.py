"""The softmax's derivatives, if one score is far above the others, equal double precision."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.memory.kernels import why_not
from clew.memory.parts.attention import WindowAttention
from clew.memory.parts.softmax import softmax

COTANGENT = np.array([1000.0, 1.0, -3.0])


def pulled(scores: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """The gradient of the softmax's outputs, weighted, for the scores."""
    pull = jax.jit(lambda scores, cotangent: jax.vjp(softmax, scores)[1](cotangent)[0])
    return np.asarray(pull(scores, cotangent))


def exact(scores: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """The same in NumPy and double precision, from the differences of cotangents."""
    p = np.exp(scores - scores.max())
    p /= p.sum()
    return p * ((cotangent[:, None] - cotangent) @ p)


@pytest.mark.parametrize("gap", [0.0, 5.0, 12.0, 16.0, 20.0, 40.0])
def test_a_score_far_above_the_others_has_a_gradient(gap: float) -> None:
    """Correct to a few bits of single precision; from a gap of 17 on JAX's own is all rounding."""
    scores = np.array([-gap, 0.0, -gap - 1])
    cotangent = COTANGENT[[1, 0, 2]]
    found = pulled(scores.astype(np.float32), cotangent.astype(np.float32))
    wanted = exact(scores, cotangent)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    forward = jax.jit(lambda scores, tangent: jax.jvp(softmax, (scores,), (tangent,))[1])(
        scores.astype(np.float32), cotangent.astype(np.float32)
    )  # its matrix is symmetric
    np.testing.assert_allclose(forward, found, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_equal_scores_and_hidden_ones() -> None:
    """Equal ones share the weight; a hidden one has no weight and no gradient."""
    scores, cotangent = np.array([2.0, 2.0, -np.inf], np.float32), COTANGENT.astype(np.float32)
    np.testing.assert_array_equal(softmax(jnp.asarray(scores)), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(pulled(scores, cotangent), [249.75, -249.75, 0.0], rtol=1e-6)


def test_the_second_derivative() -> None:
    """It equals JAX's own where that is accurate."""
    scores = jnp.array([0.3, -0.2, 0.7])

    def curvature(of: Any) -> jax.Array:
        return jax.jit(jax.hessian(lambda s: jnp.sum(of(s) * jnp.asarray(COTANGENT))))(scores)

    np.testing.assert_allclose(curvature(softmax), curvature(jax.nn.softmax), rtol=1e-4)


@pytest.mark.parametrize("backend", ["xla", "kernel"])
def test_attention_that_looks_at_one_step(backend: Any) -> None:
    """For two steps whose scores are 16 apart, the gradients of queries and keys are right."""
    if backend == "kernel" and why_not():
        pytest.skip(why_not() or "")
    sizes: dict[str, Any] = {"num_heads": 1, "head_size": 8, "window": 7, "norm": False}
    attention = WindowAttention(
        8, **sizes, key=jax.random.key(0), init="lecun", bias=False, relative=False, backend=backend
    )
    xs = np.random.default_rng(0).standard_normal((2, 8))
    key, query = xs @ np.asarray(attention.key.weight), xs @ np.asarray(attention.query.weight)
    gap = query[1] @ (key[0] - key[1]) / 8**0.5
    xs *= (16 / abs(gap)) ** 0.5

    def gradients(dtype: Any) -> list[np.ndarray]:
        params, static = eqx.partition(attention, eqx.is_inexact_array)
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)

        def total(params: Any, xs: Any) -> Any:
            whole = eqx.combine(params, static)
            return jnp.sum(whole.unroll(whole.init_state(), xs, jnp.zeros(2, bool))[1])

        found = jax.jit(jax.grad(total))(params, xs.astype(dtype))
        return [np.asarray(found.query.weight), np.asarray(found.key.weight)]

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        wanted = gradients(jnp.float64)
    for found, right in zip(gradients(jnp.float32), wanted, strict=True):
        np.testing.assert_allclose(found, right, atol=1e-4 * np.abs(right).max())
