"""Costs equal counts made by hand, for every construct that a memory may contain."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from clew.lab.costs import multiply_adds, parameters, state_size
from clew.memory import make_memory
from clew.memory.base import AbstractMemory, scan_steps
from memory_samples import SMALL, every_memory
from own_lru import LRU


class Toy(AbstractMemory):
    """A memory with 2 inputs and 3 outputs whose step adds `extra` to one product."""

    weight: jax.Array
    extra: Any = eqx.field(static=True)
    input_size: int
    output_size: int

    def __init__(self, weight: jax.Array, extra: Any) -> None:
        self.weight, self.extra = weight, extra
        self.input_size, self.output_size = 2, 3

    def init_state(self) -> Any:
        return jnp.zeros(3), jnp.int32(0), jnp.array(False)

    def step(self, state: Any, x: Any, start: Any) -> Any:
        hidden, count, flag = state
        y = self.extra(self.weight, hidden + x @ self.weight, start)
        return (y, count + 1, flag), y

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        return scan_steps(self, state, xs, starts)


@jax.custom_vjp
def cubed(y: jax.Array) -> jax.Array:
    return y**3


cubed.defvjp(lambda y: (y**3, y), lambda y, g: (3 * y * y * g,))


def scanned(w: Any, y: Any, s: Any) -> Any:
    # The second carry is constant on the first iteration and varies from the second on.
    def body(carry: Any, _: Any) -> Any:
        a, b = carry
        return (a * a, b * b + a), None

    return jax.lax.scan(body, (y, jnp.ones(3)), None, length=7)[0][1]


def looped(w: Any, y: Any, s: Any) -> Any:
    return jax.lax.while_loop(lambda a: a[0] < 9, lambda a: a * 2.0 + 1.0, y)


CASES = {  # the elementwise and shared operations besides the product of 6
    "nothing": (lambda w, y, s: y, 0, 0),
    "add, divide, exp, compare": (lambda w, y, s: jnp.exp(y + 1) / jnp.where(y > 0, y, 2.0), 0, 0),
    "mul": (lambda w, y, s: y * y, 3, 0),
    "square and power": (lambda w, y, s: jnp.square(y) + y**4, 3 + 9, 0),
    "integers": (lambda w, y, s: y + (jnp.arange(3) * 2).astype(y.dtype), 0, 0),
    "parameters alone": (lambda w, y, s: y + (w.T @ w)[0] + (w * w).sum(), 0, 18 + 6),
    "jit": (lambda w, y, s: jax.jit(lambda a: a * a)(y), 3, 0),
    "remat": (lambda w, y, s: jax.checkpoint(lambda a: a * a)(y), 3, 0),
    "custom derivative": (lambda w, y, s: cubed(jax.nn.relu(y)), 6, 0),
    "cond": (lambda w, y, s: jax.lax.cond(s, lambda a: a * a * a, lambda a: a * a, y), 6, 0),
    "scan": (scanned, 7 * 6, 0),
    "while": (looped, 3, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_multiply_adds_by_hand(name: str) -> None:
    extra, elementwise, shared = CASES[name]
    count = multiply_adds(Toy(jnp.ones((2, 3)), extra))
    assert (count.products, count.elementwise, count.shared) == (6, elementwise, shared)
    assert count.per_step == 6 + elementwise and count.uncounted == ()


def test_convolution() -> None:
    def conv(w: Any, y: Any, s: Any) -> Any:
        image = jnp.ones((1, 2, 5, 5)) * y[0]
        kernel = jnp.ones((4, 2, 3, 3))
        return y + jax.lax.conv(image, kernel, (1, 1), "VALID").sum()

    count = multiply_adds(Toy(jnp.ones((2, 3)), conv))
    assert count.products == 6 + 4 * 3 * 3 * (2 * 3 * 3)
    assert count.elementwise == 50


def test_hidden_work_is_named() -> None:
    def call(w: Any, y: Any, s: Any) -> Any:
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((3,), jnp.float32), y)

    assert multiply_adds(Toy(jnp.ones((2, 3)), call)).uncounted == ("pure_callback",)


def test_sizes() -> None:
    toy = Toy(jnp.ones((2, 3)), CASES["nothing"][0])
    assert parameters(toy) == 6
    assert state_size(toy) == (3, 2, 3 * 4 + 4 + 1)


def test_a_complex_number_is_two_and_a_product_of_two_is_four(ordinary_promotion: None) -> None:
    """As in the LRU, whose B and C are complex; real factors are made complex first."""
    n, h = 3, 8
    lru = LRU(n, key=jax.random.key(0), hidden_size=h)
    assert parameters(lru) == 3 * h + 2 * 2 * n * h + n
    assert state_size(lru) == (2 * h, 0, 8 * h)
    count = multiply_adds(lru)
    assert count.products == 4 * 2 * n * h
    assert count.elementwise == 4 * 2 * h + n  # lambda h, gamma (B x) and D x


def test_lstm_by_formula() -> None:
    n, h = 16, 600
    lstm = make_memory("lstm", input_size=n, key=jax.random.key(0), hidden_size=h)
    assert parameters(lstm) == 4 * (n * h + h * h + h) == 1_480_800
    assert state_size(lstm).floats == 2 * h
    count = multiply_adds(lstm)
    assert count.products == 4 * (n * h + h * h)
    assert count.elementwise == 3 * h  # f * c, i * g and o * tanh(c)
    assert count.shared == 0


@pytest.mark.parametrize("name", every_memory())
def test_abstract_models_cost_the_same(name: str) -> None:
    def make(key: jax.Array) -> AbstractMemory:
        return make_memory(name, input_size=5, key=key, **SMALL[name])

    concrete = make(jax.random.key(0))
    abstract = eqx.filter_eval_shape(make, jax.random.key(0))
    assert parameters(abstract) == parameters(concrete)
    assert state_size(abstract) == state_size(concrete)
    assert multiply_adds(abstract) == multiply_adds(concrete)
