"""Heads: what an agent makes of its memory's output. Its learner chooses them."""

import abc
from collections.abc import Callable
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.distributions import Categorical, Distribution
from clew.agents.distributions.discrete import FORBIDDEN
from clew.errors import UserError
from clew.memory.parts.blocks import Init, LayerNorm, Linear


class Outputs(Protocol):
    """What heads answer: a tuple of arrays with any leading axes, with whatever its learner reads.

    Whoever acts, evaluates, exports or inspects reads those that are here.
    """

    @property
    def logits(self) -> Float[Array, "*lead actions"]:
        """Parameters of the distribution that the agent's own policy chooses from."""
        ...

    @property
    def value(self) -> Float[Array, "*lead"]:
        """Value of what was observed, under that policy."""
        ...

    @property
    def action_values(self) -> Float[Array, "*lead actions"] | None:
        """Value of every action, of heads that learn these and no policy; else None."""
        ...


def preferences(outputs: Outputs) -> Float[Array, "*lead actions"]:
    """What the greedy action is the mode of: the action values, or else the policy's parameters.

    Unlike the logits of an epsilon-greedy policy, they go smoothly with what was observed.
    """
    return outputs.logits if outputs.action_values is None else outputs.action_values


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

    @property
    def action_values(self) -> None:
        """An actor-critic learns a policy."""
        return None


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


class ValuesOfActions(NamedTuple):
    """The outputs of `ActionValues`."""

    logits: Float[Array, "*lead actions"]
    value: Float[Array, "*lead"]
    action_values: Float[Array, "*lead actions"]


class ActionValues(Heads):
    """A value for every action, Q = relu(LN(h W_1 + b_1)) W_2 + b_2, or Q = h W_2 + b_2.

    With V = max_a Q_a, and the logits of the policy that takes a random action with probability
    epsilon and the greedy one otherwise (`epsilon_greedy`). An action that a mask forbids has the
    value `FORBIDDEN`, so that it is neither taken nor part of V.

    Args:
        epsilon: of the policy that the logits are of; the others are those of `MakeHeads`.

    Raises:
        UserError: for actions that are not one choice.

    Source: Gallici et al. (2024): with a layer norm (LN) before the last product such values do not
    diverge. In the authors' recurrent networks layer norms stand before the memory alone, and
    Q = h W_2 + b_2.
    """

    hidden: tuple[Linear, LayerNorm] | None
    output: Linear
    distribution: Distribution
    epsilon: float = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int = 128,
        init: Init = "orthogonal",
        epsilon: float,
        key: PRNGKeyArray,
    ):
        require_choice_of_actions(distribution)
        hidden_key, output_key = jax.random.split(key)
        self.hidden = None
        if hidden_size > 0:
            hidden = Linear(size, hidden_size, key=hidden_key, init=init)
            self.hidden = hidden, LayerNorm(hidden_size)
        outputs = distribution.num_outputs
        self.output = Linear(hidden_size or size, outputs, key=output_key, init=init)
        self.distribution, self.epsilon = distribution, epsilon

    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> ValuesOfActions:
        if self.hidden is not None:
            product, norm = self.hidden
            h = jax.nn.relu(norm(product(h)))
        return _outputs(self.output(h), self.distribution, mask, self.epsilon)


class DuelingValues(Heads):
    """A value for every action in two parts, that of what was observed and what each action adds.

        Q_a = v + A_a - mean_b A_b,  v and A each a `Head` of h

    The logits, and what a mask forbids, are as with `ActionValues`. V = max_a Q_a, on the scale of
    the returns where Q is on another.

    Args:
        epsilon: as of `ActionValues`.
        unscale: from the scale of Q to that of the returns; None where they are the same.

    Raises:
        UserError: for actions that are not one choice.

    Source: Wang et al. (2016), Dueling Network Architectures, Eq. 9.
    """

    state_value: Head
    advantage: Head
    distribution: Distribution
    epsilon: float = eqx.field(static=True)
    unscale: Callable[[Array], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int = 128,
        init: Init = "orthogonal",
        epsilon: float,
        unscale: Callable[[Array], Array] | None = None,
        key: PRNGKeyArray,
    ):
        require_choice_of_actions(distribution)
        value_key, advantage_key = jax.random.split(key)
        self.state_value = Head(size, hidden_size, 1, key=value_key, init=init)
        actions = distribution.num_outputs
        self.advantage = Head(size, hidden_size, actions, key=advantage_key, init=init)
        self.distribution, self.epsilon, self.unscale = distribution, epsilon, unscale

    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> ValuesOfActions:
        advantage = self.advantage(h)
        values = self.state_value(h) + advantage - jnp.mean(advantage, axis=-1, keepdims=True)
        found = _outputs(values, self.distribution, mask, self.epsilon)
        return found if self.unscale is None else found._replace(value=self.unscale(found.value))


def _outputs(
    values: Float[Array, "*lead actions"],
    distribution: Distribution,
    mask: Bool[Array, "*lead actions"] | None,
    epsilon: float,
) -> ValuesOfActions:
    """What heads answer whose values of the actions these are, before any mask."""
    if mask is not None:
        values = distribution.masked(values, mask)
    logits = epsilon_greedy(values, jnp.asarray(epsilon, values.dtype))
    return ValuesOfActions(logits, jnp.max(values, axis=-1), values)


def require_choice_of_actions(distribution: Distribution) -> None:
    """Refuses actions that are not one choice, with a `UserError`: no value belongs to each."""
    if not isinstance(distribution, Categorical):
        raise UserError(
            f"a learner of action values needs one choice of actions (Discrete), got actions of a "
            f"{distribution.space_kind} space; choose ppo or a2c, which learn a policy"
        )


def value_of(
    values: Float[Array, "*lead actions"], action: Int[Array, "*lead"]
) -> Float[Array, "*lead"]:
    """The value of one action, of the values of all."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def epsilon_greedy(
    values: Float[Array, "*lead actions"], epsilon: Float[Array, "*#lead"]
) -> Float[Array, "*lead actions"]:
    """Logits of the policy that takes a random action with probability epsilon, or the greedy one.

    With A the actions that are allowed, of which there are |A|, and a* the first of those with the
    largest value:

        p_a = epsilon / |A| + (1 - epsilon) [a = a*]   for a in A, 0 for all others

    Args:
        values: of the actions; those that are forbidden have the value `FORBIDDEN`.
        epsilon: between 0 and 1.
    """
    allowed = (values > FORBIDDEN / 2).astype(values.dtype)
    count = jnp.maximum(jnp.sum(allowed, axis=-1, keepdims=True), 1.0)
    chance = jnp.broadcast_to(epsilon.astype(values.dtype), values.shape[:-1])[..., None]
    greedy = jax.nn.one_hot(jnp.argmax(values, axis=-1), values.shape[-1], dtype=values.dtype)
    p = chance * allowed / count + (1.0 - chance) * greedy
    return jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1.0)), FORBIDDEN)
