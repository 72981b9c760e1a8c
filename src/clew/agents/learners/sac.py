"""Recurrent soft actor-critic: settings, heads, loss and update."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from clew.agents import replay as ring
from clew.agents.distributions import CONTINUOUS, Categorical, Distribution, Gaussian
from clew.agents.heads import Head, Heads, MakeHeads, parts_of
from clew.agents.learners.base import (
    Gathering,
    Learned,
    LearnerState,
    Metrics,
    adam,
    apply_gradient,
    is_scheduled,
    make_schedule,
    scale_steps,
    valid_mean,
    validate_adam,
)
from clew.agents.learners.replayed import (
    Drawn,
    ReplayedSequences,
    gradient_steps_of,
    validate_replay,
)
from clew.agents.network import Agent
from clew.agents.replay import Replay, Steps
from clew.agents.returns import n_step_returns
from clew.agents.trajectory import Rollout
from clew.errors import Settings, UserError, require_fraction, require_rate
from clew.memory.base import State
from clew.memory.parts.blocks import Init, LayerNorm, Linear


@dataclass(frozen=True)
class SACConfig(Settings):
    """Settings of SAC.

    "Paper" is Haarnoja et al. (2018), Soft Actor-Critic Algorithms and Applications; "quoted"
    values come from reimplementations and were not checked in the papers.
    """

    num_envs: int = 8
    """Environments stepped in parallel (paper: 1)."""
    rollout_length: int = 32
    """Steps of every environment between two updates. Must be a multiple of period."""
    sequence_length: int = 32
    """Length of the sequences that are learned from (Ni et al., 2022, quoted: 64 or whole
    episodes). Must be a multiple of period."""
    burn_in: int = 0
    """Steps before a sequence that are only read, for a state that suits the current parameters.
    Must be a multiple of period."""
    period: int = 32
    """Offset between neighbouring sequences, which overlap. The memory's state is stored at this
    interval."""
    first_state: str = "refreshed"
    """The memory before the burn-in: refreshed, its state at the time of acting with its caches
    rebuilt by the current parameters; stored, that state unchanged; or zero, as at the start of an
    episode."""
    replay_steps: int = 200_000
    """Size of the replay in steps of all environments together (paper: 1 million)."""
    learning_starts: int = 2_000
    """Steps of all environments together before the first gradient step (quoted: 1,000 to
    10,000)."""
    gradient_steps: int = 64
    """Gradient steps after every rollout (paper: one for each step)."""
    batch_size: int = 32
    """Sequences per gradient step (Ni et al., 2022, quoted: 32 or 64)."""
    learning_rate: float = 1e-3
    """Learning rate of Adam (paper: 3e-4)."""
    memory_rate: float = 1.0
    """Learning rate of the memory's parameters as a fraction of learning_rate; with 0 the memory
    keeps its initial weights. A smaller one keeps the memory's outputs stable for the critics (Luo
    et al., 2024, quoted: 1e-5 beside 3e-4, so 1/30)."""
    temperature_rate: float = 1.0
    """The same for the temperature (paper: 1); with 0 it keeps its initial value."""
    schedule: str = "constant"
    """Schedule of the learning rate over a run: constant; linear or cosine, down to 0 at the run's
    last gradient step; or module:function, one of your own, see `make_schedule`."""
    warmup_fraction: float = 0.0
    """Fraction of a run's gradient steps over which the learning rate first rises from 0."""
    gamma: float = 0.99
    """Discount per step (paper: 0.99)."""
    polyak: float = 0.01
    """How far the target network moves towards the network after every gradient step (paper:
    0.005)."""
    initial_temperature: float = 1.0
    """Weight of the entropy before the first gradient step (quoted: 1)."""
    target_entropy: float | None = None
    """Entropy in nats at which the temperature holds the policy. None for -1 per component of a
    continuous action (paper), and for a discrete choice a fraction of the maximum, log n, see
    entropy_fraction."""
    entropy_fraction: float = 0.3
    """The target for a choice among n allowed actions, as a fraction of log n (Christodoulou, 2019,
    quoted: 0.98, with which sampled actions stay nearly random)."""
    max_grad_norm: float | None = None
    """Maximum global norm of the gradient of all networks together; None for no clipping."""
    adam_b1: float = 0.9
    """Decay of Adam's mean of gradients, per gradient step."""
    adam_b2: float = 0.999
    """Decay of Adam's mean of squared gradients, per gradient step."""
    adam_eps: float = 1e-8
    """Added to Adam's denominator."""

    def validate(self) -> None:
        validate_replay(self)
        for name in ("gamma", "polyak", "entropy_fraction"):
            require_fraction(name, getattr(self, name))
        require_rate("temperature_rate", self.temperature_rate)
        for name in ("polyak", "initial_temperature"):
            require_rate(name, getattr(self, name), positive=True)
        target = self.target_entropy
        if target is not None and not math.isfinite(target):
            raise UserError(f"target_entropy must be a finite number or None, got {target!r}")
        validate_adam(self)


class Critic(eqx.Module):
    """Q(x) = relu(LN(relu(LN(x W_1 + b_1)) W_2 + b_2)) W_3 + b_3, or Q(x) = x W_3 + b_3.

    Source: two hidden layers as in Haarnoja et al. (2018), Table 1; layer norms (LN), which are a
    deviation, bound the values of actions that were never taken (Ball et al., 2023).
    """

    hidden: tuple[tuple[Linear, LayerNorm], ...]
    output: Linear

    def __init__(
        self, input_size: int, hidden_size: int, output_size: int, *, key: PRNGKeyArray, init: Init
    ):
        first, second, last = jax.random.split(key, 3)
        self.hidden = ()
        if hidden_size > 0:
            sizes = ((first, input_size), (second, hidden_size))
            self.hidden = tuple(
                (Linear(size, hidden_size, key=key, init=init), LayerNorm(hidden_size))
                for key, size in sizes
            )
        self.output = Linear(hidden_size or input_size, output_size, key=last, init=init)

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        for product, norm in self.hidden:
            x = jax.nn.relu(norm(product(x)))
        return self.output(x)


class SoftOutputs(NamedTuple):
    """The outputs of `SoftActorCritic`."""

    logits: Float[Array, "*lead parameters"]
    value: Float[Array, "*lead"] | None
    features: Float[Array, "*lead out"]
    """The memory's output h."""

    @property
    def action_values(self) -> None:
        """None: a policy is learned and evaluated."""
        return None


class SoftActorCritic(Heads):
    """A policy, two critics of a memory's output h and an action, and the temperature alpha.

        Q_i(h, a) = critic_i([h, tanh(u)])      for a continuous action, stored as u
        Q_i(h, a) = critic_i(h)_a               for one choice
        V(h)      = min_i Q_i(h, a*) + alpha H(pi(. | h))            continuous, a* the greedy one
        V(h)      = sum_a pi(a | h) min_i Q_i(h, a) + alpha H(pi(. | h))          for one choice

    Continuous actions are always squashed, with standard deviations that are outputs of the head:
    any other distribution is replaced by such a one with the same limits, initial standard
    deviation and noise. The standard deviation holds the entropy at its target for every
    observation, and a clipped action would have the same value as its neighbours.

    Where the critics have a memory of their own, h = [h_a, h_c] (`memory_of_critic`): the policy
    reads h_a, and the critics h_c in place of h.

    Args:
        temperature: alpha before training.
        of_actor: size of h_a; None if the policy and the critics read the same h. The other
            arguments are those of `MakeHeads`.

    Raises:
        UserError: for actions that are neither a single choice nor within finite limits.

    Source: Haarnoja et al. (2018), sections 4 and 5; Christodoulou (2019) for one choice, quoted.
    """

    actor: Head
    critics: tuple[Critic, Critic] | None
    """None in an agent that is left without its critics, whose value is None."""
    log_temperature: Float[Array, ""]
    distribution: Distribution
    of_actor: int | None = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        distribution: Distribution,
        *,
        hidden_size: int = 128,
        init: Init = "orthogonal",
        temperature: float,
        of_actor: int | None = None,
        key: PRNGKeyArray,
    ):
        self.distribution, self.of_actor = soft_distribution(distribution), of_actor
        actor_key, *critic_keys = jax.random.split(key, 3)
        outputs = self.distribution.num_outputs
        self.actor = Head(of_actor or size, hidden_size, outputs, key=actor_key, init=init)
        inputs, values = size if of_actor is None else size - of_actor, outputs
        if not self.discrete:
            inputs, values = inputs + outputs // 2, 1
        first, second = (Critic(inputs, hidden_size, values, key=k, init=init) for k in critic_keys)
        self.critics = first, second
        self.log_temperature = jnp.log(jnp.asarray(temperature, jnp.float32))

    @property
    def discrete(self) -> bool:
        """Whether actions are a single choice."""
        return isinstance(self.distribution, Categorical)

    @property
    def temperature(self) -> Float[Array, ""]:
        """alpha, the weight of the entropy."""
        return jnp.exp(self.log_temperature)

    def __call__(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None = None
    ) -> SoftOutputs:
        of_actor, of_critics = parts_of(h, self.of_actor)
        logits = self.policy(of_actor, mask)
        if self.critics is None:
            return SoftOutputs(logits, None, h)
        greedy = self.distribution.mode(logits)
        value = self.expected_value(logits, of_critics, greedy)
        value = value + self.temperature * self.distribution.entropy(logits)
        return SoftOutputs(logits, value, h)

    def without_critic(self) -> "SoftActorCritic":
        return eqx.tree_at(lambda heads: heads.critics, self, None)

    def policy(
        self, h: Float[Array, "*lead out"], mask: Bool[Array, "*lead actions"] | None
    ) -> Float[Array, "*lead parameters"]:
        """The parameters of the policy's distribution over the allowed actions, from its part of a
        memory's output."""
        logits = self.actor(h)
        return logits if mask is None else self.distribution.masked(logits, mask)

    def values(self, h: Float[Array, "*lead out"], action: Array) -> Float[Array, "*lead critics"]:
        """Both critics' values of one action."""
        if self.discrete:
            at = action[..., None, None]
            return jnp.take_along_axis(self._of_all(h), at, axis=-2)[..., 0, :]
        return self._of_continuous(h, action)

    def expected_value(
        self, logits: Float[Array, "*lead parameters"], h: Float[Array, "*lead out"], action: Array
    ) -> Float[Array, "*lead"]:
        """The expected value of a policy under the lower critic.

        Args:
            logits: the policy's; for a single choice the expectation is a sum over all actions.
            h: the critics' input.
            action: a sample from the policy; used only for continuous actions.
        """
        if not self.discrete:
            return jnp.min(self._of_continuous(h, action), axis=-1)
        lower = jnp.min(self._of_all(h), axis=-1)
        return jnp.sum(jax.nn.softmax(logits) * lower, axis=-1)

    def sampled_entropy(
        self, logits: Float[Array, "*lead parameters"], action: Array
    ) -> Float[Array, "*lead"]:
        """The policy's entropy; for continuous actions -log pi of a sample."""
        if self.discrete:
            return self.distribution.entropy(logits)
        return -self.distribution.log_prob(logits, action)

    @property
    def _both(self) -> tuple[Critic, Critic]:
        return cast("tuple[Critic, Critic]", self.critics)

    def _of_all(self, h: Float[Array, "*lead out"]) -> Float[Array, "*lead actions critics"]:
        return jnp.stack([critic(h) for critic in self._both], axis=-1)

    def _of_continuous(
        self, h: Float[Array, "*lead out"], action: Array
    ) -> Float[Array, "*lead critics"]:
        squashed = jnp.tanh(action).reshape(*h.shape[:-1], -1)
        x = jnp.concatenate([h, squashed.astype(h.dtype)], axis=-1)
        return jnp.concatenate([critic(x) for critic in self._both], axis=-1)


def soft_distribution(distribution: Distribution) -> Distribution:
    """The distribution that SAC learns for these actions, see `SoftActorCritic`.

    Raises:
        UserError: for several choices, bits, or actions without finite limits.
    """
    if isinstance(distribution, Categorical):
        return distribution
    if not isinstance(distribution, Gaussian):
        raise UserError(
            f"sac needs one choice of actions (Discrete) or continuous ones (Box), got actions of "
            f"a {distribution.space_kind} space; choose ppo or a2c, which learn any policy"
        )
    given, bounds = distribution, distribution.bounds
    bounds.require_finite("sac needs", "choose ppo or a2c")
    return CONTINUOUS["tanh"](
        bounds.shape,
        np.reshape(bounds.low, bounds.shape),
        np.reshape(bounds.high, bounds.shape),
        dtype=bounds.dtype,
        log_std="head",
        initial_log_std=given.initial_log_std,
        log_std_bounds=given.log_std_bounds,
        noise_steps=given.noise_steps,
    )


class Others(NamedTuple):
    """SAC's small state."""

    target: PyTree[Array]
    """The target network's parameters."""


class Batch(NamedTuple):
    """The inputs of the loss."""

    steps: Steps
    """The sequences, with the observation after them."""
    states: State
    """The memory before them."""
    target_features: Float[Array, "time_and_one batch out"]
    """What the target network's critics read at each observation."""
    noise: tuple[Array, Array]
    """Noise of the actions that targets and policy take at each observation: [T+1, B, n]."""


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic from replayed sequences, with a memory.

    A policy that is rewarded for its entropy gathers; after each rollout come gradient steps on
    uniformly drawn sequences for two critics, the policy, and the temperature, which weighs the
    entropy against the reward. The target network follows the network slowly.

    Deviations: sequences and burn-in as in R2D2 (`ReplayedSequences`) instead of whole episodes;
    all losses are summed for one step of Adam, so `max_grad_norm` clips them together; there is no
    initial phase of random actions. In Gymnasium environments that open the next episode at once, a
    step that truncates an episode has a value from the time of acting.

    Source: Haarnoja et al. (2018), Soft Actor-Critic Algorithms and Applications; Christodoulou
    (2019), Soft Actor-Critic for Discrete Action Settings, quoted; Ni et al. (2022), Recurrent
    Model-Free RL Can Be a Strong Baseline for Many POMDPs, quoted.
    """

    settings: ClassVar[type] = SACConfig
    metrics: ClassVar[tuple[str, ...]] = (
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "temperature",
        "action_value",
        "value",
        "grad_norm",
    )

    config: SACConfig
    updates: int = 1
    """Number of updates in the whole run, at whose end a schedule reaches 0."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, see `adam`, with separate learning rates for memory and temperature."""
        config = self.config
        schedule = make_schedule(config, gradient_steps_of(config, self.updates))
        return optax.chain(
            adam(config, schedule),
            scale_steps(config.memory_rate, lambda agent: [agent.memory]),
            scale_steps(config.temperature_rate, lambda agent: [_heads(agent).log_temperature]),
        )

    @property
    def replayed(self) -> ReplayedSequences:
        """The sequences that are kept and replayed."""
        return ReplayedSequences(self.config)

    @property
    def gathering(self) -> Gathering:
        """Rollouts in blocks by the policy, which may lag behind."""
        return self.replayed.gathering(scheduled=is_scheduled(self.config))

    @property
    def make_heads(self) -> MakeHeads:
        """A policy, critics and a temperature.

        Building them raises `UserError` for a target_entropy that no policy over the actions can
        have.
        """
        return partial(self._reachable_heads, temperature=self.config.initial_temperature)

    def _reachable_heads(
        self, size: int, distribution: Distribution, *, of_actor: int | None = None, **given: Any
    ) -> SoftActorCritic:
        heads = SoftActorCritic(size, distribution, of_actor=of_actor, **given)
        target, count = self.config.target_entropy, heads.distribution.num_outputs
        if target is None:
            return heads
        if heads.discrete and not 0 <= target <= math.log(count):
            raise UserError(
                f"target_entropy must be from 0 to log {count} = {math.log(count):.3f} nats, the "
                f"most that a choice among {count} actions has, got {target}"
            )
        components = count // 2
        if not heads.discrete and target >= components * math.log(2):
            raise UserError(
                f"target_entropy must be below {components} log 2 = {components * math.log(2):.3f} "
                f"nats, that of actions drawn evenly from [-1, 1], got {target}"
            )
        return heads

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        """Adam's state, the target network, which starts as a copy of the agent, and an empty
        replay."""
        params = eqx.filter(agent, eqx.is_inexact_array)
        shapes = template()
        states = jax.eval_shape(partial(self._kept, agent), shapes)
        return LearnerState(
            self.optimiser.init(params),
            Others(jax.tree.map(jnp.copy, params)),
            ring.init_replay(shapes, states, self.config.replay_steps),
        )

    def add(self, agent: Agent, state: LearnerState, rollout: Rollout) -> LearnerState:
        """The state with a rollout in the replay."""
        kept = self._kept(agent, rollout)
        return state._replace(replay=ring.add(cast(Replay, state.replay), rollout.chunks, kept))

    def _kept(self, agent: Agent, rollout: Rollout) -> PyTree:
        """The stored states before each block of a rollout, in a tuple as checkpoints have them."""
        return self.replayed.kept(agent, rollout.chunks.state0, self.config.num_envs), ()

    def learn(
        self, agent: Agent, state: LearnerState, rollout: Rollout, key: PRNGKeyArray
    ) -> Learned:
        """Adds the rollout to the replay, then takes `gradient_steps` once it holds enough.

        Metrics are means over the gradient steps, and 0 before the first.
        """
        state = self.add(agent, state, rollout)
        return self.replayed.learn(agent, state, self._gradient_step, key, self.metrics)

    def _gradient_step(
        self, replay: Replay, agent: Agent, state: LearnerState, key: PRNGKeyArray
    ) -> Learned:
        draw_key, noise_key = jax.random.split(key)
        others = cast(Others, state.others)
        drawn = self.replayed.take(replay, self.replayed.draw(replay, draw_key))
        target = eqx.combine(others.target, agent)
        batch = self.batch(agent, target, drawn, noise_key)
        found, gradient = eqx.filter_value_and_grad(self.loss, has_aux=True)(
            agent, _heads(target), batch
        )
        made = apply_gradient(agent, state, found, gradient, self.optimiser)
        params = eqx.filter(made.agent, eqx.is_inexact_array)
        following = optax.incremental_update(params, others.target, self.config.polyak)
        return made._replace(state=made.state._replace(others=Others(following)))

    def batch(self, agent: Agent, target: Agent, drawn: Drawn, key: PRNGKeyArray) -> Batch:
        """The inputs of the loss; no gradient passes into them."""
        replayed, steps = self.replayed, drawn.learned
        states, target_states = (
            replayed.states(network, drawn.state0[0], drawn.read) for network in (agent, target)
        )
        outputs = replayed.values(target, target_states, steps).outputs
        of_critics = parts_of(outputs.features, _heads(target).of_actor)[1]
        draw = partial(agent.distribution.noise, lead=steps.start.shape)
        first, second = jax.random.split(key)
        return Batch(steps, states, of_critics, (draw(first), draw(second)))

    def loss(
        self, agent: Agent, target: SoftActorCritic, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        """The sum of the losses of critics, policy and temperature, and its terms.

        With h the memory's outputs, h' and Q' the target network's outputs and critics, sg a
        stopped gradient, E over the policy's actions (a sum for a single choice, one sample for
        continuous actions), H their entropy, H* its target, and means over the valid steps:

            V_t         = E[min_i Q'_i(h'_t, a)] + alpha H(pi(. | h_t))
            y_t         = sg(r_t + d_t V_{t+1})
            value_loss  = sum_i mean((Q_i(h_t, a_t) - y_t)^2) / 2
            policy_loss = -mean(E[sg(min_i Q_i)(sg(h_t), a)] + sg(alpha) H(pi(. | h_t)))
            temperature = alpha mean(sg(H(pi(. | h_t)) - H*))

        The policy reads sg(h_t) too, so that a memory learns from the critics' loss alone. Where
        the critics have a memory of their own, they read its h, and the actor's memory learns from
        the policy's loss.

        Source: Haarnoja et al. (2018), Eqs. 3, 5, 9 and 18; Christodoulou (2019), quoted.
        """
        steps, valid = batch.steps, ~batch.steps.last[:-1]
        (outputs, metrics), heads = self.replayed.values(agent, batch.states, steps), _heads(agent)
        of_critics = parts_of(outputs.features, heads.of_actor)[1]
        still, logits, alpha = jax.lax.stop_gradient(of_critics), outputs.logits, heads.temperature
        if heads.of_actor is None:
            logits = heads.policy(still, agent.read_mask(steps.observation))
        later, _ = soft_value(heads, target, logits, batch.target_features, batch.noise[0])
        y = self.targets(steps, later)
        taken = heads.values(of_critics[:-1], steps.action)
        soft, entropy = soft_value(heads, stopped(heads), logits, still, batch.noise[1])
        gap = jax.lax.stop_gradient(entropy - self.target_entropy(agent, steps))
        each = {
            "value_loss": half_squares(taken, y, valid),
            "policy_loss": -soft[:-1],
            "temperature_loss": alpha * gap[:-1],
            "entropy": entropy[:-1],
            "action_value": jnp.min(taken, axis=-1),
            "value": later[:-1],
        } | {f"memory.{name}": metric[:-1] for name, metric in metrics.items()}
        parts = {name: valid_mean(x, valid) for name, x in each.items()}
        total = parts["value_loss"] + parts["policy_loss"] + parts.pop("temperature_loss")
        return total, parts | {"temperature": alpha}

    def targets(
        self, steps: Steps, value: Float[Array, "time_and_one batch"]
    ) -> Float[Array, "time batch"]:
        """y_t = r_t + d_t V_{t+1}, without a gradient; V_t where a transition is not valid."""
        discount = self.config.gamma * steps.discount
        valid = ~steps.last[:-1]
        return jax.lax.stop_gradient(n_step_returns(steps.reward, discount, value, valid, 1))

    def target_entropy(
        self, agent: Agent, steps: Steps
    ) -> float | Float[Array, "time_and_one batch"]:
        """The entropy at which the temperature holds the policy, see the settings."""
        heads = _heads(agent)
        if self.config.target_entropy is not None:
            return self.config.target_entropy
        if not heads.discrete:
            return -float(heads.distribution.num_outputs // 2)
        mask, count = agent.read_mask(steps.observation), heads.distribution.num_outputs
        if mask is None:
            return self.config.entropy_fraction * math.log(count)
        allowed = jnp.maximum(jnp.sum(mask, axis=-1), 1).astype(jnp.float32)
        return self.config.entropy_fraction * jnp.log(allowed)


def soft_value(
    heads: SoftActorCritic,
    judge: SoftActorCritic,
    logits: Float[Array, "*lead parameters"],
    features: Float[Array, "*lead out"],
    noise: Array,
) -> tuple[Float[Array, "*lead"], Float[Array, "*lead"]]:
    """V = E[min_i Q_i] + alpha H of a policy, and its entropy H; no gradient passes into alpha.

    Args:
        heads: give the temperature.
        judge: gives the critics.
        logits: the policy's.
        features: the critics' input.
        noise: for one sample of continuous actions.
    """
    action = heads.distribution.sample(logits, noise)
    entropy = heads.sampled_entropy(logits, action)
    alpha = jax.lax.stop_gradient(heads.temperature)
    return judge.expected_value(logits, features, action) + alpha * entropy, entropy


def half_squares(
    values: Float[Array, "time batch critics"],
    target: Float[Array, "time batch"],
    valid: Bool[Array, "time batch"],
) -> Float[Array, "time batch"]:
    """sum_i (Q_i - y)^2 / 2, and 0 at invalid steps, which may hold anything."""
    errors = jnp.where(valid[..., None], values - target[..., None], 0.0)
    return 0.5 * jnp.sum(jnp.square(errors), axis=-1)


def stopped(heads: SoftActorCritic) -> SoftActorCritic:
    """The same heads; no gradient passes into their parameters."""
    arrays, rest = eqx.partition(heads, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


def _heads(agent: Agent) -> SoftActorCritic:
    return cast(SoftActorCritic, agent.heads)
