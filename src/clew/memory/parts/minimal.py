"""The common part of minGRU and minLSTM: gates and a candidate from the observation alone."""

import abc
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least, require_choice
from clew.memory.parts.blocks import Init, LayerNorm, Linear, begin_open
from clew.memory.parts.diagonal import DiagonalMixer
from clew.memory.parts.linear_recurrence import ScanBackend

Candidate = Literal["linear", "positive"]
"""The candidate h~, or g(h~) with g(a) = a + 1/2 where a >= 0 and sigmoid(a) elsewhere."""


class MinimalMixer(DiagonalMixer):
    """A recurrence of h, between a widening and a narrowing product.

    `inputs` holds the gates, the last of which forgets, and then h~.
    """

    norm: LayerNorm
    inputs: Linear
    output: Linear
    candidate: Candidate = eqx.field(static=True)
    backend: ScanBackend = eqx.field(static=True)
    num_gates: ClassVar[int]

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        inner_size: int | None,
        candidate: Candidate,
        chrono: int,
        backend: ScanBackend,
    ):
        inner, gates = size if inner_size is None else inner_size, self.num_gates
        require_at_least("inner_size", inner, 1, LARGEST_SIZE)
        require_choice("candidate", candidate, ("linear", "positive"))
        input_key, output_key = jax.random.split(key)
        blocks = gates + 1
        inputs = Linear(size, blocks * inner, key=input_key, init=init, blocks=blocks)
        forgetting = slice((gates - 1) * inner, gates * inner)
        keeping = slice(0, inner) if gates == 2 else None
        self.norm = LayerNorm(size)
        self.inputs = begin_open(inputs, chrono, key=key, forgetting=forgetting, keeping=keeping)
        self.output = Linear(inner, size, key=output_key, init=init)
        self.candidate = candidate
        self.backend = backend

    def init_state(self) -> Float[Array, " inner"]:
        return jnp.zeros(self.output.weight.shape[0], self.output.weight.dtype)

    @abc.abstractmethod
    def factors(self, *gates: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        """The factors of h and h~ in a step, from the products of the gates."""

    def read_gates(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array]:
        """`factors` for an observation."""
        *gates, _ = self._products(x)
        return self.factors(*gates)

    def terms(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array]:
        """What a step keeps of h, and what it adds."""
        *gates, h = self._products(x)
        if self.candidate == "positive":
            h = jnp.where(h >= 0.0, h + 0.5, jax.nn.sigmoid(h))
        keep, write = self.factors(*gates)
        return keep, write * h

    def read(
        self, state: Float[Array, "*lead inner"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        """The product that narrows."""
        return self.output(state)

    def _products(self, x: Float[Array, "*lead n"]) -> list[Float[Array, "*lead inner"]]:
        return jnp.split(self.inputs(x), self.num_gates + 1, axis=-1)
