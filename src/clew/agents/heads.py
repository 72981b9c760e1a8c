"""Heads, which map the memory's output to an agent's outputs. The learner chooses them."""

import abc
from collections.abc import Callable
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.distributions import Categorical, Distribution, Gaussian
from clew.agents.distributions.discrete import FORBIDDEN
from clew.errors import UserError
from clew.memory.parts.blocks import Init, LayerNorm, Linear


class Outputs(Protocol):
    """The outputs of heads: a tuple of arrays with any leading axes, read by the learner.

    Acting, evaluation, exports and inspection read the ones below.
    """

    @property
    def logits(self) -> Float[Array, "*lead actions"]:
        """Parameters of the distribution of the agent's own policy."""
        ...

    @property
    def value(self) -> Float[Array, "*lead"] | None:
        """Value of the observation history under that policy; None if the critic's own entries are
        missing (`critic_only`)."""
        ...

    @property
    def action_values(self) -> Float[Array, "*lead actions"] | None:
        """Value of every action if the heads learn these instead of a policy; otherwise None."""
        ...


def preferences(outputs: Outputs) -> Float[Array, "*lead actions"]:
    """Parameters whose mode is the greedy action: the action values, or the policy's parameters.

    Unlike the logits of an epsilon-greedy policy, they vary smoothly with the observations.
    """
    return outputs.logits if outputs.action_values is None else outputs.action_values


def known_value(outputs: Outputs) -> Float[Array, "*lead"]:
    """The value, where it is needed.

    Raises:
        UserError: if entries of the observation that only the critic reads are missing.
    """
    if outputs.value is None:
        raise UserError(
            "this agent's value needs the entries of the observation that only its critic reads "
            "(critic_only), which are missing; loaded and exported policies go without them"
        )
    return outputs.value


def named_preferences(
    distribution: Distribution, outputs: Outputs, mask: Bool[Array, "*lead actions"] | None = None
) -> dict[str, Float[Array, "*lead actions"]]:
    """The action values, or the distribution's parameters by their usual names.

    Those of actions that the mask forbids are -infinity.
    """
    if isinstance(distribution, Gaussian):
        mean, log_std = distribution.mean_and_log_std(outputs.logits)
        return {"mean": mean, "log_std": log_std}
    numbers = preferences(outputs)
    numbers = numbers if mask is None else jnp.where(mask, numbers, -jnp.inf)
    return {"logits" if outputs.action_values is None else "action_values": numbers}


class Clock(NamedTuple):
    """Which environments act, and when; exploration may depend on it."""

    environment: Int[Array, "*lead"]
    """The index of each environment in the run."""
    step: Int[Array, "*#lead"]
    """How often it was stepped before, in the whole run."""


Behaviour = Callable[[Outputs, Clock], Float[Array, "*lead actions"]]
"""The policy that gathers rollouts: parameters of its distribution, from the network's outputs."""


def follow_policy(outputs: Outputs, clock: Clock) -> Float[Array, "*lead actions"]:
    """The default behaviour: the agent's own policy."""
    return outputs.logits


class Heads(eqx.Module):
    """Maps a memory's output h to outputs; pointwise in time, so it has no state."""

    distribution: eqx.AbstractVar[Distribution]
    """The distribution of the actions."""

    @abc.abstractmethod
    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> Outputs:
        """The outputs; a mask says which actions are allowed."""

    def without_critic(self) -> "Heads":
        """Heads with the same policy, without a critic that has a memory of its own."""
        return self


class MakeHeads(Protocol):
    """Builds heads; a subclass of `Heads` is one."""

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
            size: of their input.
            distribution: of the actions.
            hidden_size: width of a hidden layer; 0 for none.
            init: of the weights.
            key: random key for them.
        """
        ...


class Head(eqx.Module):
    """Maps a memory's output x to y = tanh(x W_1 + b_1) W_2 + b_2, or y = x W_2 + b_2.

    Both products, the last one too, start orthogonal with gain sqrt(2) and zero biases, as in the
    authors' published code; Pramanik (2023), Table A.1, gives the width 128.
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


def parts_of(
    h: Float[Array, "*lead out"], of_actor: int | None
) -> tuple[Float[Array, "*lead actor"], Float[Array, "*lead critic"]]:
    """What the actor reads of a memory's output, the first `of_actor` numbers, and what the critic
    reads, the others; both read all if it is None."""
    if of_actor is None:
        return h, h
    return h[..., :of_actor], h[..., of_actor:]


class PolicyAndValue(NamedTuple):
    """The outputs of an actor-critic."""

    logits: Float[Array, "*lead actions"]
    value: Float[Array, "*lead"] | None

    @property
    def action_values(self) -> None:
        """None: an actor-critic learns a policy."""
        return None


class ActorCritic(Heads):
    """A policy and a value: logits = actor(h), V = critic(h).

    Where the critic alone reads a part s of the observation (`critic_only`), V = critic([h, s]).
    Where it has a memory of its own (`memory_of_critic`), h = [h_a, h_c], logits = actor(h_a), and
    the critic reads h_c in place of h.

    Here and elsewhere, "logits" are all parameters of the policy's distribution: logits for
    discrete actions, means and log standard deviations for continuous ones; by default the latter
    do not depend on the observation, see `log_std` (`clew.agents.distributions`). With a mask they
    are those of the policy over the allowed actions.

    Args:
        critic_only: size of s; 0 for none.
        of_actor: size of h_a; None if the actor and the critic read the same h. The other arguments
            are those of `MakeHeads`.

    Source: Pramanik (2023), section 5.1 and Table A.1: separate actor and critic networks over
    one shared memory. Baisero and Amato (2022): V(h, s).
    """

    actor: Head
    critic: Head | None
    """None in an agent that is left without its critic, whose value is None."""
    free: Float[Array, " free"] | None
    """Parameters of the distribution that do not depend on the observation: log standard
    deviations."""
    distribution: Distribution
    critic_only: int = eqx.field(static=True)
    of_actor: int | None = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int = 128,
        init: Init = "orthogonal",
        critic_only: int = 0,
        of_actor: int | None = None,
        key: PRNGKeyArray,
    ):
        actor_key, critic_key = jax.random.split(key)
        outputs = distribution.num_outputs
        of_critic = critic_only + (size if of_actor is None else size - of_actor)
        self.actor = Head(of_actor or size, hidden_size, outputs, key=actor_key, init=init)
        self.critic = Head(of_critic, hidden_size, 1, key=critic_key, init=init)
        self.free = distribution.initial_free() if distribution.num_free else None
        self.distribution = distribution
        self.critic_only, self.of_actor = critic_only, of_actor

    def __call__(
        self,
        h: Float[Array, "*lead out"],
        mask: Bool[Array, "*lead actions"] | None = None,
        critic_only: Float[Array, "*lead size"] | None = None,
    ) -> PolicyAndValue:
        """The value is None if the critic, or what only the critic reads, is missing."""
        of_actor, h = parts_of(h, self.of_actor)
        logits = self.actor(of_actor)
        if self.free is not None:
            logits = self.distribution.join(logits, self.free)
        if mask is not None:
            logits = self.distribution.masked(logits, mask)
        if self.critic is None or (self.critic_only and critic_only is None):
            return PolicyAndValue(logits, None)
        if critic_only is not None:
            h = jnp.concatenate([h, critic_only], axis=-1)
        return PolicyAndValue(logits, self.critic(h)[..., 0])

    def without_critic(self) -> "ActorCritic":
        return eqx.tree_at(lambda heads: heads.critic, self, None)


class ValuesOfActions(NamedTuple):
    """The outputs of `ActionValues`."""

    logits: Float[Array, "*lead actions"]
    value: Float[Array, "*lead"]
    action_values: Float[Array, "*lead actions"]


class ActionValues(Heads):
    """A value for every action, Q = relu(LN(h W_1 + b_1)) W_2 + b_2, or Q = h W_2 + b_2.

    V = max_a Q_a, and the logits are those of the policy that takes a random action with
    probability epsilon and the greedy one otherwise (`epsilon_greedy`). An action that a mask
    forbids has the value `FORBIDDEN`, so it is neither taken nor part of V.

    Args:
        epsilon: of the policy that the logits describe; the other arguments are those of
            `MakeHeads`.

    Raises:
        UserError: for actions that are not a single choice.

    Source: Gallici et al. (2024): with a layer norm (LN) before the last product such values do not
    diverge. In the authors' recurrent networks only the layers before the memory have layer norms,
    and Q = h W_2 + b_2.
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
    """A value for every action in two parts, the state's value and each action's advantage.

        Q_a = v + A_a - mean_b A_b,  v and A each a `Head` of h

    Logits and masked actions are as in `ActionValues`. V = max_a Q_a, on the scale of the returns
    if Q has another scale.

    Args:
        epsilon: as in `ActionValues`.
        unscale: maps the scale of Q to that of the returns; None if they are the same.

    Raises:
        UserError: for actions that are not a single choice.

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
    """The outputs of heads with these action values, before any mask."""
    if mask is not None:
        values = distribution.masked(values, mask)
    logits = epsilon_greedy(values, jnp.asarray(epsilon, values.dtype))
    return ValuesOfActions(logits, jnp.max(values, axis=-1), values)


def require_choice_of_actions(distribution: Distribution) -> None:
    """Raises `UserError` for actions that are not a single choice, which have no value each."""
    if not isinstance(distribution, Categorical):
        raise UserError(
            f"a learner of action values needs one choice of actions (Discrete), got actions of a "
            f"{distribution.space_kind} space; choose ppo or a2c, which learn a policy"
        )


def value_of(
    values: Float[Array, "*lead actions"], action: Int[Array, "*lead"]
) -> Float[Array, "*lead"]:
    """The value of one action, from the values of all."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def epsilon_greedy(
    values: Float[Array, "*lead actions"], epsilon: Float[Array, "*#lead"]
) -> Float[Array, "*lead actions"]:
    """Logits of the policy that takes a random action with probability epsilon, else the greedy
    one.

    With A the allowed actions, |A| their number, and a* the first of those with the largest value:

        p_a = epsilon / |A| + (1 - epsilon) [a = a*]   for a in A, 0 for all others

    Args:
        values: of the actions; forbidden ones have the value `FORBIDDEN`.
        epsilon: between 0 and 1.
    """
    allowed = (values > FORBIDDEN / 2).astype(values.dtype)
    count = jnp.maximum(jnp.sum(allowed, axis=-1, keepdims=True), 1.0)
    chance = jnp.broadcast_to(epsilon.astype(values.dtype), values.shape[:-1])[..., None]
    greedy = jax.nn.one_hot(jnp.argmax(values, axis=-1), values.shape[-1], dtype=values.dtype)
    p = chance * allowed / count + (1.0 - chance) * greedy
    return jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1.0)), FORBIDDEN)
