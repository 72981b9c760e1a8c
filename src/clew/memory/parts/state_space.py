"""Linear state-space models whose state is complex and diagonal, between two products."""

import abc
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from clew.errors import require_choice
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, wide
from clew.memory.parts.diagonal import DiagonalMixer
from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.products import product
from clew.memory.parts.repeated import like

Activation = Literal["none", "gelu", "half_glu", "full_glu"]
"""What follows y: nothing; a = gelu(y); a sigmoid(a W + b); or (a W_1 + b_1) sigmoid(a W_2 + b_2).
gelu is the tanh approximation, as in the authors' code of S5 and LRU."""


class StateSpaceMixer(DiagonalMixer):
    """A linear recurrence of complex numbers, each with its own decay and rotation.

        h_t = lambda * h_{t-1} + g * (B x_t)
        y_t = m Re(C h_t) + D * x_t

    `transition` gives lambda and g. m is `multiplicity`: 2 where the conjugates of h are left out.
    B and C are stored as real matrices, [Re B' | Im B'] and [Re C'; -Im C'], so that each takes one
    real product, and an optimiser scales real and imaginary parts separately.
    """

    norm: LayerNorm
    input_matrix: Float[Array, "n parts"]
    output_matrix: Float[Array, "parts n"]
    skip: Float[Array, " n"]
    gate: Linear | None
    activation: Activation = eqx.field(static=True)
    backend: ScanBackend = eqx.field(static=True)
    multiplicity: ClassVar[float]

    def __init__(
        self,
        b: tuple[Float[Array, "n state"], Float[Array, "n state"]],
        c: tuple[Float[Array, "state n"], Float[Array, "state n"]],
        *,
        key: PRNGKeyArray,
        init: Init,
        activation: Activation,
        backend: ScanBackend,
    ):
        """Takes the real and imaginary parts of B' and C'; `init` is for the product after y."""
        require_choice("activation", activation, ("none", "gelu", "half_glu", "full_glu"))
        size, blocks = len(b[0]), {"half_glu": 1, "full_glu": 2}.get(activation, 0)
        skip_key, gate_key = jax.random.split(key)
        self.norm = LayerNorm(size)
        self.input_matrix = jnp.concatenate(b, axis=1)
        self.output_matrix = jnp.concatenate([c[0], -c[1]])
        self.skip = initial.normal(skip_key, (size,))
        gate = Linear(size, max(blocks, 1) * size, key=gate_key, init=init, blocks=max(blocks, 1))
        self.gate = gate if blocks else None
        self.activation = activation
        self.backend = backend

    @abc.abstractmethod
    def transition(self) -> tuple[Complex[Array, " state"], Complex[Array, " state"]]:
        """lambda and g."""

    def init_state(self) -> Complex[Array, " state"]:
        return jnp.zeros_like(self.transition()[0])

    def terms(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array]:
        """lambda, and g * (B x)."""
        keep, scale = self.transition()
        driven = to_complex(*jnp.split(product(x, self.input_matrix), 2, axis=-1))
        return keep, jnp.broadcast_to(scale, driven.shape) * driven

    def read(
        self, state: Complex[Array, "*lead state"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        """y, through the activation."""
        parts = jnp.concatenate([jnp.real(state), jnp.imag(state)], axis=-1).astype(x.dtype)
        y = self.multiplicity * product(parts, self.output_matrix) + like(self.skip, x) * x
        if self.activation == "none":
            return y
        a = jax.nn.gelu(y)
        if self.gate is None:
            return a
        if self.activation == "half_glu":
            return a * jax.nn.sigmoid(self.gate(a))
        value, opened = jnp.split(self.gate(a), 2, axis=-1)
        return value * jax.nn.sigmoid(opened)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The share of every number that is left after a step, which is always the same."""
        keep = jnp.abs(self.transition()[0])
        return {"|lambda|": MemoryMap(jnp.broadcast_to(keep, (len(xs), len(keep))), "keep")}


def to_complex(real: Array, imag: Array) -> Array:
    """Complex numbers from two parts, in single precision at least."""
    return jax.lax.complex(wide(real), wide(imag))


def polar(log_radius: Array, angle: Array) -> Array:
    """exp(log_radius + i angle)."""
    radius = jnp.exp(log_radius)
    return to_complex(radius * jnp.cos(angle), radius * jnp.sin(angle))
