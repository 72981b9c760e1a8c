"""The normal distribution with a diagonal covariance, over real numbers."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from clew.agents.distributions.base import Distribution, HostOrArray
from clew.agents.distributions.bounds import Bounds
from clew.errors import UserError, require_choice

DEVIATIONS = ("free", "head")


class DiagonalGaussian(Distribution):
    """Independent normal components, a = mean + sigma noise; the environment gets a clipped.

    With half = (most - least) / 2 and middle = (most + least) / 2 of `log_std_bounds`,

        log sigma = middle + half tanh(raw / half + c),

    c such that raw = 0 gives `initial_log_std`. So the deviation stays within its bounds and,
    unlike a clipped one, always has a gradient back. `mean` and then `raw` are the parameters.

    Args:
        shape: of an action.
        low: limits of what the environment gets, infinite where there are none.
        high: the upper ones.
        dtype: of the environment's actions on the host.
        log_std: "free": `raw` is learned and the same for every observation; "head": the actor's
            head gives it.
        initial_log_std: log sigma before training; with "head", where the head gives 0.
        log_std_bounds: least and most log sigma.

    Raises:
        UserError: for impossible limits, or an initial deviation not between its bounds.

    Source: a deviation that does not depend on the observation, and clipping by the environment
    alone: Schulman et al. (2017), section 6.1, and its published code; its bounds by tanh as in
    CleanRL's SAC (Huang et al., 2022). The density is that of the unclipped action.
    """

    num_outputs: int = eqx.field(static=True)
    num_free: int = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    bounds: Bounds
    log_std: str = eqx.field(static=True)
    initial_log_std: float = eqx.field(static=True)
    log_std_bounds: tuple[float, float] = eqx.field(static=True)
    action_dtype = np.dtype(np.float32)

    def __init__(
        self,
        shape: tuple[int, ...],
        low: ArrayLike = -math.inf,
        high: ArrayLike = math.inf,
        *,
        dtype: str = "float32",
        log_std: str = "free",
        initial_log_std: float = 0.0,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
    ):
        self.bounds = Bounds(shape, low, high, dtype)
        require_choice("log_std", log_std, DEVIATIONS)
        least, most = log_std_bounds
        if not -math.inf < least < initial_log_std < most < math.inf:
            raise UserError(
                f"initial_log_std must be between log_std_bounds {log_std_bounds}, and these "
                f"finite, got {initial_log_std}"
            )
        self.log_std, self.initial_log_std = log_std, initial_log_std
        self.log_std_bounds = (least, most)
        n = self.bounds.size
        self.num_outputs, self.num_free = (n, n) if log_std == "free" else (2 * n, 0)
        self.action_shape = self.bounds.shape

    def mean_and_log_std(
        self, parameters: Float[Array, "*lead parameters"]
    ) -> tuple[Float[Array, "*lead n"], Float[Array, "*lead n"]]:
        """The mean and log sigma of every component."""
        mean, raw = jnp.split(parameters, 2, axis=-1)
        least, most = self.log_std_bounds
        middle, half = 0.5 * (most + least), 0.5 * (most - least)
        shift = math.atanh((self.initial_log_std - middle) / half)
        return mean, middle + half * jnp.tanh(raw / half + shift)

    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Float[Array, "*lead n"]:
        """Standard normal noise."""
        return jax.random.normal(key, (*lead, self.bounds.size))

    def sample(
        self, parameters: Float[Array, "*lead parameters"], noise: Float[Array, "*lead n"]
    ) -> Array:
        """mean + sigma noise."""
        mean, log_std = self.mean_and_log_std(parameters)
        return self._shaped(mean + jnp.exp(log_std) * noise)

    def mode(self, parameters: Float[Array, "*lead parameters"]) -> Array:
        """The mean."""
        return self._shaped(self.mean_and_log_std(parameters)[0])

    def log_prob(
        self, parameters: Float[Array, "*lead parameters"], action: Array
    ) -> Float[Array, "*lead"]:
        """sum -((a - mean) / sigma)^2 / 2 - log sigma - log(2 pi) / 2."""
        mean, log_std = self.mean_and_log_std(parameters)
        scaled = (action.reshape(mean.shape) - mean) * jnp.exp(-log_std)
        terms = -0.5 * jnp.square(scaled) - log_std - 0.5 * math.log(2.0 * math.pi)
        return jnp.sum(terms, axis=-1)

    def entropy(self, parameters: Float[Array, "*lead parameters"]) -> Float[Array, "*lead"]:
        """sum log sigma + log(2 pi e) / 2, of the unclipped action."""
        _, log_std = self.mean_and_log_std(parameters)
        return jnp.sum(log_std + 0.5 * (1.0 + math.log(2.0 * math.pi)), axis=-1)

    def kl(
        self, p: Float[Array, "*lead parameters"], q: Float[Array, "*lead parameters"]
    ) -> Float[Array, "*lead"]:
        """sum log(sigma_q / sigma_p) + (sigma_p^2 + (mean_p - mean_q)^2) / (2 sigma_q^2) - 1/2."""
        (mean_p, log_p), (mean_q, log_q) = self.mean_and_log_std(p), self.mean_and_log_std(q)
        ratio = jnp.exp(2.0 * (log_p - log_q))
        distance = jnp.square((mean_p - mean_q) * jnp.exp(-log_q))
        return jnp.sum(log_q - log_p + 0.5 * (ratio + distance - 1.0), axis=-1)

    def decode(self, action: HostOrArray) -> HostOrArray:
        """The action clipped to the limits."""
        return self.bounds.clip(action)

    def _shaped(self, x: Float[Array, "*lead n"]) -> Array:
        return x.reshape(*x.shape[:-1], *self.action_shape)
