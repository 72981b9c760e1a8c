"""The interface of distributions over actions; their parameters come from the actor's head."""

import abc
import math
from typing import ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import UserError

AnyArray = Array | np.ndarray
"""An action on the device, or on the host as a NumPy array."""

Parameters = Float[Array, "*lead parameters"]
"""The parameters of the distributions of many actions."""

Time = TypeVar("Time", int, Int[Array, "..."])


class Distribution(eqx.Module):
    """A family of distributions over one kind of action; the module itself has no parameters.

    Its parameters are `num_outputs` outputs of the actor's head and `num_free` learned parameters
    that do not depend on the observation, concatenated on the last axis (`join`).

    Shapes, on any leading axes: parameters [*lead, num_parameters], noise as `noise` returns it,
    actions [*lead, *action_shape] of type `action_dtype`; log-probabilities and entropies [*lead],
    in nats, over all components of an action together.

    An action is stored as it was sampled; `decode` turns it into the environment's. So the
    log-probability of a stored action is exact, even if `decode` clips or squashes it.
    """

    space_kind: ClassVar[str] = "own"
    """The kind of the action space, for messages."""

    num_outputs: eqx.AbstractVar[int]
    """Size of the actor's output."""
    num_free: eqx.AbstractVar[int]
    """Number of learned parameters that do not depend on the observation."""
    action_shape: eqx.AbstractVar[tuple[int, ...]]
    """Shape of one stored action."""
    action_dtype: eqx.AbstractVar[np.dtype]
    """Dtype of a stored action."""
    noise_steps: eqx.AbstractVar[int]
    """How many steps in a row share the same noise; 1 is new noise at every step."""

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the distribution of one action."""
        return self.num_outputs + self.num_free

    def initial_free(self) -> Float[Array, " free"]:
        """The learned parameters that do not depend on the observation, before training."""
        return jnp.zeros(self.num_free, jnp.float32)

    def join(
        self, outputs: Float[Array, "*lead outputs"], free: Float[Array, " free"]
    ) -> Parameters:
        """The parameters: the head's outputs, then the same free parameters for every element."""
        if self.num_free == 0:
            return outputs
        wide = jnp.broadcast_to(free, (*outputs.shape[:-1], self.num_free))
        return jnp.concatenate([outputs, wide], axis=-1)

    @abc.abstractmethod
    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Array:
        """All randomness of sampling `lead` actions, [*lead, n]."""

    def noise_over(self, key: PRNGKeyArray, length: int, num_envs: int) -> Array:
        """All randomness of a rollout of `length` steps, [length, num_envs, n].

        It is redrawn every `noise_steps` steps, counted from the first step of the rollout.
        """
        drawn = self.noise(key, (math.ceil(length / self.noise_steps), num_envs))
        return drawn if self.noise_steps == 1 else jnp.repeat(drawn, self.noise_steps, 0)[:length]

    def noise_time(self, time: Time) -> Time:
        """The step whose noise is used at step `time`: the same one, or an earlier one."""
        return time if self.noise_steps == 1 else time - time % self.noise_steps

    @abc.abstractmethod
    def sample(self, parameters: Parameters, noise: Array) -> Array:
        """Actions sampled with that noise."""

    @abc.abstractmethod
    def mode(self, parameters: Parameters) -> Array:
        """The actions that a greedy policy takes."""

    def choose(self, parameters: Parameters, key: PRNGKeyArray, *, greedy: bool) -> Array:
        """Actions of a policy: its mode if it is greedy, otherwise sampled with this key."""
        if greedy:
            return self.mode(parameters)
        return self.sample(parameters, self.noise(key, parameters.shape[:-1]))

    @abc.abstractmethod
    def log_prob(self, parameters: Parameters, action: Array) -> Float[Array, "*lead"]:
        """Log-probability, or log-density, of stored actions."""

    @abc.abstractmethod
    def entropy(self, parameters: Parameters) -> Float[Array, "*lead"]:
        """Entropy; the differential entropy of a density."""

    def masked(self, parameters: Parameters, mask: Bool[Array, "*lead n"]) -> Parameters:
        """The parameters of the distribution over the allowed actions; only for choices.

        Raises:
            UserError: if actions are not choices.
        """
        raise UserError(f"a {type(self).__name__} has no choices that an action mask could forbid")

    def centred(self, parameters: Parameters) -> Parameters:
        """The parameters without any offset that does not change the distribution."""
        return parameters

    @abc.abstractmethod
    def decode(self, action: AnyArray) -> AnyArray:
        """The environment's actions for stored ones, in the same kind of array.

        NumPy arrays get the dtype of the space; JAX arrays keep the dtype in which they are stored.
        """
