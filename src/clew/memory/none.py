"""No memory: the feed-forward control."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.memory.base import AbstractMemory, State, check_step_input, check_unroll_input
from clew.memory.parts.blocks import Init, Linear, relu_layers, through_relus


class NoMemory(AbstractMemory):
    """A feed-forward net instead of a memory: the baseline for every memory.

        y_t = relu(... relu(x_t W_1 + b_1) ... W_n + b_n)

    Shapes: x [input_size] to y [hidden_size]; the state is empty.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        hidden_size: width of every layer, and of the output.
        num_layers: number of layers n.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for a size below 1 or an unknown `init`.
    """

    layers: tuple[Linear, ...]
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 2,
        init: Init = "orthogonal",
    ):
        self.layers = relu_layers(input_size, hidden_size, num_layers, key=key, init=init)
        self.input_size = input_size
        self.output_size = hidden_size

    def init_state(self) -> State:
        return ()

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        x = check_step_input(self, x, start, state)
        return state, through_relus(self.layers, x)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        xs = check_unroll_input(self, xs, starts, state)
        return state, through_relus(self.layers, xs)
