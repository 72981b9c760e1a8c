"""A linear recurrent unit of a user's own, `own_lru:LRU`: complex parameters and a complex state.

    lambda = exp(-exp(nu) + i exp(theta)),  gamma = sqrt(1 - |lambda|^2)
    h_t = lambda h_{t-1} + gamma (B x_t),   y_t = Re(C h_t) + D x_t

Source: Orvieto et al. (2023).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from clew import AbstractMemory
from clew.memory import select
from clew.memory.parts.scans import linear_scan


class LRU(AbstractMemory):
    """The layer without its gated block; `unroll` is parallel in time."""

    nu: jax.Array
    theta: jax.Array
    gamma: jax.Array
    B: jax.Array
    C: jax.Array
    D: jax.Array
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, *, key: Any, hidden_size: int = 8):
        self.input_size = self.output_size = input_size
        r, phase, b, c, d = jax.random.split(key, 5)
        radius = jnp.sqrt(jax.random.uniform(r, (hidden_size,), minval=0.81, maxval=0.98))
        self.nu, self.gamma = jnp.log(-jnp.log(radius)), jnp.sqrt(1 - radius**2)
        self.theta = jnp.log(jax.random.uniform(phase, (hidden_size,), minval=0.01, maxval=3.0))
        self.B = jax.random.normal(b, (hidden_size, input_size), complex) * input_size**-0.5
        self.C = jax.random.normal(c, (input_size, hidden_size), complex) * hidden_size**-0.5
        self.D = jax.random.normal(d, (input_size,))

    def init_state(self) -> Any:
        return jnp.zeros(len(self.nu), complex)

    def eigenvalues(self) -> Any:
        return jnp.exp(jax.lax.complex(-jnp.exp(self.nu), jnp.exp(self.theta)))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        h = select(start, self.init_state(), state)
        h = self.eigenvalues() * h + self.gamma * (self.B @ x)
        return h, (self.C @ h).real + self.D * x

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        driven = self.gamma * (xs @ self.B.T)
        keep = jnp.broadcast_to(self.eigenvalues(), driven.shape)
        h = linear_scan(keep, driven, state, starts)
        return h[-1], (h @ self.C.T).real + self.D * xs
