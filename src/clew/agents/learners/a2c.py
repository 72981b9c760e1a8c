"""Advantage actor-critic: settings and loss."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.agents.returns import lambda_returns
from clew.agents.trajectory import Outputs, Trajectory, reread
from clew.errors import (
    UserError,
    require_at_least,
    require_choice,
    require_fraction,
    require_rate,
)


@dataclass(frozen=True)
class A2CConfig:
    """Settings of advantage actor-critic. "Table A.1" is Pramanik's (2023)."""

    num_envs: int = 8
    """Environments stepped side by side (Table A.1: 8)."""
    rollout_length: int = 128
    """Steps of every environment between two updates; gradients reach back no further
    (Table A.1: 256)."""
    minibatches: int = 1
    """Gradient steps per rollout, each on its own share of the environments; 1 takes all at once,
    as published. Must divide num_envs."""
    learning_rate: float = 1e-3
    """Step size of Adam, constant (Table A.1 sweeps 1e-3 to 1e-5)."""
    gamma: float = 0.99
    """Discount per step (Table A.1: 0.99)."""
    lam: float = 0.95
    """Lambda of the returns: 0 looks one step ahead, 1 to the episode's end (Table A.1: 0.95)."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus, per nat (Table A.1 sweeps 1e-1 to 1e-5)."""
    value_cost: float = 0.5
    """Weight of the squared error of the value (Table A.1: 0.5)."""
    max_grad_norm: float | None = 0.5
    """Largest global norm of the gradient, longer ones are scaled down; None for no limit (0.5 in
    the authors' published code, the thesis is silent)."""
    adam_b1: float = 0.9
    """Decay of Adam's mean of gradients, per update."""
    adam_b2: float = 0.999
    """Decay of Adam's mean of squared gradients, per update."""
    adam_eps: float = 1e-8
    """Added to Adam's denominator (1e-8 in the authors' published code)."""
    advantage_normalisation: bool = False
    """Scale the advantages of a batch to mean 0 and deviation 1 (off in the authors' code)."""
    whole_episodes: bool = False
    """Make every rollout one whole episode of each environment, of at most rollout_length steps;
    whoever has ended waits for the others (on in Makkink's published code, with one environment).
    Steps count whether somebody waits or not."""
    return_normalisation: bool = False
    """Scale the returns of every episode to mean 0 and deviation 1, unless they are all equal; the
    value learns the scaled ones. Needs whole_episodes (on in Makkink's published code)."""
    loss_over_time: str = "mean"
    """What the loss takes over the valid steps of a rollout: their mean, or for each environment
    their sum (in Makkink's published code the sum)."""
    ponder_cost: float = 0.0
    """Weight of what an adaptive memory pays for an observation, its readings and the last one's
    share (0 in Makkink, 2021)."""

    @property
    def sequence_length(self) -> int:
        """Steps that are read in one piece while learning: the whole rollout."""
        return self.rollout_length

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        for name in ("num_envs", "rollout_length", "minibatches"):
            require_at_least(name, getattr(self, name), 1)
        if self.num_envs % self.minibatches:
            raise UserError(
                f"minibatches must divide num_envs, got {self.minibatches} minibatches of "
                f"{self.num_envs} environments"
            )
        require_choice("loss_over_time", self.loss_over_time, ("mean", "sum"))
        if self.return_normalisation and not self.whole_episodes:
            raise UserError("return_normalisation needs whole_episodes, which is off")
        for name in ("learning_rate", "entropy_cost", "value_cost", "ponder_cost"):
            require_rate(name, getattr(self, name))
        require_rate("adam_eps", self.adam_eps, positive=True)
        for name in ("gamma", "lam", "adam_b1", "adam_b2"):
            require_fraction(name, getattr(self, name))
        if 1 in (self.adam_b1, self.adam_b2):
            raise UserError("adam_b1 and adam_b2 must be below 1, at 1 nothing is ever learned")
        if self.max_grad_norm is not None:
            require_rate("max_grad_norm", self.max_grad_norm, positive=True)


def a2c_loss(
    agent: Agent, trajectory: Trajectory, config: A2CConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss of advantage actor-critic and its parts.

    With G the lambda-returns over this network's own values, A_t = sg(G_t) - V_t, H the entropy,
    P the memory's ponder cost where it has one, and means over the valid transitions:

        L_policy = mean(-log pi(a_t | o_t) sg(A_t))
        L_value  = mean((sg(G_t) - V_t)^2)
        L        = L_policy + value_cost L_value - entropy_cost mean(H_t) + ponder_cost mean(P_t)

    or sums over time, means over environments, in their place (`loss_over_time`). Logits and
    values are the present network's, see `trajectory.reread`.

    Returns:
        The loss, and "policy_loss", "value_loss", "entropy", "value" (the mean value), and the
        means of the memory's metrics as "memory.NAME".

    Source: Pramanik (2023), Algorithm 1 and section 5.1; constants in `A2CConfig`. Makkink (2021),
    section 3.2, as its published code has it, with whole episodes and normalised returns.
    """
    return loss_of_outputs(reread(agent, trajectory), trajectory, config, agent.distribution)


def loss_of_outputs(
    outputs: Outputs, trajectory: Trajectory, config: A2CConfig, distribution: Distribution
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """`a2c_loss` of what the network says of all T+1 observations."""
    logits, values, metrics = outputs
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
    loss = sum((c * over_time(each[n], trajectory.valid) for n, c in costs.items()), jnp.zeros(()))
    return loss, parts


def valid_mean(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, ""]:
    """The mean of `x` where `valid`, 0 if nothing is; what is not valid may even be NaN."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid.astype(x.dtype)), 1.0)


def valid_sum(x: Float[Array, "time batch"], valid: Bool[Array, "time batch"]) -> Array:
    """The sum over time of `x` where `valid`, and its mean over environments."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / x.shape[1]


def _normalised_in_episodes(
    returns: Float[Array, "time batch"], valid: Bool[Array, "time batch"]
) -> Float[Array, "time batch"]:
    """Each environment's valid returns with mean 0 and deviation 1, as they are if all are equal.

    The deviation is the biased one.
    """
    number = jnp.maximum(jnp.sum(valid, axis=0), 1).astype(returns.dtype)
    mean = jnp.sum(jnp.where(valid, returns, 0.0), axis=0) / number
    centred = returns - jnp.broadcast_to(mean, returns.shape)
    deviation = jnp.sqrt(jnp.sum(jnp.where(valid, jnp.square(centred), 0.0), axis=0) / number)
    scale = jnp.broadcast_to(deviation, returns.shape)
    return jnp.where(scale > 0, centred / jnp.where(scale > 0, scale, 1.0), returns)


def normalised(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, "*axes"]:
    """`x` with mean 0 and (biased) deviation 1 over what is `valid`."""
    centred = x - valid_mean(x, valid)
    return centred / (jnp.sqrt(valid_mean(jnp.square(centred), valid)) + 1e-8)
