"""Products and states of the linear recurrences, by hand from their equations, equal the counter's.

For one step: n inputs, L layers of width d, feed-forward nets of f, H heads of size h, D = H h, and
other options of a memory. Elementwise operations are not written out here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import pytest

from clew.lab.costs import multiply_adds, state_size
from clew.memory import make_memory, options_among


class Sizes(NamedTuple):
    """The letters."""

    n: int
    d: int
    L: int
    f: int
    H: int
    h: int

    @property
    def D(self) -> int:
        """Width of all heads."""
        return self.H * self.h


class Cost(NamedTuple):
    """The cost of one layer, without its feed-forward net."""

    products: int
    floats: int


SIZES = (Sizes(5, 14, 3, 11, 2, 10), Sizes(3, 10, 1, 7, 3, 4))
CONV, RANK, KEY, STATE, PARTS = 4, 16, 16, 32, 2  # defaults of the options without a letter
RWKV_RANK = 32


def diagonal(into: int, out: int, floats: int) -> Callable[[Sizes], Cost]:
    """A diagonal state between d x d matrices, `into` of which come before it and `out` after."""
    return lambda s: Cost((into + out) * s.d * s.d, floats * s.d)


def _gla(s: Sizes) -> Cost:
    keys, low_rank = s.H * KEY, s.d * RANK + RANK * s.H * KEY  # q or k; x W_1 W_2
    return Cost(2 * s.d * keys + 3 * s.d * s.D + low_rank + s.D * KEY, s.D * KEY)


def _retention(s: Sizes) -> Cost:
    return Cost(5 * s.d * s.D + s.D * s.h, s.D * s.h)  # q, k, v, G, W_o; C q


def _mlstm(s: Sizes) -> Cost:
    reads = s.D * s.h + s.D  # C q; n' q
    floats = s.D * s.h + s.D + s.H + (CONV - 1) * s.d
    return Cost(5 * s.d * s.D + 2 * s.d * s.H + reads, floats)


def _mamba2(s: Sizes) -> Cost:
    floats = s.D * STATE + (CONV - 1) * (s.D + 2 * STATE)
    return Cost(3 * s.d * s.D + 2 * s.d * STATE + s.d * s.H + s.D * STATE, floats)


def _gated_delta_net(s: Sizes) -> Cost:
    reads = 2 * s.D * s.h  # C k, the old value of the key; C q
    return Cost(5 * s.d * s.D + 2 * s.d * s.H + reads, s.D * s.h + 3 * (CONV - 1) * s.D)


def _delta_product(s: Sizes) -> Cost:
    maps = (3 + 2 * PARTS) * s.d * s.D + (1 + PARTS) * s.d * s.H  # q, G, W_o, k^j, v^j; a, b^j
    reads = 2 * PARTS * s.D * s.h  # C k and C q of every part: the last C q alone is y
    return Cost(maps + reads, s.D * s.h + (1 + 2 * PARTS) * (CONV - 1) * s.D)


def _rwkv7(s: Sizes) -> Cost:
    low_rank = 4 * RWKV_RANK * (s.d + s.D)  # of w and a; the gate's is twice as wide
    return Cost(4 * s.d * s.D + low_rank + 2 * s.D * s.h, s.D * s.h + s.d)  # C e; C r


LAYERS: dict[str, Callable[[Sizes], Cost]] = {
    "min_gru": diagonal(2, 1, 1),  # z, h~; y
    "min_lstm": diagonal(3, 1, 1),  # f, i, h~; y
    "lru": diagonal(2, 4, 2),  # B as pairs; C, and both halves of the GLU
    "s5": diagonal(1, 2, 1),  # d / 2 complex numbers: B; C and half the GLU
    "rg_lru": diagonal(4, 1, CONV),  # u, v, r, i; y; the convolution sees CONV - 1 steps
    "gla": _gla,
    "retention": _retention,
    "mlstm": _mlstm,
    "mamba2": _mamba2,
    "gated_delta_net": _gated_delta_net,
    "delta_product": _delta_product,
    "rwkv7": _rwkv7,
}


@pytest.mark.parametrize("name", LAYERS)
def test_products_and_state_are_those_of_the_equations(name: str) -> None:
    for sizes in SIZES:
        given = {"hidden_size": sizes.d, "num_layers": sizes.L, "ffn_size": sizes.f}
        given |= {"num_heads": sizes.H, "head_size": sizes.h}
        options: dict[str, Any] = options_among(name, given)

        def make(key: jax.Array, n: int = sizes.n, options: dict[str, Any] = options) -> Any:
            return make_memory(name, input_size=n, key=key, **options)

        memory = eqx.filter_eval_shape(make, jax.random.key(0))
        layer = LAYERS[name](sizes)
        expected = sizes.n * sizes.d + sizes.L * (layer.products + 2 * sizes.d * sizes.f)
        assert multiply_adds(memory).products == expected, sizes
        assert state_size(memory).floats == sizes.L * layer.floats, sizes
