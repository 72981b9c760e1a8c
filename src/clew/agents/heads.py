"""What reads a memory's output: one head for the policy, one for the value."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.memory.parts.blocks import Init, Linear


class Head(eqx.Module):
    """What reads a memory's output, y = tanh(x W_1 + b_1) W_2 + b_2, or y = x W_2 + b_2.

    Both products start orthogonal with gain sqrt(2), the last one too, and with zero biases, as
    in the authors' published code; Pramanik (2023), Table A.1, gives the width 128.
    """

    hidden: Linear | None
    output: Linear

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        *,
        key: PRNGKeyArray,
        init: Init = "orthogonal",
    ):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = None
        if hidden_size > 0:
            self.hidden = Linear(input_size, hidden_size, key=hidden_key, init=init)
        self.output = Linear(hidden_size or input_size, output_size, key=output_key, init=init)

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        return self.output(x if self.hidden is None else jnp.tanh(self.hidden(x)))
