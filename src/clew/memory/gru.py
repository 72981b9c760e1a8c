"""The gated recurrent unit."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import require_at_least
from clew.memory.base import State
from clew.memory.blocks import Init, Linear
from clew.memory.recurrent import AbstractCell, RecurrentStack


class GRUCell(AbstractCell):
    """One GRU cell; `inputs` holds [W_r | W_z | W_n] and the biases, `recurrent` the U."""

    inputs: Linear
    recurrent: Linear
    candidate_bias: Float[Array, " size"]
    size: int = eqx.field(static=True)

    def __init__(self, input_size: int, size: int, *, key: PRNGKeyArray, init: Init):
        input_key, recurrent_key = jax.random.split(key)
        self.inputs = Linear(input_size, 3 * size, key=input_key, init=init)
        self.recurrent = Linear(size, 3 * size, key=recurrent_key, init=init, bias=False)
        self.candidate_bias = jnp.zeros(size, jnp.float32)
        self.size = size

    def init_state(self) -> State:
        """A zero output h."""
        return jnp.zeros(self.size, jnp.float32)

    def project(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead gates"]:
        """x [W_r | W_z | W_n] + b."""
        return self.inputs(x)

    def offset(self) -> Float[Array, " gates"]:
        """The bias c of the candidate's recurrent product; the gates have theirs with the input."""
        return jnp.concatenate([jnp.zeros(2 * self.size, jnp.float32), self.candidate_bias])

    def output(self, state: Float[Array, " size"]) -> Float[Array, " size"]:
        """The state is h."""
        return state

    def update(
        self,
        state: Float[Array, " size"],
        projected: Float[Array, " gates"],
        product: Float[Array, " gates"],
    ) -> Float[Array, " size"]:
        """The gates and the output."""
        x_r, x_z, x_n = jnp.split(projected, 3, axis=-1)
        h_r, h_z, h_n = jnp.split(product, 3, axis=-1)
        r = jax.nn.sigmoid(x_r + h_r)
        z = jax.nn.sigmoid(x_z + h_z)
        n = jnp.tanh(x_n + r * h_n)
        return n + z * (state - n)


class GRU(RecurrentStack):
    """The GRU.

        r = sigmoid(x_t W_r + h U_r + b_r)        z = sigmoid(x_t W_z + h U_z + b_z)
        n = tanh(x_t W_n + b_n + r * (h U_n + c))  h_t = (1 - z) * n + z * h,   h = h_{t-1}

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is h.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width of h.
        num_layers: cells on top of each other.
        init: "orthogonal" (gain sqrt 2, one draw over the three gates) or "lecun".

    Raises:
        UserError: for a size below 1 or an unknown `init`.

    Source: Cho et al. (2014), eq. 5-8. Deviation: the reset gate acts after the product,
    r * (h U_n + c), as the usual libraries have it; the paper has (r * h) U_n.
    """

    cells: tuple[GRUCell, ...]
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 1,
        init: Init = "orthogonal",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
        sizes = [input_size] + [hidden_size] * num_layers
        keys = jax.random.split(key, num_layers)
        self.cells = tuple(
            GRUCell(sizes[i], hidden_size, key=keys[i], init=init) for i in range(num_layers)
        )
        self.input_size = input_size
        self.output_size = hidden_size
