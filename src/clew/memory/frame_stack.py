"""Frame stacking: the last few observations, side by side."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least
from clew.memory.base import AbstractMemory, check_step_input, check_unroll_input
from clew.memory.parts.blocks import Init, Linear, relu_layers, through_relus
from clew.memory.parts.convolution import look_back


class FrameStack(AbstractMemory):
    """A feed-forward net over the last k observations of an episode.

        s_t = [x_{t-k+1} | ... | x_{t-1} | x_t]
        y_t = relu(... relu(s_t W_1 + b_1) ... W_n + b_n)

    Observations before the episode are 0. The state is the last k - 1 observations.

    Shapes: x [input_size] to y [hidden_size]; the state [frames - 1, input_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        frames: number of observations k that the net sees, the current one included.
        hidden_size: width of every layer, and of the output.
        num_layers: number of layers n.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for a size below 1 or an unknown `init`.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning", Methods,
    with four frames as there. Deviation: the net is dense and not convolutional. POPGym's version
    (Morad et al., 2023a) first projects each frame to hidden_size / k numbers, has leaky relus, and
    adds an encoding of the position, as `PositionMLP` does.
    """

    layers: tuple[Linear, ...]
    frames: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        frames: int = 4,
        hidden_size: int = 128,
        num_layers: int = 2,
        init: Init = "orthogonal",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("frames", frames, 1, 1024)
        seen = frames * input_size
        self.layers = relu_layers(seen, hidden_size, num_layers, key=key, init=init)
        self.frames = frames
        self.input_size = input_size
        self.output_size = hidden_size

    def init_state(self) -> Float[Array, "before in"]:
        return jnp.zeros((self.frames - 1, self.input_size), self.layers[0].weight.dtype)

    def step(
        self, state: Float[Array, "before in"], x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[Float[Array, "before in"], Float[Array, " out"]]:
        x = check_step_input(self, x, start, state)
        seen = jnp.concatenate([jnp.where(start, 0.0, state), x[None]])
        return seen[1:], through_relus(self.layers, seen.reshape(-1))

    def unroll(
        self,
        state: Float[Array, "before in"],
        xs: Float[Array, "time in"],
        starts: Bool[Array, " time"],
    ) -> tuple[Float[Array, "before in"], Float[Array, "time out"]]:
        xs = check_unroll_input(self, xs, starts, state)
        state, lagged = look_back(state, xs, starts)
        return state, through_relus(self.layers, jnp.concatenate(list(lagged), axis=1))
