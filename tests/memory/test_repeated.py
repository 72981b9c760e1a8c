"""Repeated vectors equal JAX's own broadcasting, under its transformations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.memory.parts.repeated import like

RANDOM = np.random.default_rng(0)
VECTOR = jnp.asarray(RANDOM.standard_normal(4), jnp.float32)
VECTORS = jnp.asarray(RANDOM.standard_normal((6, 4)), jnp.float32)
BATCH = jnp.asarray(RANDOM.standard_normal((5, 6, 2, 4)), jnp.float32)

Like = Callable[[Any, Any], Any]


def broadcast(vector: Any, x: Any) -> Any:
    """The repeated vector that `like` must equal."""
    return jnp.broadcast_to(vector, x.shape)


def close(actual: Any, expected: Any) -> None:
    """Compares leaf by leaf, within rounding."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (1,), (0,), (7,), (2, 3)], ids=str)
def test_a_repeated_vector(lead: tuple[int, ...]) -> None:
    """Values, gradients, forward mode and second derivatives for any leading axes."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal((*lead, 4)), jnp.float32)

    def total(repeat: Like) -> Callable[[Any, Any], Any]:
        return lambda vector, x: jnp.sum(jnp.sin(repeat(vector, x) * x) + repeat(vector, x))

    np.testing.assert_array_equal(like(VECTOR, x), broadcast(VECTOR, x))
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        for arguments in ((0, 1), 0, 1):
            found, expected = (jax.jit(derivative(total(r), arguments)) for r in (like, broadcast))
            close(found(VECTOR, x), expected(VECTOR, x))


@pytest.mark.parametrize("axes", [(None, 0), (None, 1), (None, 2), (0, 1), (0, None)], ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["grad of vmap", "vmap of grad"])
def test_repeated_in_batches(axes: tuple[int | None, int | None], inside: bool) -> None:
    """Batches of inputs, of vectors and of both, in either order with a gradient."""
    vector = VECTOR if axes[0] is None else VECTORS

    def gradient(repeat: Like) -> Any:
        def each(vector: Any, x: Any) -> Any:
            return jnp.sum(jnp.sin(repeat(vector, x) + x))

        def total(vector: Any, x: Any) -> Any:
            return jnp.sum(jax.vmap(each, axes)(vector, x))

        if inside:
            return jax.jit(jax.vmap(jax.grad(each, (0, 1)), axes))(vector, BATCH)
        return jax.jit(jax.grad(total, (0, 1)))(vector, BATCH)

    close(gradient(like), gradient(broadcast))


def test_the_gradient_of_a_repeated_vector_is_a_product() -> None:
    """Also where `vmap` adds a batch; and nothing keeps x, of which only the shape matters."""

    def total(vector: Any, xs: Any) -> Any:
        return jnp.sum(jnp.sin(jax.vmap(like, (None, 0))(vector, xs)))

    traced = str(jax.make_jaxpr(jax.grad(total))(VECTOR, BATCH))
    assert traced.count("dot_general") == 1
    assert "reduce_sum" not in traced.split("dot_general")[1]
    _, pull = jax.vjp(lambda vector: like(vector, BATCH), VECTOR)
    assert all(leaf.size < BATCH.size for leaf in jax.tree.leaves(pull))
