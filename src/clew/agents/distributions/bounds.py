"""The limits of real-valued actions."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from clew.agents.distributions.base import HostOrArray
from clew.errors import UserError


class Bounds(eqx.Module):
    """The limits of every component of an action, which may be infinite.

    Args:
        shape: of an action, with at least one component.
        low: lower limits, one number or as many as the shape has.
        high: upper limits.
        dtype: of the environment's actions on the host, a floating-point type.

    Raises:
        UserError: for no components, or limits that are in the wrong order or no numbers.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    def __init__(
        self, shape: tuple[int, ...], low: ArrayLike, high: ArrayLike, dtype: str = "float32"
    ):
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype
        if self.size == 0:
            raise UserError(f"an action must have at least one component, got shape {self.shape}")
        self.low, self.high = self._flat("low", low), self._flat("high", high)
        for i, (a, b) in enumerate(zip(self.low, self.high, strict=True)):
            if not a <= b:
                raise UserError(
                    f"low must be at most high in every component, got {a} and {b} in number {i}"
                )

    @property
    def size(self) -> int:
        """Number of components."""
        return math.prod(self.shape)

    def require_finite(self) -> None:
        """Raises `UserError`, naming the component, unless every limit is finite."""
        for i, limits in enumerate(zip(self.low, self.high, strict=True)):
            if not all(map(math.isfinite, limits)):
                raise UserError(
                    f"tanh actions need finite limits, got {limits[0]} and {limits[1]} in "
                    f"component {i} of shape {self.shape}; choose gaussian, or bound the space"
                )

    def clip(self, action: HostOrArray) -> HostOrArray:
        """The nearest action within the limits."""
        if isinstance(action, jax.Array):
            low, high = self._limits(action.dtype)
            wide = (jnp.broadcast_to(jnp.asarray(x), action.shape) for x in (low, high))
            return jnp.clip(action, *wide)
        # Limits in the space's own type: in another one they could lie just outside of it.
        with np.errstate(over="ignore"):
            return np.clip(np.asarray(action).astype(self.dtype), *self._limits(self.dtype))

    def scale(self, action: HostOrArray) -> HostOrArray:
        """-1 becomes low, 1 high, and what lies between is linear between."""
        low, high = self._limits(np.float64)
        centre, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        if isinstance(action, jax.Array):
            centre, half = (
                jnp.broadcast_to(jnp.asarray(x, action.dtype), action.shape) for x in (centre, half)
            )
            return self.clip(centre + half * action)
        return self.clip(centre + half * np.asarray(action, np.float64))

    def _flat(self, name: str, limits: ArrayLike) -> tuple[float, ...]:
        array = np.asarray(limits, np.float64)
        if array.shape not in ((), self.shape):
            raise UserError(
                f"{name} must be one number or of shape {self.shape}, got {array.shape}"
            )
        return tuple(np.broadcast_to(array, self.shape).reshape(-1).tolist())

    def _limits(self, dtype: np.dtype | type | str) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.reshape(x, self.shape) for x in (self.low, self.high))
        return low.astype(dtype), high.astype(dtype)


def log_slope(u: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """log(1 - tanh(u)^2) = 2 (log 2 - |u| - softplus(-2 |u|)), exact where tanh(u) rounds to 1."""
    far = jnp.abs(u)
    return 2.0 * (math.log(2.0) - far - jax.nn.softplus(-2.0 * far))
