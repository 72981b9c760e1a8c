"""Distributions over integers: one choice, several choices, several bits."""

import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.distributions.base import AnyArray, Distribution, Parameters
from clew.errors import UserError, require_at_least

FORBIDDEN = -1e30
"""The logit of an action that a mask forbids.

Its softmax is exactly 0, also with noise. An infinite logit would give 0 x infinity in p log p, and
NaN in the gradient.
"""


class Categorical(Distribution):
    """One of n actions: p_i = softmax(logits)_i.

    The index of the largest logit plus Gumbel noise is a sample from the softmax of the logits
    (Gumbel, 1954; Maddison et al., 2014, section 2).

    Args:
        n: number of actions, at least 1.
        start: the environment's number of the first action.
        dtype: of the environment's actions on the host.
    """

    space_kind = "Discrete"
    num_outputs: int = eqx.field(static=True)
    start: int = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    num_free = 0
    noise_steps = 1
    action_shape = ()
    action_dtype = np.dtype(np.int32)

    def __init__(self, n: int, start: int = 0, *, dtype: str = "int64"):
        require_at_least("n", n, 1)
        self.num_outputs, self.start, self.dtype = n, start, dtype

    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Float[Array, "*lead n"]:
        return jax.random.gumbel(key, (*lead, self.num_outputs))

    def sample(self, parameters: Parameters, noise: Float[Array, "*lead n"]) -> Int[Array, "*lead"]:
        """The action with the largest sum of logit and noise."""
        return self.mode(parameters + noise)

    def mode(self, parameters: Parameters) -> Int[Array, "*lead"]:
        """The most probable action; the first one if several are."""
        return jnp.argmax(parameters, axis=-1).astype(self.action_dtype)

    def log_prob(
        self, parameters: Parameters, action: Int[Array, "*lead"]
    ) -> Float[Array, "*lead"]:
        """log p_a."""
        log_probs = jax.nn.log_softmax(parameters)
        return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self, parameters: Parameters) -> Float[Array, "*lead"]:
        """-sum_i p_i log p_i."""
        log_probs = jax.nn.log_softmax(parameters)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    def masked(self, parameters: Parameters, mask: Bool[Array, "*lead n"]) -> Parameters:
        """The logits, with p_i = 0 where the mask is False.

        Probabilities, entropy and gradients are those of a softmax over the allowed actions.
        """
        return forbid(parameters, mask)

    def centred(self, parameters: Parameters) -> Parameters:
        """The logits minus their mean."""
        return parameters - jnp.mean(parameters, axis=-1, keepdims=True)

    def decode(self, action: AnyArray) -> AnyArray:
        """start + a."""
        return _from(action, self.start, self.dtype)


class MultiCategorical(Distribution):
    """Several independent choices, of n_1, n_2, ... actions; their logits are concatenated.

    Args:
        nvec: number of actions of every choice, at least 1 each; its shape, which is arbitrary, is
            the action's.
        start: the environment's number of the first action of every choice; 0 by default.
        dtype: of the environment's actions on the host.
    """

    space_kind = "MultiDiscrete"
    num_outputs: int = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    start: tuple[int, ...] = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    num_free = 0
    noise_steps = 1
    action_dtype = np.dtype(np.int32)

    def __init__(
        self,
        nvec: Sequence[int] | np.ndarray,
        start: Sequence[int] | np.ndarray | None = None,
        *,
        dtype: str = "int64",
    ):
        array = np.asarray(nvec)
        if array.size == 0:
            raise UserError("nvec must have at least one number, got none")
        self.sizes = tuple(array.reshape(-1).tolist())
        for size in self.sizes:
            require_at_least("every number of nvec", size, 1)
        self.num_outputs, self.action_shape = sum(self.sizes), array.shape
        first = np.zeros_like(array) if start is None else np.asarray(start)
        if first.shape != array.shape:
            raise UserError(f"start must have nvec's shape {array.shape}, got {first.shape}")
        self.start, self.dtype = tuple(first.reshape(-1).tolist()), dtype

    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Float[Array, "*lead n"]:
        return jax.random.gumbel(key, (*lead, self.num_outputs))

    def sample(self, parameters: Parameters, noise: Float[Array, "*lead n"]) -> Array:
        return self.mode(parameters + noise)

    def mode(self, parameters: Parameters) -> Array:
        pairs = zip(self._choices(), self._split(parameters), strict=True)
        chosen = jnp.stack([choice.mode(logits) for choice, logits in pairs], axis=-1)
        return chosen.reshape(*parameters.shape[:-1], *self.action_shape)

    def log_prob(self, parameters: Parameters, action: Array) -> Float[Array, "*lead"]:
        flat = action.reshape(*parameters.shape[:-1], len(self.sizes))
        actions = [flat[..., i] for i in range(len(self.sizes))]
        return self._sum(Categorical.log_prob, self._split(parameters), actions)

    def entropy(self, parameters: Parameters) -> Float[Array, "*lead"]:
        return self._sum(Categorical.entropy, self._split(parameters))

    def masked(self, parameters: Parameters, mask: Bool[Array, "*lead n"]) -> Parameters:
        return forbid(parameters, mask)

    def centred(self, parameters: Parameters) -> Parameters:
        pairs = zip(self._choices(), self._split(parameters), strict=True)
        return jnp.concatenate([choice.centred(logits) for choice, logits in pairs], axis=-1)

    def decode(self, action: AnyArray) -> AnyArray:
        return _from(action, np.reshape(self.start, self.action_shape), self.dtype)

    def _choices(self) -> list[Categorical]:
        return [Categorical(n) for n in self.sizes]

    def _sum(self, of: Callable[..., Array], *parts: list[Array]) -> Array:
        """The sum of a quantity over the choices."""
        terms = [of(choice, *own) for choice, *own in zip(self._choices(), *parts, strict=True)]
        return sum(terms[1:], terms[0])

    def _split(self, x: Float[Array, "*lead n"]) -> list[Float[Array, "*lead _"]]:
        ends = list(itertools.accumulate(self.sizes))[:-1]
        return jnp.split(x, ends, axis=-1)


class MultiBinary(Distribution):
    """Independent bits, each 1 with probability sigmoid(logit).

    The sign of logit plus logistic noise is a sample.

    Args:
        shape: of an action, at least one bit.
        dtype: of the environment's actions on the host.
    """

    space_kind = "MultiBinary"
    num_outputs: int = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    num_free = 0
    noise_steps = 1
    action_dtype = np.dtype(np.int8)

    def __init__(self, shape: Sequence[int], *, dtype: str = "int8"):
        self.action_shape, self.dtype = tuple(int(n) for n in shape), dtype
        self.num_outputs = math.prod(self.action_shape)
        require_at_least("number of bits", self.num_outputs, 1)

    def noise(self, key: PRNGKeyArray, lead: tuple[int, ...]) -> Float[Array, "*lead n"]:
        return jax.random.logistic(key, (*lead, self.num_outputs))

    def sample(self, parameters: Parameters, noise: Float[Array, "*lead n"]) -> Array:
        """Whether logit plus noise is above 0."""
        return self.mode(parameters + noise)

    def mode(self, parameters: Parameters) -> Array:
        bits = (parameters > 0).astype(self.action_dtype)
        return bits.reshape(*parameters.shape[:-1], *self.action_shape)

    def log_prob(self, parameters: Parameters, action: Array) -> Float[Array, "*lead"]:
        """The sum over bits of log sigmoid(logit), or log sigmoid(-logit) for a 0."""
        bits = action.reshape(parameters.shape) > 0
        return jnp.sum(jax.nn.log_sigmoid(jnp.where(bits, parameters, -parameters)), axis=-1)

    def entropy(self, parameters: Parameters) -> Float[Array, "*lead"]:
        """The sum over bits of -p log p - (1 - p) log(1 - p)."""
        p, q = parameters, -parameters
        of_one, of_zero = (jax.nn.sigmoid(x) * jax.nn.log_sigmoid(x) for x in (p, q))
        return -jnp.sum(of_one + of_zero, axis=-1)

    def decode(self, action: AnyArray) -> AnyArray:
        return _from(action, 0, self.dtype)


def forbid(logits: Float[Array, "*lead n"], mask: Bool[Array, "*lead n"]) -> Array:
    """Logits whose softmax is 0 where the mask is False; no gradient goes there."""
    return jnp.where(mask, logits, jnp.asarray(FORBIDDEN, logits.dtype))


def _from(action: AnyArray, start: int | np.ndarray, dtype: str) -> AnyArray:
    """The action counted from `start`, unchanged if that is 0; in the given dtype on the host."""
    if not isinstance(action, jax.Array):
        return (np.asarray(action).astype(np.int64) + start).astype(dtype)
    if not np.any(start):
        return action
    return action + jnp.broadcast_to(jnp.asarray(start, action.dtype), action.shape)
