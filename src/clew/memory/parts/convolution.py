"""The short convolution over time before the recurrence of many modern models."""

import math
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least
from clew.memory.parts import initial
from clew.memory.parts.positions import count_positions
from clew.memory.parts.repeated import like


class ShortConvolution(eqx.Module):
    """A causal depthwise convolution over the last `width` steps.

        y_t = b + sum_i w_i * x_{t-i},   i = 0 ... width - 1

    Inputs before an episode are 0. The state is the last width - 1 inputs. Weights start uniform
    within 1 / sqrt(width), as in PyTorch, whose convolution the code of Mamba-2 uses; b, uniform
    there as well, starts at 0.

    Shapes: x [size] to y [size]; weight [width, size], the oldest step first.
    """

    weight: Float[Array, "width size"]
    bias: Float[Array, " size"]

    def __init__(self, size: int, width: int, *, key: PRNGKeyArray):
        require_at_least("conv", width, 1, 1024)
        self.weight = initial.uniform(key, (width, size), 1.0 / math.sqrt(width))
        self.bias = initial.constant(size)

    def init_state(self) -> Float[Array, "before size"]:
        """Zeros."""
        width, size = self.weight.shape
        return jnp.zeros((width - 1, size), self.weight.dtype)

    def step(
        self, state: Float[Array, "before size"], x: Float[Array, " size"], start: Bool[Array, ""]
    ) -> tuple[Float[Array, "before size"], Float[Array, " size"]]:
        """One step."""
        seen = jnp.concatenate([jnp.where(start, 0.0, state), x[None]])
        return seen[1:], jnp.sum(self.weight * seen, axis=0) + self.bias

    def unroll(
        self,
        state: Float[Array, "before size"],
        xs: Float[Array, "time size"],
        starts: Bool[Array, " time"],
    ) -> tuple[Float[Array, "before size"], Float[Array, "time size"]]:
        """A chunk."""
        out = like(self.bias, xs)
        last, lagged = look_back(state, xs, starts)
        for weight, x in zip(self.weight, lagged, strict=True):
            out = out + like(weight, xs) * x
        return last, out


class TokenShift(eqx.Module):
    """The last input mixed into the current one, with a share per channel, for several readers.

        x^c_t = x_t + mu_c * (x_{t-1} - x_t)

    The input before an episode is 0. The state is the last input.

    Shapes: x [size] to one [size] for each reader; shares mu [readers, size].
    """

    shares: Float[Array, "readers size"]

    def __init__(self, shares: Float[np.ndarray, "readers size"]):
        self.shares = jnp.array(shares, jnp.float32)

    def init_state(self) -> Float[Array, "one size"]:
        """Zeros."""
        return jnp.zeros((1, self.shares.shape[1]), self.shares.dtype)

    def step(
        self, state: Float[Array, "one size"], x: Float[Array, " size"], start: Bool[Array, ""]
    ) -> tuple[Float[Array, "one size"], tuple[Float[Array, " size"], ...]]:
        """One step."""
        return x[None].astype(state.dtype), self._mixed(jnp.where(start, 0.0, state[0]), x)

    def unroll(
        self,
        state: Float[Array, "one size"],
        xs: Float[Array, "time size"],
        starts: Bool[Array, " time"],
    ) -> tuple[Float[Array, "one size"], tuple[Float[Array, "time size"], ...]]:
        """A chunk."""
        last, lagged = look_back(state, xs, starts)
        return last, self._mixed(*lagged)

    def _mixed(
        self, before: Float[Array, "*lead size"], now: Float[Array, "*lead size"]
    ) -> tuple[Float[Array, "*lead size"], ...]:
        apart = before - now
        return tuple(now + like(share, now) * apart for share in self.shares)


def look_back(
    state: Float[Array, "before size"], xs: Float[Array, "time size"], starts: Bool[Array, " time"]
) -> tuple[Float[Array, "before size"], Iterator[Float[Array, "time size"]]]:
    """The inputs that every step of a chunk sees: as many as the state has, and its own.

    Args:
        state: the last inputs before the chunk, the oldest first; 0 before an episode.

    Returns:
        The last inputs after the chunk, and the inputs from `before` steps ago to now, in that
        order, each for all steps.
    """
    before, time = len(state), len(xs)
    # How many steps back an episode reaches; all of the state where it began before the chunk.
    ages, _ = count_positions(jnp.array(before, jnp.int32), starts)
    seen = jnp.concatenate([state, xs])
    lagged = (
        jnp.where((ages >= before - i)[:, None], seen[i : i + time], 0.0) for i in range(before + 1)
    )
    last = jnp.arange(before, 0, -1, dtype=jnp.int32) <= ages[-1] + 1
    return jnp.where(last[:, None], seen[time:], 0.0), lagged
