"""Advantage actor-critic: settings, loss and update."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.agents.distributions import Distribution
from clew.agents.heads import ActorCritic, MakeHeads
from clew.agents.learners.base import (
    LOSS_METRICS,
    Gathering,
    Learned,
    LearnerState,
    OneStep,
    accumulate_gradient,
    adam,
    apply_gradient,
    fractions,
    gradient_step,
    init_optimiser,
    is_scheduled,
    learn_minibatches,
    make_schedule,
    normalised,
    require_parts,
    take_batch,
    valid_mean,
    valid_sum,
    validate_actor_critic,
    with_memory_rate,
)
from clew.agents.network import Agent
from clew.agents.returns import lambda_returns
from clew.agents.trajectory import Reading, Rollout, Trajectory, reread
from clew.errors import Settings, UserError, require_at_least, require_choice


@dataclass(frozen=True)
class A2CConfig(Settings):
    """Settings of advantage actor-critic. "Table A.1" is Pramanik's (2023)."""

    num_envs: int = 8
    """Environments stepped in parallel (Table A.1: 8)."""
    rollout_length: int = 128
    """Steps of every environment between two updates; gradients reach back no further
    (Table A.1: 256)."""
    minibatches: int = 1
    """Gradient steps per rollout, each on its own part of the environments; 1 uses all at once, as
    published. Must divide num_envs."""
    gradient_accumulation: int = 1
    """Parts in which a gradient step reads its environments, one after the other, to save memory;
    up to rounding the step is the same. Must divide the environments of a minibatch."""
    learning_rate: float = 1e-3
    """Learning rate of Adam (Table A.1 sweeps 1e-3 to 1e-5)."""
    memory_rate: float = 1.0
    """Learning rate of the memory's parameters as a fraction of learning_rate; with 0 the memory
    keeps its initial weights."""
    schedule: str = "constant"
    """Schedule of the learning rate over a run: constant, as published; linear or cosine, down to 0
    at the last gradient step; or module:function, one of your own, see `make_schedule`."""
    warmup_fraction: float = 0.0
    """Fraction of a run's gradient steps over which the learning rate first rises from 0."""
    gamma: float = 0.99
    """Discount per step (Table A.1: 0.99)."""
    lam: float = 0.95
    """Lambda of the returns: 0 looks one step ahead, 1 to the episode's end (Table A.1: 0.95)."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus, per nat (Table A.1 sweeps 1e-1 to 1e-5)."""
    value_cost: float = 0.5
    """Weight of the squared error of the value (Table A.1: 0.5)."""
    max_grad_norm: float | None = 0.5
    """Maximum global norm of the gradient; None for no clipping (0.5 in the authors' published
    code, not given in the thesis)."""
    adam_b1: float = 0.9
    """Decay of Adam's mean of gradients, per update."""
    adam_b2: float = 0.999
    """Decay of Adam's mean of squared gradients, per update."""
    adam_eps: float = 1e-8
    """Added to Adam's denominator (1e-8 in the authors' published code)."""
    advantage_normalisation: bool = False
    """Scale the advantages of a batch to mean 0 and standard deviation 1 (off in the authors'
    code)."""
    whole_episodes: bool = False
    """Make every rollout one whole episode of each environment, of at most rollout_length steps;
    environments whose episode has ended wait for the others, and their steps count too (on in
    Makkink's published code, with one environment)."""
    return_normalisation: bool = False
    """Scale the returns of every episode to mean 0 and standard deviation 1, unless they are all
    equal; the value learns the scaled returns. Needs whole_episodes (on in Makkink's published
    code)."""
    loss_over_time: str = "mean"
    """How the loss reduces the valid steps of a rollout: mean, or sum over each environment's steps
    (sum in Makkink's published code)."""
    ponder_cost: float = 0.0
    """Weight of an adaptive memory's ponder cost (0 in Makkink, 2021)."""

    def validate(self) -> None:
        for name in ("num_envs", "rollout_length", "minibatches"):
            require_at_least(name, getattr(self, name), 1)
        if self.num_envs % self.minibatches:
            raise UserError(
                f"minibatches must divide num_envs, got {self.minibatches} minibatches of "
                f"{self.num_envs} environments"
            )
        require_parts(self.gradient_accumulation, self.num_envs // self.minibatches, "environments")
        if self.gradient_accumulation > 1 and self.advantage_normalisation:
            raise UserError(
                "gradient_accumulation needs advantage_normalisation off: a2c computes advantages "
                "while it reads, so a part would be normalised differently from the whole"
            )
        require_choice("loss_over_time", self.loss_over_time, ("mean", "sum"))
        if self.return_normalisation and not self.whole_episodes:
            raise UserError("return_normalisation needs whole_episodes, which is off")
        validate_actor_critic(self)


def a2c_loss(
    agent: Agent, trajectory: Trajectory, config: A2CConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss of advantage actor-critic and its terms.

    With G the lambda-returns over this network's own values, A_t = sg(G_t) - V_t, H the entropy,
    P the memory's ponder cost where it has one, and means over the valid transitions:

        L_policy = mean(-log pi(a_t | o_t) sg(A_t))
        L_value  = mean((sg(G_t) - V_t)^2)
        L        = L_policy + value_cost L_value - entropy_cost mean(H_t) + ponder_cost mean(P_t)

    or sums over time and means over environments instead (`loss_over_time`). Logits and values are
    the current network's, see `trajectory.reread`.

    Returns:
        The loss, and "policy_loss", "value_loss", "entropy", "value" (the mean value), and the
        means of the memory's metrics as "memory.NAME".

    Source: Pramanik (2023), section 5.1 and Table A.1; constants in `A2CConfig`. Makkink (2021),
    section 3.2 and Algorithm 1, as in its published code, with whole episodes and normalised
    returns.
    """
    return loss_of_reading(reread(agent, trajectory), trajectory, agent.distribution, config)


def loss_of_reading(
    reading: Reading, trajectory: Trajectory, distribution: Distribution, config: A2CConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """`a2c_loss` from the network's outputs for all T+1 observations."""
    (logits, values), metrics = reading
    returns = jax.lax.stop_gradient(
        lambda_returns(
            trajectory.reward,
            config.gamma * trajectory.discount,
            values,
            trajectory.valid,
            config.lam,
        )
    )
    if config.return_normalisation:
        returns = _normalised_in_episodes(returns, trajectory.valid)
    log_prob = distribution.log_prob(logits[:-1], trajectory.action)
    entropy = distribution.entropy(logits[:-1])
    errors = returns - values[:-1]
    advantage = jax.lax.stop_gradient(errors)
    if config.advantage_normalisation:
        advantage = normalised(advantage, trajectory.valid)
    each = {
        "policy_loss": -log_prob * advantage,
        "value_loss": jnp.square(errors),
        "entropy": entropy,
        "value": values[:-1],
    } | {f"memory.{name}": metric[:-1] for name, metric in metrics.items()}
    costs = {"policy_loss": 1.0, "value_loss": config.value_cost, "entropy": -config.entropy_cost}
    if "memory.ponder_cost" in each:
        costs["memory.ponder_cost"] = config.ponder_cost
    parts = {name: valid_mean(x, trajectory.valid) for name, x in each.items()}
    over_time = valid_mean if config.loss_over_time == "mean" else valid_sum
    terms = [cost * over_time(each[name], trajectory.valid) for name, cost in costs.items()]
    loss = sum(terms[1:], terms[0])
    return loss, parts


def _normalised_in_episodes(
    returns: Float[Array, "time batch"], valid: Bool[Array, "time batch"]
) -> Float[Array, "time batch"]:
    """Each environment's valid returns with mean 0 and standard deviation 1; unchanged if all
    equal.

    The standard deviation is the biased one. Returns that differ only by rounding count as equal;
    otherwise the rounding would be scaled to 1.
    """
    number = jnp.maximum(jnp.sum(valid, axis=0), 1).astype(returns.dtype)
    mean = jnp.sum(jnp.where(valid, returns, 0.0), axis=0) / number
    centred = returns - jnp.broadcast_to(mean, returns.shape)
    deviation = jnp.sqrt(jnp.sum(jnp.where(valid, jnp.square(centred), 0.0), axis=0) / number)
    largest = jnp.max(jnp.where(valid, jnp.abs(returns), 0.0), axis=0)
    rounding = len(returns) * jnp.finfo(returns.dtype).eps * largest
    scale = jnp.broadcast_to(jnp.where(deviation > rounding, deviation, 0.0), returns.shape)
    return jnp.where(scale > 0, centred / jnp.where(scale > 0, scale, 1.0), returns)


@dataclass(frozen=True)
class A2C:
    """Advantage actor-critic: one gradient step per minibatch of a rollout."""

    settings: ClassVar[type] = A2CConfig
    metrics: ClassVar[tuple[str, ...]] = LOSS_METRICS

    config: A2CConfig
    updates: int = 1
    """Number of updates in the whole run, at whose end a schedule reaches 0."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, see `adam`, with the settings' schedule."""
        config = self.config
        schedule = make_schedule(config, self.updates * config.minibatches)
        return with_memory_rate(adam(config, schedule), config)

    @property
    def gathering(self) -> Gathering:
        """Whole rollouts by its own policy."""
        config = self.config
        parts = config.minibatches * config.gradient_accumulation
        loss = partial(loss_of_reading, config=config)
        return Gathering(
            sequences_per_step=config.num_envs // parts,
            whole_episodes=config.whole_episodes,
            scheduled=is_scheduled(config),
            one_step=OneStep(loss, self.optimiser) if parts == 1 else None,
        )

    @property
    def make_heads(self) -> MakeHeads:
        """A policy and a value."""
        return ActorCritic

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        """The state of Adam."""
        return init_optimiser(self.optimiser, agent)

    def learn(
        self, agent: Agent, state: LearnerState, rollout: Rollout, key: PRNGKeyArray
    ) -> Learned:
        """One gradient step per minibatch; metrics are means over the minibatches.

        With more than one minibatch the environments are permuted at random; they stay whole,
        because a memory must read its observations in order.
        """
        config, trajectory = self.config, rollout.whole
        if config.minibatches == 1:
            return self._gradient_step(agent, state, trajectory)
        order = jax.random.permutation(key, config.num_envs).reshape(config.minibatches, -1)

        def one(agent: Agent, state: LearnerState, chosen: Array) -> Learned:
            return self._gradient_step(agent, state, take_batch(trajectory, chosen))

        return learn_minibatches(agent, state, order, one)

    def _gradient_step(self, agent: Agent, state: LearnerState, trajectory: Trajectory) -> Learned:
        """A gradient step on some environments, read at once or in parts."""
        config, count = self.config, self.config.gradient_accumulation
        loss = partial(a2c_loss, config=config)
        if count == 1:
            return gradient_step(agent, state, trajectory, loss, self.optimiser)
        chosen = jnp.arange(trajectory.start.shape[1]).reshape(count, -1)
        found = accumulate_gradient(
            loss,
            agent,
            partial(take_batch, trajectory),
            chosen,
            fractions(trajectory.valid, chosen),
            None if config.loss_over_time == "mean" else jnp.full(count, 1 / count),
        )
        return apply_gradient(agent, state, *found, self.optimiser)
