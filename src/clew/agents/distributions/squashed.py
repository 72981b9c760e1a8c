"""A distribution over bounded real numbers: a normal one, squashed by tanh."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from clew.agents.distributions.base import Distribution, HostOrArray
from clew.agents.distributions.bounds import log_slope
from clew.agents.distributions.continuous import DiagonalGaussian

NODES, REACH = 33, 5.0  # of the sum that stands for the entropy


class TanhGaussian(Distribution):
    """Independent components tanh(u), u normal, scaled to the limits of the space.

        a = (low + high) / 2 + (high - low) / 2 tanh(u)         u = mean + sigma noise
        log pi(tanh u) = log N(u; mean, sigma) - sum log(1 - tanh(u)^2)

    The kept action is u, so that the log-probability is exact even where tanh(u) is 1 in floating
    point. Densities and entropies are those of tanh(u), before the linear scaling, whose
    logarithm would add a constant.

    Args:
        shape: of an action.
        low: limits of what the environment gets, all finite.
        high: the upper ones.
        dtype: as for `DiagonalGaussian`.
        log_std: of u, as for `DiagonalGaussian`.
        initial_log_std: of u.
        log_std_bounds: of u.

    Raises:
        UserError: for an infinite limit, and as `DiagonalGaussian`.

    Source: Haarnoja et al. (2018), appendix C, equation 21.
    """

    num_outputs: int = eqx.field(static=True)
    num_free: int = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    normal: DiagonalGaussian
    action_dtype = np.dtype(np.float32)

    def __init__(
        self,
        shape: tuple[int, ...],
        low: ArrayLike,
        high: ArrayLike,
        *,
        dtype: str = "float32",
        log_std: str = "free",
        initial_log_std: float = 0.0,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
    ):
        self.normal = DiagonalGaussian(
            shape,
            low,
            high,
            dtype=dtype,
            log_std=log_std,
            initial_log_std=initial_log_std,
            log_std_bounds=log_std_bounds,
        )
        self.normal.bounds.require_finite()
        self.num_outputs, self.num_free = self.normal.num_outputs, self.normal.num_free
        self.action_shape = self.normal.action_shape

    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Float[Array, "*lead n"]:
        """Standard normal noise."""
        return self.normal.noise(key, lead)

    def sample(
        self, parameters: Float[Array, "*lead parameters"], noise: Float[Array, "*lead n"]
    ) -> Array:
        """u, before the tanh."""
        return self.normal.sample(parameters, noise)

    def mode(self, parameters: Float[Array, "*lead parameters"]) -> Array:
        """The mean of u: its tanh is the median of the action.

        The density of tanh(u) itself has its peaks at the limits as soon as sigma is large.
        """
        return self.normal.mode(parameters)

    def log_prob(
        self, parameters: Float[Array, "*lead parameters"], action: Array
    ) -> Float[Array, "*lead"]:
        """log N(u; mean, sigma) - sum log(1 - tanh(u)^2)."""
        axes = tuple(range(-len(self.action_shape), 0))
        return self.normal.log_prob(parameters, action) - jnp.sum(log_slope(action), axis=axes)

    def entropy(self, parameters: Float[Array, "*lead parameters"]) -> Float[Array, "*lead"]:
        """H(u) + sum E log(1 - tanh(u)^2), the expectation by a sum over 33 points.

        It has no closed form. Haarnoja et al. (2018) take -log pi of one draw; here it is the
        trapezoidal rule over mean - 5 sigma .. mean + 5 sigma, component by component, which
        needs no noise and has an exact gradient. Its error is below 5e-6 nats for a sigma up to
        2, 3e-4 up to 4 and 8e-3 up to exp(2), the default bound.
        """
        mean, log_std = self.normal.mean_and_log_std(parameters)
        points = np.linspace(-REACH, REACH, NODES)
        weights = np.exp(-0.5 * points**2)
        u = mean[..., None] + jnp.exp(log_std)[..., None] * _along(points, mean)
        expected = jnp.sum(_along(weights / weights.sum(), mean) * log_slope(u), axis=(-2, -1))
        return self.normal.entropy(parameters) + expected

    def kl(
        self, p: Float[Array, "*lead parameters"], q: Float[Array, "*lead parameters"]
    ) -> Float[Array, "*lead"]:
        """That of u: squashing both alike changes no divergence."""
        return self.normal.kl(p, q)

    def decode(self, action: HostOrArray) -> HostOrArray:
        """tanh(u) scaled to the limits."""
        on_device = isinstance(action, jax.Array)
        return self.normal.bounds.scale(jnp.tanh(action) if on_device else np.tanh(action))


def _along(numbers: np.ndarray, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n k"]:
    """The same numbers along a new last axis of `x`."""
    return jnp.broadcast_to(jnp.asarray(numbers, x.dtype), (*x.shape, len(numbers)))
