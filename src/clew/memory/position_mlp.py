"""No memory but a clock: a feed-forward net that reads the time step of its episode."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least
from clew.memory.base import AbstractMemory, check_step_input, check_unroll_input
from clew.memory.parts.blocks import Init, Linear, relu_layers, through_relus
from clew.memory.parts.positions import count_positions, encode


class PositionMLP(AbstractMemory):
    """A feed-forward net that reads an observation and its position in the episode.

        e_t = [sin(omega t) | cos(omega t)],   omega_i = 10000^{-2 i / n}
        y_t = relu(... relu([x_t | e_t] W_1 + b_1) ... W_n + b_n)

    A baseline for tasks whose episodes all have the same timing: whatever it solves needs a clock,
    not a memory.

    Shapes: x [input_size] to y [hidden_size]; the state is the position, an integer.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        encoding_size: size n of e.
        hidden_size: width of every layer, and of the output.
        num_layers: number of layers.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for a size below 1 or an unknown `init`.

    Source: Morad et al. (2023a), "POPGym: Benchmarking partially observable reinforcement
    learning", the positional MLP; Vaswani et al. (2017), section 3.5, for e. Deviations: POPGym's
    code adds e, weighted by a learned number, to a product of the observation, its slowest sine
    depends on the longest episode, and its relus are leaky.
    """

    layers: tuple[Linear, ...]
    encoding_size: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        encoding_size: int = 32,
        hidden_size: int = 128,
        num_layers: int = 2,
        init: Init = "orthogonal",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("encoding_size", encoding_size, 1, LARGEST_SIZE)
        seen = input_size + encoding_size
        self.layers = relu_layers(seen, hidden_size, num_layers, key=key, init=init)
        self.encoding_size = encoding_size
        self.input_size = input_size
        self.output_size = hidden_size

    def init_state(self) -> Int[Array, ""]:
        return jnp.array(0, jnp.int32)

    def step(
        self, state: Int[Array, ""], x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, " out"]]:
        x = check_step_input(self, x, start, state)
        position = jnp.where(start, 0, state)
        return position + 1, self._read(x, position)

    def unroll(
        self, state: Int[Array, ""], xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[Int[Array, ""], Float[Array, "time out"]]:
        xs = check_unroll_input(self, xs, starts, state)
        positions, state = count_positions(state, starts)
        return state, self._read(xs, positions)

    def _read(self, x: Float[Array, "*lead in"], position: Int[Array, "*lead"]) -> Array:
        e = encode(position, self.encoding_size, x.dtype)
        return through_relus(self.layers, jnp.concatenate([x, e], axis=-1))
