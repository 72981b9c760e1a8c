"""Parallelised Q-network: settings, loss and update."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from clew.agents.heads import ActionValues, Clock, MakeHeads, Outputs, epsilon_greedy, value_of
from clew.agents.learners.base import (
    VALUE_METRICS,
    Gathering,
    Learned,
    LearnerState,
    Metrics,
    after_clipping,
    apply_gradient,
    draw_minibatches,
    find_gradient,
    gather_sequences,
    init_optimiser,
    learn_minibatches,
    make_schedule,
    valid_mean,
    validate_returns,
    validate_sequences,
    with_memory_rate,
)
from clew.agents.network import Agent
from clew.agents.returns import lambda_returns
from clew.agents.trajectory import Reading, Rollout, Trajectory, as_environments, reread
from clew.errors import Settings, UserError, require_fraction, require_rate


@dataclass(frozen=True)
class PQNConfig(Settings):
    """Settings of PQN.

    Unless stated otherwise, the defaults are the authors' for a recurrent network on MemoryChain
    (Gallici et al., 2024, published code, `pqn_rnn_memory_chain.yaml`). "CartPole" and "Craftax"
    are their other recurrent settings, `pqn_rnn_cartpole.yaml` and `pqn_rnn_craftax.yaml`.
    """

    num_envs: int = 32
    """Environments stepped in parallel, which take the place of a replay buffer (CartPole: 32,
    Craftax: 1024)."""
    rollout_length: int = 128
    """Steps of every environment between two updates (CartPole: 64, Craftax: 128)."""
    sequence_length: int = 128
    """Length of the sequences that learning reads, from the memory's state at the time of acting;
    gradients and returns reach no further. Must divide rollout_length (as long as the rollout; the
    authors prepend up to 4 steps of the previous rollout)."""
    minibatches: int = 16
    """Gradient steps of an epoch, each on its own part of the sequences, in random order.
    Must divide their number, num_envs x rollout_length / sequence_length (CartPole: 16,
    Craftax: 4)."""
    epochs: int = 4
    """Passes over the sequences of a rollout (CartPole and Craftax: 4)."""
    gradient_accumulation: int = 1
    """Parts in which a gradient step reads its sequences, one after the other, to save memory; up
    to rounding the step is the same. Must divide the sequences of a minibatch."""
    learning_rate: float = 3e-4
    """Learning rate of RAdam (MemoryChain: 1e-3, CartPole: 1e-4, Craftax: 3e-4)."""
    memory_rate: float = 1.0
    """Learning rate of the memory's parameters as a fraction of learning_rate; with 0 the memory
    keeps its initial weights."""
    schedule: str = "linear"
    """Schedule of the learning rate over a run: constant; linear or cosine, down to 0 at the run's
    last gradient step (MemoryChain: constant, CartPole and Craftax: linear); or module:function,
    one of your own, see `make_schedule`."""
    warmup_fraction: float = 0.0
    """Fraction of a run's gradient steps over which the learning rate first rises from 0."""
    gamma: float = 0.99
    """Discount per step (CartPole and Craftax: 0.99)."""
    lam: float = 0.95
    """Lambda of the returns: 0 looks one step ahead, 1 to the sequence's end (CartPole: 0.95,
    Craftax: 0.5)."""
    epsilon_start: float = 1.0
    """Probability of a uniformly random action at the first update (CartPole and Craftax: 1)."""
    epsilon_end: float = 0.01
    """The same after exploration_fraction of the updates, below 1 (CartPole: 0.2, Craftax: 0.005).
    Evaluation with sampled actions uses it too."""
    exploration_fraction: float = 0.1
    """Fraction of a run's updates over which epsilon falls linearly (CartPole: 0.2, Craftax:
    0.1)."""
    max_grad_norm: float | None = 10.0
    """Maximum global norm of the gradient; None for no clipping (CartPole: 10, Craftax: 0.5)."""
    adam_b1: float = 0.9
    """Decay of RAdam's mean of gradients, per gradient step (optax's)."""
    adam_b2: float = 0.999
    """Decay of RAdam's mean of squared gradients, per gradient step (optax's)."""
    adam_eps: float = 1e-8
    """Added to RAdam's denominator (optax's)."""
    ponder_cost: float = 0.0
    """Weight of an adaptive memory's ponder cost."""

    def validate(self) -> None:
        validate_sequences(self)
        validate_returns(self)
        for name in ("epsilon_start", "epsilon_end", "exploration_fraction"):
            require_fraction(name, getattr(self, name))
        require_rate("exploration_fraction", self.exploration_fraction, positive=True)
        if self.epsilon_end == 1:
            raise UserError(
                "epsilon_end must be below 1, got 1: such a policy prefers no action to another"
            )


def pqn_loss(
    agent: Agent, trajectory: Trajectory, config: PQNConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The loss of PQN and its terms.

    With V_t = max_a Q(o_t, a) over the allowed actions, G the lambda-returns of V, P the memory's
    ponder cost if it has one, and means over the valid steps:

        G_T = V_T
        G_t = r_t + d_t ((1 - lam) V_{t+1} + lam G_{t+1})
        L   = mean((sg(G_t) - Q(o_t, a_t))^2) / 2 + ponder_cost mean(P_t)

    All values are the current network's, from one pass over the sequence (`trajectory.reread`):
    there is no target network. Nothing corrects for actions that were not greedy: this is Peng's
    Q(lambda). In Gymnasium environments that open the next episode at once, a step that truncates
    an episode has a value from the time of acting.

    Returns:
        The loss, and "value_loss", the mean of the squared error, "action_value", the mean of
        Q(o_t, a_t), "value", the mean of V_t, "greedy_fraction", the fraction of actions that the
        current network would take too, and the memory's metrics as "memory.NAME".

    Source: Gallici et al. (2024); the returns are Peng and Williams' (1996). The factor 1/2 and the
    recomputation of returns for every gradient step follow the authors' published code. Deviations
    from it: the last step of a sequence is learned from too, with the value of the observation
    after it; a truncated episode bootstraps from the value of its final observation, where the code
    treats it as terminated.
    """
    return loss_of_values(reread(agent, trajectory), trajectory, config)


def loss_of_values(
    reading: Reading, trajectory: Trajectory, config: PQNConfig
) -> tuple[Float[Array, ""], Metrics]:
    """`pqn_loss` from the network's outputs for all T+1 observations."""
    (_, values, action_values), memory = reading
    valid = trajectory.valid
    discount = config.gamma * trajectory.discount
    target = jax.lax.stop_gradient(
        lambda_returns(trajectory.reward, discount, values, valid, config.lam)
    )
    taken = value_of(action_values[:-1], trajectory.action)
    # Invalid steps may hold anything, and their square may be infinite.
    error = jnp.where(valid, target - taken, 0.0)
    each = {
        "value_loss": jnp.square(error),
        "action_value": taken,
        "value": values[:-1],
        "greedy_fraction": (taken >= values[:-1]).astype(jnp.float32),
    } | {f"memory.{name}": metric[:-1] for name, metric in memory.items()}
    parts = {name: valid_mean(x, valid) for name, x in each.items()}
    loss = 0.5 * parts["value_loss"]
    if "memory.ponder_cost" in parts:
        loss = loss + config.ponder_cost * parts["memory.ponder_cost"]
    return loss, parts


@dataclass(frozen=True)
class PQN:
    """Q-learning from lambda-returns of many environments, without replay or a target network.

    A policy that takes a random action with probability epsilon gathers a rollout, several epochs
    of gradient steps on its sequences follow (`pqn_loss`), and the rollout is discarded. The heads'
    layer norm and the number of environments keep learning stable.

    Source: Gallici et al. (2024).
    """

    settings: ClassVar[type] = PQNConfig
    metrics: ClassVar[tuple[str, ...]] = (*VALUE_METRICS, "greedy_fraction", "grad_norm")

    config: PQNConfig
    updates: int = 1
    """Number of updates in the whole run, over a fraction of which epsilon falls."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Clipping by the global norm, then RAdam (Liu et al., 2020), with a schedule."""
        config = self.config
        steps = self.updates * config.epochs * config.minibatches
        rate = make_schedule(config, steps) or config.learning_rate
        radam = optax.radam(rate, config.adam_b1, config.adam_b2, config.adam_eps)
        clipped = after_clipping(radam, config.max_grad_norm)
        return with_memory_rate(clipped, config)

    def epsilon(self, step: Int[Array, "*lead"]) -> Float[Array, "*lead"]:
        """The probability of a random action, by how often an environment was stepped before.

        With n = floor(step / rollout_length) the updates so far, N all updates, and f the
        `exploration_fraction`:

            epsilon = start + (end - start) min(n / (f N), 1)
        """
        config = self.config
        number = (step // config.rollout_length).astype(jnp.float32)
        passed = jnp.minimum(number / (config.exploration_fraction * self.updates), 1.0)
        return config.epsilon_start + (config.epsilon_end - config.epsilon_start) * passed

    def explore(self, outputs: Outputs, clock: Clock) -> Float[Array, "*lead actions"]:
        """The policy that gathers rollouts: greedy except for a fraction epsilon of the actions."""
        assert outputs.action_values is not None
        return epsilon_greedy(outputs.action_values, self.epsilon(jnp.asarray(clock.step)))

    @property
    def gathering(self) -> Gathering:
        """Rollouts in sequences by a policy that explores less and less and may lag behind."""
        wanted = gather_sequences(self.config)
        return wanted._replace(tolerates_lag=True, scheduled=True, behaviour=self.explore)

    @property
    def make_heads(self) -> MakeHeads:
        """A value for every action."""
        return partial(ActionValues, epsilon=self.config.epsilon_end)

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        """The state of RAdam."""
        return init_optimiser(self.optimiser, agent)

    def learn(
        self, agent: Agent, state: LearnerState, rollout: Rollout, key: PRNGKeyArray
    ) -> Learned:
        """`epochs` times `minibatches` gradient steps, each on whole sequences.

        Metrics are means over the gradient steps.
        """
        config, optimiser = self.config, self.optimiser
        sequences = as_environments(rollout.chunks)
        loss = partial(pqn_loss, config=config)

        def one(agent: Agent, state: LearnerState, chosen: Array) -> Learned:
            found = find_gradient(loss, agent, sequences, chosen, config.gradient_accumulation)
            return apply_gradient(agent, state, *found, optimiser)

        return learn_minibatches(agent, state, draw_minibatches(key, config), one)
