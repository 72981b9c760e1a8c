"""Convolutions equal XLA's own, with gradients, under vmap, and within loops."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.encoders import convolution
from clew.agents.encoders.convolution import LAYOUT, convolve, max_pool

SHAPES = {
    "padded 3 x 3": ((6, 5), 3, 1, ((1, 1), (1, 1))),
    "stride with a rest": ((9, 11), 4, 2, ((0, 0), (0, 0))),
    "uneven padding": ((8, 7), 3, 2, ((0, 1), (1, 1))),
}
Loss = Callable[[Any, Any], Any]


def reference(x: Any, kernel: Any, stride: int, padding: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=LAYOUT
    )


def whole(loss: Loss) -> Loss:
    return lambda x, kernel: loss(x[0], kernel[0])


def seeds(loss: Loss) -> Loss:
    return lambda x, kernel: jnp.sum(jax.vmap(loss)(x, kernel))


def environments(loss: Loss) -> Loss:
    return lambda x, kernel: jnp.sum(jax.vmap(loss, in_axes=(1, None))(x, kernel[0]))


def both(loss: Loss) -> Loss:
    each = jax.vmap(loss, in_axes=(0, None))
    return seeds(lambda x, kernel: jnp.sum(each(x[:, None], kernel)))


def kernels(loss: Loss) -> Loss:
    return lambda x, kernel: jnp.sum(jax.vmap(loss, in_axes=(None, 0))(x[0], kernel))


def loop(loss: Loss) -> Loss:
    """Twice the loss of the first element, by a scan that XLA does not unroll."""

    def twice(x: Any, kernel: Any) -> Any:
        def one(total: Any, _: None) -> tuple[Any, None]:
            return total + loss(x[0], kernel[0]), None

        return jax.lax.scan(one, jnp.zeros(()), None, length=2)[0]

    return twice


CASES = [(whole, shape) for shape in SHAPES]
CASES += [(wrap, "stride with a rest") for wrap in (seeds, environments, both, kernels, loop)]


@pytest.mark.parametrize(("wrap", "shape"), CASES)
def test_convolutions_equal_those_of_xla(wrap: Callable[[Loss], Loss], shape: str) -> None:
    """Values and both gradients are equal, under any vmap or loop."""
    (height, width), size, stride, padding = SHAPES[shape]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, height, width, 2)).astype(np.float32)
    kernel = rng.normal(size=(2, size, size, 2, 4)).astype(np.float32)

    def result(product: Any) -> Any:
        def loss(x: Any, kernel: Any) -> Any:
            return jnp.sum(jnp.sin(product(x, kernel, stride, padding)))

        return jax.jit(jax.value_and_grad(wrap(loss), (0, 1)))(x, kernel)

    found, expected = result(convolve), result(reference)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_a_large_batch_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven pictures in parts of two, the last padded with zeros, give the same result."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(7, 5, 4, 2)).astype(np.float32)
    kernel = rng.normal(size=(3, 3, 2, 3)).astype(np.float32)

    def slope(product: Any) -> Any:
        def loss(kernel: Any) -> Any:
            return jnp.sum(jnp.sin(product(x, kernel, 1, ((1, 1), (1, 1)))))

        return jax.jit(jax.grad(loss))(kernel)

    monkeypatch.setattr(convolution, "CACHED", 120)
    np.testing.assert_allclose(slope(convolve), slope(reference), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sides", [(8, 6), (7, 9), (1, 2), (2, 1)])
def test_the_pool_is_that_of_xla(sides: tuple[int, int]) -> None:
    """Values, and gradients where no two are equal, are those of XLA's window with SAME padding."""
    x = np.random.default_rng(1).normal(size=(2, *sides, 3)).astype(np.float32)

    def window(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    def result(pool: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda x: jnp.sum(jnp.sin(pool(x)))))(x)

    np.testing.assert_array_equal(jax.jit(max_pool)(x), jax.jit(window)(x))
    np.testing.assert_allclose(result(max_pool)[1], result(window)[1], rtol=1e-5, atol=1e-6)


def test_equal_maxima_share_the_gradient() -> None:
    """In a uniform picture every window's gradient arrives in full."""
    slope = jax.grad(lambda x: jnp.sum(max_pool(x)))(jnp.ones((1, 4, 4, 1)))
    assert jnp.sum(slope) == 4.0 and (slope >= 0.0).all()
