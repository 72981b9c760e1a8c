"""What a policy is made of: a distribution over actions, given the numbers of the actor's head."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

HostOrArray = Array | np.ndarray
"""An action on the device, or on the host as NumPy's."""


class Distribution(eqx.Module):
    """A family of distributions over one kind of action; it has settings and no numbers to learn.

    Its parameters are `num_outputs` numbers of the actor's head and `num_free` learned numbers
    that do not depend on the observation, one after the other on the last axis (`join`).

    Shapes, on any leading axes: parameters [*lead, num_parameters], noise as `noise` gives it,
    actions [*lead, *action_shape] of type `action_dtype`; log-probabilities, entropies and
    divergences [*lead], in nats, over all components of an action together.

    An action is kept as it was drawn; `decode` makes of it what the environment gets. So the
    log-probability of a kept action is exact, whatever `decode` clips or squashes.
    """

    num_outputs: eqx.AbstractVar[int]
    """How many numbers the actor's head must give."""
    num_free: eqx.AbstractVar[int]
    """How many learned numbers do not depend on the observation."""
    action_shape: eqx.AbstractVar[tuple[int, ...]]
    """Shape of one action as it is kept."""
    action_dtype: eqx.AbstractVar[np.dtype]
    """Type of an action as it is kept."""

    @property
    def num_parameters(self) -> int:
        """How many numbers describe the distribution of one action."""
        return self.num_outputs + self.num_free

    def initial_free(self) -> Float[Array, " free"]:
        """The learned numbers that do not depend on the observation, before training."""
        return jnp.zeros(self.num_free)

    def join(
        self, outputs: Float[Array, "*lead outputs"], free: Float[Array, " free"]
    ) -> Float[Array, "*lead parameters"]:
        """The parameters: what the head gave, then the same free numbers for every element."""
        if self.num_free == 0:
            return outputs
        wide = jnp.broadcast_to(free, (*outputs.shape[:-1], self.num_free))
        return jnp.concatenate([outputs, wide], axis=-1)

    @abc.abstractmethod
    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Array:
        """All randomness of drawing `lead` actions, [*lead, n]."""

    @abc.abstractmethod
    def sample(self, parameters: Float[Array, "*lead n"], noise: Array) -> Array:
        """Actions drawn with that noise."""

    @abc.abstractmethod
    def mode(self, parameters: Float[Array, "*lead n"]) -> Array:
        """The actions that a greedy policy takes."""

    def choose(
        self, parameters: Float[Array, "*lead n"], key: PRNGKeyArray, *, greedy: bool
    ) -> Array:
        """Actions of a policy: its mode if it is greedy, else drawn with this key."""
        if greedy:
            return self.mode(parameters)
        return self.sample(parameters, self.noise(key, parameters.shape[:-1]))

    @abc.abstractmethod
    def log_prob(self, parameters: Float[Array, "*lead n"], action: Array) -> Float[Array, "*lead"]:
        """Log-probability, or log-density, of kept actions."""

    @abc.abstractmethod
    def entropy(self, parameters: Float[Array, "*lead n"]) -> Float[Array, "*lead"]:
        """Entropy, of a density the differential one."""

    @abc.abstractmethod
    def kl(self, p: Float[Array, "*lead n"], q: Float[Array, "*lead n"]) -> Float[Array, "*lead"]:
        """The divergence KL(p || q) of two distributions given by their parameters."""

    def centred(self, parameters: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        """The parameters less what can be added to them without a change of the distribution."""
        return parameters

    @abc.abstractmethod
    def decode(self, action: HostOrArray) -> HostOrArray:
        """What the environment gets for kept actions: of the same kind of array.

        NumPy's arrays get the type of the space; JAX's keep the type in which they are kept.
        """
