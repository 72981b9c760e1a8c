"""Recurrent replay distributed DQN: settings, loss and update."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from clew.agents import replay as ring
from clew.agents.heads import Clock, DuelingValues, MakeHeads, Outputs, epsilon_greedy, value_of
from clew.agents.learners.base import (
    VALUE_METRICS,
    Gathering,
    Learned,
    LearnerState,
    Metrics,
    adam,
    apply_gradient,
    is_scheduled,
    make_schedule,
    valid_mean,
    validate_adam,
    with_memory_rate,
)
from clew.agents.learners.replayed import (
    Drawn,
    ReplayedSequences,
    gradient_steps_of,
    validate_replay,
)
from clew.agents.network import Agent
from clew.agents.replay import LARGEST_EXPONENT, Replay, Steps
from clew.agents.returns import n_step_returns
from clew.agents.trajectory import Reading, Rollout
from clew.errors import Settings, UserError, require_at_least, require_fraction, require_rate
from clew.memory.base import State

RESCALING = 1e-3
"""Epsilon of `rescaled`."""


@dataclass(frozen=True)
class R2D2Config(Settings):
    """Settings of R2D2.

    "Paper" is Kapturowski et al. (2019), whose 256 actors gather without waiting for the learner;
    "quoted" values come from reimplementations and were not checked in the paper itself.
    """

    num_envs: int = 32
    """Environments stepped in parallel, each with its own exploration rate (quoted: 256)."""
    rollout_length: int = 40
    """Steps of every environment between two updates. Must be a multiple of period."""
    sequence_length: int = 80
    """Length of the sequences that are learned from (paper: 80). Must be a multiple of period."""
    burn_in: int = 40
    """Steps before a sequence that are only read, for a state that suits the current parameters
    (quoted: 40). Must be a multiple of period."""
    period: int = 40
    """Offset between neighbouring sequences, which overlap (paper: 40). The memory's state is
    stored at this interval."""
    first_state: str = "refreshed"
    """The memory before the burn-in: refreshed, its state at the time of acting with its caches
    rebuilt by the current parameters; stored, that state unchanged; or zero, as at the start of an
    episode. The paper compares the last two for an LSTM, which has no caches."""
    replay_steps: int = 200_000
    """Size of the replay in steps of all environments together (quoted: 4 million)."""
    learning_starts: int = 10_000
    """Steps of all environments together before the first gradient step."""
    gradient_steps: int = 8
    """Gradient steps after every rollout. With the other defaults every step is learned from 16
    times on average (quoted: about once)."""
    batch_size: int = 32
    """Sequences per gradient step (paper: 64)."""
    learning_rate: float = 3e-4
    """Learning rate of Adam (quoted: 1e-4)."""
    memory_rate: float = 1.0
    """Learning rate of the memory's parameters as a fraction of learning_rate; with 0 the memory
    keeps its initial weights."""
    schedule: str = "constant"
    """Schedule of the learning rate over a run: constant; linear or cosine, down to 0 at the run's
    last gradient step; or module:function, one of your own, see `make_schedule`."""
    warmup_fraction: float = 0.0
    """Fraction of a run's gradient steps over which the learning rate first rises from 0."""
    gamma: float = 0.997
    """Discount per step (paper: 0.997)."""
    n_step: int = 5
    """Number of steps n in the n-step returns (paper: 5)."""
    rescaling: bool = True
    """Learn values on a scale that grows with the square root of the return, see `rescaled` (as in
    the paper)."""
    target_period: int = 50
    """Gradient steps between two updates of the target network (paper: 2,500, in runs of millions).
    With each update, values propagate back n_step steps further."""
    priority_exponent: float = 0.9
    """Alpha: with 0 all sequences are drawn equally often (paper: 0.9)."""
    priority_max_fraction: float = 0.9
    """Eta: the weight of a sequence's largest error in its priority; the mean error has the rest
    (paper: 0.9)."""
    importance_exponent: float = 0.6
    """Beta: with 1 the loss fully corrects for the unequal sampling of sequences (quoted: 0.6)."""
    epsilon_base: float = 0.4
    """Probability of a random action in the environment that explores most (Horgan et al., 2018,
    quoted: 0.4)."""
    epsilon_exponent: float = 7.0
    """In the environment that explores least, the probability is epsilon_base to the power of 1 +
    epsilon_exponent (Horgan et al., 2018, quoted: 7)."""
    evaluation_epsilon: float = 0.01
    """Probability of a random action in evaluation with sampled actions, below 1."""
    max_grad_norm: float | None = 40.0
    """Maximum global norm of the gradient; None for no clipping (40 in the authors' framework
    Acme)."""
    adam_b1: float = 0.9
    """Decay of Adam's mean of gradients, per gradient step."""
    adam_b2: float = 0.999
    """Decay of Adam's mean of squared gradients, per gradient step."""
    adam_eps: float = 1e-8
    """Added to Adam's denominator (quoted: 1e-3, which exceeds all gradients where rewards are
    small, and then makes the steps small)."""

    def validate(self) -> None:
        validate_replay(self)
        for name in ("n_step", "target_period"):
            require_at_least(name, getattr(self, name), 1)
        for name in ("gamma", "priority_max_fraction", "epsilon_base", "evaluation_epsilon"):
            require_fraction(name, getattr(self, name))
        for name in ("priority_exponent", "importance_exponent", "epsilon_exponent"):
            require_rate(name, getattr(self, name))
        if self.priority_exponent > LARGEST_EXPONENT:
            raise UserError(
                f"priority_exponent must be at most {LARGEST_EXPONENT}, got "
                f"{self.priority_exponent}: with 0 all sequences are equally likely, with 1 they "
                "are drawn in proportion to their priority"
            )
        if self.evaluation_epsilon == 1:
            raise UserError(
                "evaluation_epsilon must be below 1, got 1: such a policy prefers no action"
            )
        validate_adam(self)


def rescaled(x: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, with epsilon = 10^-3.

    Computed as x / (sqrt(|x| + 1) + 1) + epsilon x, which keeps small returns.

    Source: Pohlen et al. (2018), Proposition A.2; Kapturowski et al. (2019)
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + RESCALING * x


def unscaled(y: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
    """The inverse of `rescaled`.

        h^-1(y) = sign(y) (((sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    With r = sqrt(...) the quotient is q = 2 (|y| + 1 + epsilon) / (r + 1), and q - 1 is
    |y| (2 - 4 epsilon / (r + 1 + 2 epsilon)) / (r + 1): computed so, as (q - 1) (q + 1), no nearly
    equal numbers are subtracted.
    """
    inner = jnp.abs(y) + (1.0 + RESCALING)
    root = jnp.sqrt(1.0 + 4.0 * RESCALING * inner)
    less = y * (2.0 - 4.0 * RESCALING / (root + (1.0 + 2.0 * RESCALING))) / (root + 1.0)
    return less * (2.0 * inner / (root + 1.0) + 1.0)


def temporal_differences(
    online: Float[Array, "time_and_one batch actions"],
    target: Float[Array, "time_and_one batch actions"],
    steps: Steps,
    config: R2D2Config,
) -> Float[Array, "time batch"]:
    """The temporal differences of the actions taken, 0 where a transition is not valid.

    With Q the network's values, Q' the target network's, h the rescaling or the identity, and G^n
    the n-step returns of V:

        V_t = h^-1(Q'(o_t, argmax_a Q(o_t, a)))
        delta_t = h(G^n_t) - Q(o_t, a_t)

    Source: Kapturowski et al. (2019); van Hasselt et al. (2016) for choosing the action with one
    network and valuing it with the other.
    """
    to, back = (rescaled, unscaled) if config.rescaling else (lambda x: x, lambda x: x)
    value = back(value_of(target, jnp.argmax(online, axis=-1)))
    valid, discount = ~steps.last[:-1], config.gamma * steps.discount
    returns = n_step_returns(steps.reward, discount, value, valid, config.n_step)
    taken = value_of(online[:-1], steps.action)
    return jnp.where(valid, to(returns) - taken, 0.0)


def priorities_of(
    errors: Float[Array, "time batch"], steps: Steps, eta: float
) -> Float[Array, " batch"]:
    """The priorities of sequences, p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|.

    The mean is over valid transitions.

    Source: Kapturowski et al. (2019)
    """
    size = jnp.abs(errors)
    return eta * jnp.max(size, axis=0) + (1.0 - eta) * _mean_over_time(size, steps)


def _mean_over_time(x: Float[Array, "time batch"], steps: Steps) -> Float[Array, " batch"]:
    """The mean over valid transitions; `x` is 0 at all others."""
    count = jnp.sum(~steps.last[:-1], axis=0).astype(x.dtype)
    return jnp.sum(x, axis=0) / jnp.maximum(count, 1.0)


class Others(NamedTuple):
    """R2D2's small state."""

    target: PyTree[Array]
    """The target network's parameters."""
    gradient_steps: Int[Array, ""]
    """Number of gradient steps so far."""


@dataclass(frozen=True)
class R2D2:
    """Q-learning from replayed sequences, with the memory's state before them.

    Every environment has its own exploration rate. After each rollout come gradient steps on
    sequences drawn by priority: the memory starts from a stored state and is brought up to date
    over a burn-in; then the agent learns from n-step returns, with a target network that does not
    choose actions, dueling heads and rescaled values.

    Deviations from the paper: sequences cross episode boundaries, where the memory resets itself,
    so none is padded; new sequences have the largest priority so far, where the paper's actors
    compute one; the caches of a stored state are rebuilt by the current parameters, unless
    `first_state` says otherwise; the loss is the mean over a sequence's valid steps. In Gymnasium
    environments that open the next episode at once, a step that truncates an episode has a value
    from the time of acting.

    Source: Kapturowski et al. (2019), Recurrent Experience Replay in Distributed Reinforcement
    Learning.
    """

    settings: ClassVar[type] = R2D2Config
    metrics: ClassVar[tuple[str, ...]] = (*VALUE_METRICS, "priority", "grad_norm")

    config: R2D2Config
    updates: int = 1
    """Number of updates in the whole run, at whose end a schedule reaches 0."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, see `adam`, with the settings' schedule."""
        config = self.config
        schedule = make_schedule(config, gradient_steps_of(config, self.updates))
        return with_memory_rate(adam(config, schedule), config)

    def epsilon(self, environment: Int[Array, "*lead"]) -> Float[Array, "*lead"]:
        """The probability of a random action in environment i of N.

            epsilon_i = epsilon_base^(1 + epsilon_exponent i / (N - 1))

        Source: Horgan et al. (2018), Distributed Prioritized Experience Replay, quoted.
        """
        config = self.config
        rank = environment.astype(jnp.float32) / max(config.num_envs - 1, 1)
        return config.epsilon_base ** (1.0 + config.epsilon_exponent * rank)

    def explore(self, outputs: Outputs, clock: Clock) -> Float[Array, "*lead actions"]:
        """The policy that gathers: greedy except for a fraction epsilon_i of the actions."""
        assert outputs.action_values is not None
        return epsilon_greedy(outputs.action_values, self.epsilon(jnp.asarray(clock.environment)))

    @property
    def replayed(self) -> ReplayedSequences:
        """The sequences that are kept and replayed."""
        return ReplayedSequences(self.config)

    @property
    def gathering(self) -> Gathering:
        """Rollouts in blocks by a policy per environment, which may lag behind."""
        scheduled = is_scheduled(self.config)
        return self.replayed.gathering(scheduled=scheduled, behaviour=self.explore)

    @property
    def make_heads(self) -> MakeHeads:
        """A value for every action, in two parts."""
        unscale = unscaled if self.config.rescaling else None
        return partial(DuelingValues, epsilon=self.config.evaluation_epsilon, unscale=unscale)

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        """Adam's, a copy of the network as the target, and an empty replay."""
        params = eqx.filter(agent, eqx.is_inexact_array)
        shapes = template()
        states = jax.eval_shape(partial(self._kept, agent), shapes)
        return LearnerState(
            self.optimiser.init(params),
            Others(jax.tree.map(jnp.copy, params), jnp.zeros((), jnp.int32)),
            ring.init_replay(shapes, states, self.config.replay_steps),
        )

    def _kept(self, agent: Agent, rollout: Rollout) -> State:
        return self.replayed.kept(agent, rollout.chunks.state0, self.config.num_envs)

    def add(self, agent: Agent, state: LearnerState, rollout: Rollout) -> LearnerState:
        """The state with a rollout in the replay."""
        kept = self._kept(agent, rollout)
        return state._replace(replay=ring.add(cast(Replay, state.replay), rollout.chunks, kept))

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
        """One gradient step; the state has only the priorities of the replay."""
        config, others = self.config, cast(Others, state.others)
        drawn = self.replayed.draw(replay, key, config.priority_exponent)
        weights = ring.importance(drawn, config.importance_exponent)
        batch = self.replayed.take(replay, drawn)
        fixed = eqx.combine(others.target, agent)
        target = self.values(fixed, batch).outputs.action_values
        states = self.replayed.states(agent, batch.state0, batch.read)
        (value, (metrics, errors)), gradient = eqx.filter_value_and_grad(self.loss, has_aux=True)(
            agent, states, target, batch.learned, weights
        )
        found = priorities_of(errors, batch.learned, config.priority_max_fraction)
        metrics |= {"priority": jnp.mean(found)}
        made = apply_gradient(agent, state, (value, metrics), gradient, self.optimiser)
        priorities = replay.priorities.at[drawn.block, drawn.environment].set(found)
        count = others.gradient_steps + 1
        new = eqx.filter(made.agent, eqx.is_inexact_array)
        copied = count % config.target_period == 0
        following = jax.tree.map(partial(jnp.where, copied), new, others.target)
        after = made.state._replace(others=Others(following, count), replay=priorities)
        return made._replace(state=after)

    def values(self, agent: Agent, batch: Drawn) -> Reading:
        """A network's outputs for sequences, after the burn-in."""
        states = self.replayed.states(agent, batch.state0, batch.read)
        return self.replayed.values(agent, states, batch.learned)

    def loss(
        self,
        agent: Agent,
        states: State,
        target: Float[Array, "..."],
        steps: Steps,
        weights: Float[Array, " batch"],
    ) -> tuple[Float[Array, ""], tuple[Metrics, Float[Array, "time batch"]]]:
        """The loss of R2D2, its terms, and the temporal differences that set the priorities.

        With delta from `temporal_differences`, w the importance weights, and means over valid
        steps:

            L = mean_i(w_i mean_t(delta_it^2)) / 2

        Args:
            states: of the memory before the sequences.
            target: the target network's values of all actions.

        Returns:
            The loss, "value_loss" (the mean of delta^2), "action_value" (the mean of Q(o_t, a_t)),
            "value" (the mean of max_a Q(o_t, a)) and the memory's metrics as "memory.NAME"; and
            delta.
        """
        outputs, memory = self.replayed.values(agent, states, steps)
        online = outputs.action_values
        errors = temporal_differences(online, target, steps, self.config)
        squares = _mean_over_time(jnp.square(errors), steps)
        taken = value_of(online[:-1], steps.action)
        each = {"action_value": taken, "value": jnp.max(online[:-1], axis=-1)}
        each |= {f"memory.{name}": metric[:-1] for name, metric in memory.items()}
        metrics = {name: valid_mean(x, ~steps.last[:-1]) for name, x in each.items()}
        metrics |= {"value_loss": jnp.mean(squares)}
        return 0.5 * jnp.mean(weights * squares), (metrics, errors)
