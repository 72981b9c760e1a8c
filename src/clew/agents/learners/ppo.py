"""Proximal policy optimisation: settings, loss and update."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from clew.agents.heads import ActorCritic, MakeHeads, known_value
from clew.agents.learners.base import (
    LOSS_METRICS,
    Gathering,
    Learned,
    LearnerState,
    Metrics,
    adam,
    apply_gradient,
    count_sequences,
    draw_minibatches,
    find_gradient,
    gather_sequences,
    init_optimiser,
    is_scheduled,
    make_schedule,
    normalised,
    valid_mean,
    validate_actor_critic,
    validate_sequences,
    with_memory_rate,
)
from clew.agents.network import Agent
from clew.agents.returns import lambda_returns, vtrace
from clew.agents.trajectory import (
    Rollout,
    Trajectory,
    as_environments,
    joined,
    read,
    refresh_all,
    reread,
    side_by_side,
    step_all,
)
from clew.envs.base import Observation
from clew.errors import Settings, UserError, require_choice, require_rate
from clew.memory.base import State

ADVANTAGES = ("gae", "vtrace")
LARGEST_LOG_RATIO = 80.0
"""Bound on the log ratio of an action's new and old probability; exp of more than 88 is infinite,
and gives NaN gradients even where a clipped ratio has none."""
LOWER_CLIPS = ("symmetric", "reciprocal")


@dataclass(frozen=True)
class PPOConfig(Settings):
    """Settings of proximal policy optimisation.

    The defaults are those of Schulman et al. (2017), Table 3 (Atari), unless stated otherwise.
    "Table A.3" is Pramanik's (2023), for Memory Maze.
    """

    num_envs: int = 8
    """Environments stepped in parallel (Table A.3: 64, by 32 processes)."""
    rollout_length: int = 128
    """Steps of every environment between two updates (Table A.3: 200)."""
    sequence_length: int = 32
    """Length of the sequences that learning reads, from the memory's state at the time of acting;
    gradients reach back no further. Must divide rollout_length (Table A.3: 100)."""
    minibatches: int = 4
    """Gradient steps of an epoch, each on its own part of the sequences, in random order.
    Must divide their number, num_envs x rollout_length / sequence_length (Table A.3: 1, a batch of
    3,200 steps)."""
    epochs: int = 4
    """Passes over the sequences of a rollout (Schulman et al.: 3; Table A.3: 1)."""
    gradient_accumulation: int = 1
    """Parts in which a gradient step reads its sequences, one after the other, to save memory; up
    to rounding the step is the same. Must divide the sequences of a minibatch."""
    learning_rate: float = 2.5e-4
    """Learning rate of Adam (Table A.3 sweeps 2.5e-3 to 2.5e-5)."""
    memory_rate: float = 1.0
    """Learning rate of the memory's parameters as a fraction of learning_rate; with 0 the memory
    keeps its initial weights."""
    schedule: str = "constant"
    """Schedule of the learning rate over a run: constant; linear or cosine, down to 0 at the run's
    last gradient step (Schulman et al., Table 3: linear; Table A.3: constant); or module:function,
    one of your own, see `make_schedule`."""
    warmup_fraction: float = 0.0
    """Fraction of a run's gradient steps over which the learning rate first rises from 0."""
    gamma: float = 0.99
    """Discount per step (Table A.3: 0.99)."""
    lam: float = 0.95
    """Lambda of the advantages (Table A.3: 0.95)."""
    advantages: str = "gae"
    """How advantages are estimated: gae, from the values at the time of acting (Schulman et al.,
    2016), or vtrace, from the current values and corrected for the current policy (Espeholt et al.,
    2018, section 4.1), for rollouts that lag behind, as with runner async."""
    vtrace_clip: float = 1.0
    """Maximum weight in V-trace, for both rho and c (Espeholt et al., 2018: 1)."""
    clip_ratio: float = 0.2
    """Clip the ratio of new to old probability at 1 plus this (Schulman et al., section 6.1: 0.2,
    Table 3: 0.1; Table A.3: 0.1)."""
    lower_clip: str = "symmetric"
    """Where the ratio is clipped below 1: at 1 - clip_ratio (symmetric) or at 1 / (1 + clip_ratio)
    (reciprocal, as in Sample Factory, which made Table A.3's runs)."""
    value_clip: float | None = None
    """Clip the change of a value from the one at the time of acting; None for no clipping (Table
    A.3: 1; Engstrom et al., 2020, find that it does not help)."""
    advantage_normalisation: bool = True
    """Scale the advantages of every minibatch to mean 0 and standard deviation 1."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus, per nat (Schulman et al., Table 3: 0.01; Table A.3 sweeps 0.03
    to 0.0003)."""
    value_cost: float = 0.5
    """Weight of the squared error of the value (Table A.3: 0.5)."""
    target_kl: float | None = None
    """Skip a rollout's remaining gradient steps once the KL divergence between the policy that
    acted and the new one exceeds this, in nats; None for never."""
    max_grad_norm: float | None = 0.5
    """Maximum global norm of the gradient; None for no clipping (Table A.3: 4)."""
    adam_b1: float = 0.9
    """Decay of Adam's mean of gradients, per gradient step."""
    adam_b2: float = 0.999
    """Decay of Adam's mean of squared gradients, per gradient step."""
    adam_eps: float = 1e-5
    """Added to Adam's denominator (1e-5 in the code of Schulman et al.; 1e-6 in Sample Factory)."""
    ponder_cost: float = 0.0
    """Weight of an adaptive memory's ponder cost."""

    @property
    def sequences(self) -> int:
        """Number of sequences in a rollout, over all its environments."""
        return count_sequences(self)

    def validate(self) -> None:
        validate_sequences(self)
        require_choice("advantages", self.advantages, ADVANTAGES)
        require_choice("lower_clip", self.lower_clip, LOWER_CLIPS)
        for name in ("clip_ratio", "vtrace_clip"):
            require_rate(name, getattr(self, name), positive=True)
        if self.lower_clip == "symmetric" and self.clip_ratio >= 1:
            raise UserError(f"clip_ratio must be below 1, got {self.clip_ratio!r}")
        validate_actor_critic(self)
        for name in ("value_clip", "target_kl"):
            if getattr(self, name) is not None:
                require_rate(name, getattr(self, name), positive=True)


class Sequences(NamedTuple):
    """A rollout cut into N sequences of S steps, time first, with advantages and targets."""

    observation: Observation
    """[S, N, ...], every leaf where it is a tree."""
    start: Bool[Array, "steps n"]
    action: Shaped[Array, "steps n *action"]
    log_prob: Float[Array, "steps n"]
    """Log-probability of the action when it was taken."""
    value: Float[Array, "steps n"]
    """Value when the action was taken."""
    advantage: Float[Array, "steps n"]
    target: Float[Array, "steps n"]
    """Target of the value."""
    valid: Bool[Array, "steps n"]
    state0: State
    """Every sequence's memory before its first observation, each leaf [N, ...]."""


def ppo_loss(
    agent: Agent, batch: Sequences, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss of proximal policy optimisation and its terms.

    With q_t = pi(a_t | o_t) / pi_old(a_t | o_t), the bounds l = 1 - c (or 1 / (1 + c)) and u = 1 +
    c of clip_ratio c, advantages A_t (optionally normalised over the minibatch), targets G_t, H the
    entropy, P the memory's ponder cost if it has one, and means over the valid steps:

        L_policy = mean(-min(q_t A_t, clip(q_t, l, u) A_t))
        L_value  = mean(max((V_t - G_t)^2, (V_{old,t} + clip(V_t - V_{old,t}, -v, v) - G_t)^2))
        L        = L_policy + value_cost L_value - entropy_cost mean(H_t) + ponder_cost mean(P_t)

    without the second argument of L_value's max if there is no value_clip v.

    Returns:
        The loss, and "policy_loss", "value_loss", "entropy", "value" (the mean value), "kl", an
        estimate of how far the policy has moved, mean(q_t - 1 - log q_t), "clip_fraction", the
        fraction of steps whose ratio is outside the bounds, and the memory's metrics as
        "memory.NAME".

    Source: Schulman et al. (2017), Eqs. 7 and 9; value clipping as in the code of that paper; the
    estimate of the divergence is Schulman's (2020), "k3", unbiased and never negative. Pramanik
    (2023), section 5.2 and Table A.3, for reading sequences from the states of acting.
    """
    number = batch.valid.shape[1]
    state0 = refresh_all(agent, jax.lax.stop_gradient(batch.state0), number)
    (logits, values), metrics = read(agent, state0, batch.observation, batch.start)
    distribution = agent.distribution
    log_ratio = distribution.log_prob(logits, batch.action) - batch.log_prob
    # Invalid steps may hold anything; their ratio must not become infinite before it is masked.
    log_ratio = jnp.where(batch.valid, log_ratio, 0.0)
    ratio = jnp.exp(jnp.minimum(log_ratio, LARGEST_LOG_RATIO))
    advantage = batch.advantage
    if config.advantage_normalisation:
        advantage = normalised(advantage, batch.valid)
    upper = 1.0 + config.clip_ratio
    lower = 1.0 - config.clip_ratio if config.lower_clip == "symmetric" else 1.0 / upper
    clipped = jnp.clip(ratio, lower, upper)
    each = {
        "policy_loss": -jnp.minimum(ratio * advantage, clipped * advantage),
        "value_loss": _value_loss(values, batch, config.value_clip),
        "entropy": distribution.entropy(logits),
        "value": values,
        "kl": ratio - 1.0 - log_ratio,
        "clip_fraction": (ratio != clipped).astype(jnp.float32),
    } | {f"memory.{name}": metric for name, metric in metrics.items()}
    parts = {name: valid_mean(x, batch.valid) for name, x in each.items()}
    loss = (
        parts["policy_loss"]
        + config.value_cost * parts["value_loss"]
        - config.entropy_cost * parts["entropy"]
    )
    if "memory.ponder_cost" in parts:
        loss = loss + config.ponder_cost * parts["memory.ponder_cost"]
    return loss, parts


def _value_loss(
    values: Float[Array, "steps n"], batch: Sequences, clip: float | None
) -> Float[Array, "steps n"]:
    error = jnp.square(values - batch.target)
    if clip is None:
        return error
    near = batch.value + jnp.clip(values - batch.value, -clip, clip)
    return jnp.maximum(error, jnp.square(near - batch.target))


def make_sequences(
    agent: Agent, chunks: Trajectory, final_value: Float[Array, " batch"], config: PPOConfig
) -> Sequences:
    """Advantages and targets over the whole rollout, cut into sequences.

    Args:
        agent: the current network, used only by `vtrace`.
        chunks: the rollout's sequences in order, each a trajectory of `sequence_length` steps;
            every leaf has them as first axis, [K, S, B, ...].
        final_value: of the observation after the last step, by the current network.
    """
    shape, sequences = chunks.reward.shape, as_environments(chunks)
    valid = ~chunks.last[:, :-1]
    rewards, discounts, oks = (
        joined(x) for x in (chunks.reward, config.gamma * chunks.discount, valid)
    )
    values = jnp.append(joined(chunks.value), final_value[None], axis=0)
    if config.advantages == "gae":
        target = lambda_returns(rewards, discounts, values, oks, config.lam)
        advantage = target - values[:-1]
    else:
        log_prob, values = reread_chunks(agent, chunks)
        log_ratio = log_prob - joined(chunks.log_prob)
        target, advantage = vtrace(
            rewards, discounts, values, oks, log_ratio, config.lam, config.vtrace_clip
        )
    return Sequences(
        observation=jax.tree.map(lambda x: x[:-1], sequences.observation),
        start=sequences.start[:-1],
        action=sequences.action,
        log_prob=sequences.log_prob,
        value=sequences.value,
        advantage=side_by_side(advantage.reshape(shape)),
        target=side_by_side(target.reshape(shape)),
        valid=sequences.valid,
        state0=sequences.state0,
    )


def reread_chunks(
    agent: Agent, chunks: Trajectory
) -> tuple[Float[Array, "time batch"], Float[Array, "time_and_one batch"]]:
    """Log-probabilities of the actions and values of all observations by the current network."""
    count, batch = chunks.start.shape[0], chunks.start.shape[2]
    sequences = as_environments(chunks)
    logits, values = reread(agent, sequences).outputs
    log_prob = agent.distribution.log_prob(logits[:-1], sequences.action)
    each = values.reshape(-1, count, batch)
    all_values = jnp.append(joined(jnp.swapaxes(each[:-1], 0, 1)), each[-1:, -1], axis=0)
    return joined(jnp.swapaxes(log_prob.reshape(-1, count, batch), 0, 1)), all_values


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation: several epochs of gradient steps on sequences of a rollout."""

    settings: ClassVar[type] = PPOConfig
    metrics: ClassVar[tuple[str, ...]] = (*LOSS_METRICS, "kl", "clip_fraction", "gradient_steps")

    config: PPOConfig
    updates: int = 1
    """Number of updates in the whole run, at whose end a schedule reaches 0."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, see `adam`, with the settings' schedule."""
        config = self.config
        steps = self.updates * config.epochs * config.minibatches
        return with_memory_rate(adam(config, make_schedule(config, steps)), config)

    @property
    def gathering(self) -> Gathering:
        """Rollouts in sequences by its own policy, which may lag behind."""
        config = self.config
        wanted = gather_sequences(config)
        return wanted._replace(tolerates_lag=True, scheduled=is_scheduled(config))

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
        """`epochs` times `minibatches` gradient steps, or fewer if `target_kl` is exceeded.

        Each reads whole sequences, starting from the memory's state at the time of acting, whose
        caches are rebuilt for the current parameters. Metrics are means over the gradient steps
        that were taken, and "gradient_steps" is their number.
        """
        config = self.config
        memory = refresh_all(agent, rollout.memory, len(rollout.start))  # the rollout may lag
        _, final = step_all(agent, memory, rollout.observation, rollout.start)
        batch = make_sequences(agent, rollout.chunks, known_value(final), config)
        params, static = eqx.partition(agent, eqx.is_array)

        def attempt(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
            params, state, stopped = carry
            agent = eqx.combine(params, static)
            found, gradient = self._gradient(agent, batch, chosen)
            new = apply_gradient(agent, state, found, gradient, self.optimiser)
            made = (eqx.filter(new.agent, eqx.is_array), new.state)
            if config.target_kl is not None:
                stopped = stopped | (found[1]["kl"] > config.target_kl)
                made = jax.tree.map(partial(jnp.where, stopped), (params, state), made)
            return (*made, stopped), new.metrics | {"made": ~stopped}

        def skip(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
            shapes = jax.eval_shape(attempt, carry, chosen)[1]
            return carry, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        def one(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
            if config.target_kl is None:
                return attempt(carry, chosen)
            return jax.lax.cond(carry[2], skip, attempt, carry, chosen)

        carry = (params, state, jnp.zeros((), bool))
        (params, state, _), metrics = jax.lax.scan(one, carry, draw_minibatches(key, config))
        made = metrics.pop("made")
        number = jnp.sum(made.astype(jnp.float32))
        sums = {name: jnp.sum(jnp.where(made, x, 0.0)) for name, x in metrics.items()}
        means = {name: total / jnp.maximum(number, 1.0) for name, total in sums.items()}
        return Learned(eqx.combine(params, static), state, means | {"gradient_steps": number})

    def _gradient(
        self, agent: Agent, batch: Sequences, chosen: Array
    ) -> tuple[tuple[Float[Array, ""], Metrics], PyTree[Array]]:
        """Loss, its terms and gradient on the chosen sequences, read at once or in parts."""
        config, parts = self.config, self.config.gradient_accumulation
        if parts > 1 and config.advantage_normalisation:  # over all of them, not over each part
            advantage = normalised(batch.advantage[:, chosen], batch.valid[:, chosen])
            batch = batch._replace(advantage=batch.advantage.at[:, chosen].set(advantage))
            config = replace(config, advantage_normalisation=False)
        return find_gradient(partial(ppo_loss, config=config), agent, batch, chosen, parts)
