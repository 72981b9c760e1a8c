"""Products with weights equal JAX's own, under its transformations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.lab.costs.count import walk
from clew.memory.parts.products import product

RANDOM = np.random.default_rng(0)
WEIGHT = jnp.asarray(RANDOM.standard_normal((4, 3)), jnp.float32)
WEIGHTS = jnp.asarray(RANDOM.standard_normal((6, 4, 3)), jnp.float32)
BATCH = jnp.asarray(RANDOM.standard_normal((5, 6, 2, 4)), jnp.float32)

Product = Callable[[Any, Any], Any]


def plain(x: Any, weight: Any) -> Any:
    """The product that it must equal."""
    return x @ weight


def close(actual: Any, expected: Any) -> None:
    """Compares leaf by leaf, within rounding."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (7,), (2, 3)], ids=str)
def test_any_leading_axes(lead: tuple[int, ...]) -> None:
    """Values, gradients and both second derivatives."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal((*lead, 4)), jnp.float32)

    def total(multiply: Product) -> Callable[[Any, Any], Any]:
        return lambda x, weight: jnp.sum(jnp.sin(multiply(x, weight)))

    close(product(x, WEIGHT), x @ WEIGHT)
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        found, expected = (jax.jit(derivative(total(p), (0, 1))) for p in (product, plain))
        close(found(x, WEIGHT), expected(x, WEIGHT))


@pytest.mark.parametrize("axes", [(0, None), (1, None), (2, None), (1, 0), (None, 0)], ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["grad of vmap", "vmap of grad"])
def test_batches(axes: tuple[int | None, int | None], inside: bool) -> None:
    """Batches of inputs, of weights and of both, in either order with a gradient."""
    weight = WEIGHT if axes[1] is None else WEIGHTS

    def gradient(multiply: Product) -> Any:
        def total(x: Any, weight: Any) -> Any:
            return jnp.sum(jnp.sin(multiply(x, weight)))

        def batched(x: Any, weight: Any) -> Any:
            return jnp.sum(jnp.sin(jax.vmap(multiply, axes, 0)(x, weight)))

        if inside:
            return jax.jit(jax.vmap(jax.grad(total, (0, 1)), axes, 0))(BATCH, weight)
        return jax.jit(jax.grad(batched, (0, 1)))(BATCH, weight)

    close(gradient(product), gradient(plain))


def test_searches_over_batches() -> None:
    """Batched weights around a batch of environments, as in a search or with many seeds."""

    def gradients(multiply: Product) -> Any:
        def total(weight: Any, xs: Any) -> Any:
            return jnp.sum(jnp.sin(jax.vmap(multiply, (1, None), 1)(xs, weight)))

        return jax.vmap(jax.grad(total), (0, 1))(WEIGHTS, BATCH)

    close(gradients(product), gradients(plain))


def test_other_precisions_are_promoted_as_ever() -> None:
    """Bfloat16 with float32 gives JAX's type."""
    with jax.numpy_dtype_promotion("standard"):
        found = product(jnp.ones(4, jnp.bfloat16), WEIGHT)
    assert found.dtype == jnp.float32


def test_no_operand_is_copied_for_a_gradient() -> None:
    """XLA's program for the gradient of W has no transpose or copy of an operand."""

    def total(weight: Any, xs: Any, multiply: Product) -> Any:
        return jnp.sum(jnp.sin(jax.vmap(multiply, (0, None))(xs, weight)))

    def copies(multiply: Product) -> int:
        xs = jnp.ones((8, 16, 4))
        program = jax.jit(lambda w: jax.grad(total)(w, xs, multiply)).lower(WEIGHT).compile()
        return program.as_text().count(" transpose(")

    assert copies(product) == 0


def test_it_is_counted() -> None:
    """It has as many multiply-adds as JAX's own product."""

    def counted(multiply: Product) -> int:
        return walk(jax.make_jaxpr(multiply)(BATCH, WEIGHT).jaxpr, [True, False]).products

    assert counted(product) == counted(plain) == BATCH.size * 3


def test_another_width_is_refused_before_anything_is_compiled() -> None:
    with pytest.raises(UserError, match=r"shape \[4, 3\] expected \[..., 4\], got \[2, 5\]"):
        jax.eval_shape(product, jnp.zeros((2, 5)), WEIGHT)
