"""Heads: what an agent makes of its memory's output. Its learner chooses them."""

import abc
from collections.abc import Callable
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.distributions import Distribution
from clew.memory.parts.blocks import Init, Linear


class Outputs(Protocol):
    """What heads answer: a tuple of arrays with any leading axes, with whatever its learner reads.

    Whoever acts, evaluates, exports or inspects reads the two that are here.
    """

    @property
    def logits(self) -> Float[Array, "*lead actions"]:
        """Parameters of the distribution that the agent's own policy chooses from."""
        ...

    @property
    def value(self) -> Float[Array, "*lead"]:
        """Value of what was observed, under that policy."""
        ...


class Clock(NamedTuple):
    """Which environments act, and when: what exploration may depend on."""

    environment: Int[Array, "*lead"]
    """The number of each among those of the run."""
    step: Int[Array, "*#lead"]
    """How often it was stepped before, in the whole run."""


Behaviour = Callable[[Outputs, Clock], Float[Array, "*lead actions"]]
"""The policy that gathers rollouts: parameters of its distribution, from the network's outputs."""


def follow_policy(outputs: Outputs, clock: Clock) -> Float[Array, "*lead actions"]:
    """The behaviour of who acts as it would without learning: the agent's own policy."""
    return outputs.logits


class Heads(eqx.Module):
    """What reads a memory's output h; pointwise in time, so it has no state."""

    distribution: eqx.AbstractVar[Distribution]
    """Of the actions."""

    @abc.abstractmethod
    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> Outputs:
        """The outputs; a mask says which actions are allowed."""


class MakeHeads(Protocol):
    """What makes heads; a class of `Heads` is one."""

    def __call__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int,
        init: Init,
        key: PRNGKeyArray,
    ) -> Heads:
        """Heads with fresh weights.

        Args:
            size: of what they read.
            distribution: of the actions.
            hidden_size: width of a hidden layer; 0 for none.
            init: of the weights.
            key: random key for them.
        """
        ...


class Head(eqx.Module):
    """What reads a memory's output, y = tanh(x W_1 + b_1) W_2 + b_2, or y = x W_2 + b_2.

    Both products start orthogonal with gain sqrt(2), the last one too, and with zero biases, as
    in the authors' published code; Pramanik (2023), Table A.1, gives the width 128.
    """

    hidden: Linear | None
    output: Linear

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        *,
        key: PRNGKeyArray,
        init: Init = "orthogonal",
    ):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = None
        if hidden_size > 0:
            self.hidden = Linear(input_size, hidden_size, key=hidden_key, init=init)
        self.output = Linear(hidden_size or input_size, output_size, key=output_key, init=init)

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        return self.output(x if self.hidden is None else jnp.tanh(self.hidden(x)))


class PolicyAndValue(NamedTuple):
    """The outputs of an actor-critic."""

    logits: Float[Array, "*lead actions"]
    value: Float[Array, "*lead"]


class ActorCritic(Heads):
    """A policy and a value: logits = actor(h), V = critic(h).

    Logits, here and elsewhere, are all parameters of the policy's distribution: for discrete
    actions logits, for continuous ones means and log deviations, of which the latter are learned
    independently of the observation unless `log_std` says otherwise (`clew.agents.distributions`).
    With a mask they are those of the policy over what it allows.

    Source: Pramanik (2023), section 5.1 and Table A.1: separate actor and critic networks over
    one shared memory.
    """

    actor: Head
    critic: Head
    free: Float[Array, " free"] | None
    """Parameters of the distribution that do not depend on the observation: log deviations."""
    distribution: Distribution

    def __init__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int = 128,
        init: Init = "orthogonal",
        key: PRNGKeyArray,
    ):
        actor_key, critic_key = jax.random.split(key)
        outputs = distribution.num_outputs
        self.actor = Head(size, hidden_size, outputs, key=actor_key, init=init)
        self.critic = Head(size, hidden_size, 1, key=critic_key, init=init)
        self.free = distribution.initial_free() if distribution.num_free else None
        self.distribution = distribution

    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> PolicyAndValue:
        logits = self.actor(h)
        if self.free is not None:
            logits = self.distribution.join(logits, self.free)
        if mask is not None:
            logits = self.distribution.masked(logits, mask)
        return PolicyAndValue(logits, self.critic(h)[..., 0])
