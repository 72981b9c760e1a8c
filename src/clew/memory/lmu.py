"""The Legendre memory unit."""

from functools import cache, partial
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from scipy.linalg import expm

from clew.errors import MOST_PARTS, require_at_least
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.cells import CellOptions, CellStack, StackedCell, make_cells
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.products import exact_einsum

LMUState = tuple[Float[Array, " size"], Float[Array, " order"]]
"""h and m."""


@cache
def legendre_delay(order: int, theta: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B of one step of the delay line, whose input is held constant during the step.

        theta dm/dt = A m + B u
        A_{ij} = -(2 i + 1)                        for i < j
        A_{ij} = (2 i + 1) (-1)^{i - j + 1}        for i >= j
        B_i = (2 i + 1) (-1)^i

    m holds the last theta steps of u: $u(t - s)$ is the sum of $m_i P_i(2 s / theta - 1)$ with the
    Legendre polynomials P. A step of this is the exponential of [A B; 0 0] / theta.

    Args:
        order: number of entries of m.
        theta: length of the window, in steps.
    """
    i, j = np.arange(order)[:, None], np.arange(order)[None, :]
    signs = np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    both = np.zeros((order + 1, order + 1))
    both[:order, :order] = (2 * i + 1) * signs
    both[:order, order:] = (2 * i + 1) * (-1.0) ** i
    stepped = expm(both / theta)
    return stepped[:order, :order], stepped[:order, order]


class LMUCell(StackedCell):
    """One layer of an `LMU`, see there."""

    e_x: Linear
    e_h: Linear
    e_m: Linear
    w_x: Linear
    w_h: Linear
    w_m: Linear
    theta: int = eqx.field(static=True)

    def __init__(
        self, input_size: int, size: int, *, key: PRNGKeyArray, init: Init, order: int, theta: int
    ):
        require_at_least("order", order, 1, MOST_PARTS)
        require_at_least("theta", theta, 1)
        keys = jax.random.split(key, 6)

        def draw(key: PRNGKeyArray, read: int, size: int) -> Linear:
            return Linear(read, size, key=key, init=init, bias=False)

        self.e_x, self.w_x = draw(keys[0], input_size, 1), draw(keys[1], input_size, size)
        self.e_h, self.w_h = draw(keys[2], size, 1), draw(keys[3], size, size)
        e_m, self.w_m = draw(keys[4], order, 1), draw(keys[5], order, size)
        # At the start nothing feeds the delay line back into itself.
        self.e_m = eqx.tree_at(lambda made: made.weight, e_m, jnp.zeros_like(e_m.weight))
        self.theta = theta

    def init_state(self) -> LMUState:
        """Zeros, (h, m)."""
        order, size = self.w_m.weight.shape
        dtype = self.w_h.weight.dtype
        return jnp.zeros(size, dtype), jnp.zeros(order, dtype)

    def output(self, state: LMUState) -> Float[Array, " size"]:
        return state[0]

    def advance(self, state: LMUState, x: Float[Array, " in"]) -> LMUState:
        return self.step(state, self.e_x(x), self.w_x(x))[0]

    def step(
        self, state: LMUState, ex: Float[Array, " one"], wx: Float[Array, " size"]
    ) -> tuple[LMUState, Float[Array, " one"]]:
        """(h_t, m_t) and u_t from (h_{t-1}, m_{t-1}) and the products of x_t."""
        h, m = state
        a, b = (jnp.asarray(x, m.dtype) for x in legendre_delay(len(m), self.theta))
        u = ex + self.e_h(h) + self.e_m(m)
        m = exact_einsum("m,nm->n", m, a) + b * jnp.broadcast_to(u, b.shape)
        return (jnp.tanh(wx + self.w_h(h) + self.w_m(m)), m), u

    def unroll(
        self, state: LMUState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[LMUState, Float[Array, "time size"]]:
        state, hs, _ = self._scan(state, xs, starts)
        return state, hs

    def read(
        self, xs: Float[Array, "time in"]
    ) -> tuple[dict[str, MemoryMap], Float[Array, "time size"]]:
        _, hs, us = self._scan(self.init_state(), xs, jnp.zeros(len(xs), bool))
        return {"u": MemoryMap(us, "gate")}, hs

    def _scan(self, state: LMUState, xs: Array, starts: Array) -> tuple[LMUState, Array, Array]:
        def one(state: LMUState, inputs: tuple) -> tuple[LMUState, tuple[Array, Array]]:
            *products, start = inputs
            h, m = (jnp.where(start, 0.0, part) for part in state)
            state, u = self.step((h, m), *products)
            return state, (state[0], u)

        state, (hs, us) = jax.lax.scan(one, state, (self.e_x(xs), self.w_x(xs), starts))
        return state, hs, us


class LMU(CellStack):
    """The Legendre memory unit: a delay line that holds the last theta steps of one number.

        u_t = e_x x_t + e_h h_{t-1} + e_m m_{t-1}               (Eq. 7)
        m_t = A m_{t-1} + B u_t                                 (Eq. 4)
        h_t = tanh(W_x x_t + W_h h_{t-1} + W_m m_t)             (Eq. 6)

    A and B are constants, see `legendre_delay`: m holds the last theta steps of u as coefficients
    of Legendre polynomials. The state of a layer is (h, m), hidden_size + order numbers.

    Shapes: x [input_size] to h [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        order: number of polynomials, the size of m; more of them represent faster changes of u.
        theta: number of steps that m holds.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1 or an unknown choice.

    Source: Voelker et al. (2019), "Legendre memory units", Eq. 4, 6 and 7, as numbered in POPGym's
    code, with a step of the delay line as in the authors' code (nengo/keras-lmu), exact for a u
    that is constant during the step. The encoders e start with the same variance as there and e_m
    at 0; theta is that of POPGym (Morad et al., 2023a), whose order is the hidden size. Deviations:
    none in the equations; the kernels W start with variance 1 / in, in the authors' code with 2 /
    (in + out).
    """

    @takes_options_of(make_cells, init="lecun")
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        order: int = 32,
        theta: int = 64,
        **options: Unpack[CellOptions],
    ):
        cell = partial(LMUCell, order=order, theta=theta)
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))
