"""The interface of learning algorithms, and the gradient step that they share."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from clew.agents.distributions import Distribution
from clew.agents.heads import Behaviour, MakeHeads, follow_policy
from clew.agents.network import Agent
from clew.agents.trajectory import Reading, Rollout, Trajectory, read
from clew.errors import (
    Settings,
    UserError,
    check_call,
    require_at_least,
    require_choice,
    require_fraction,
    require_rate,
)
from clew.memory.base import State
from clew.names import is_reference, resolve

T = TypeVar("T")

Metrics = dict[str, Float[Array, ""]]
Loss = Callable[[Agent, Trajectory], tuple[Float[Array, ""], Metrics]]
ReadingLoss = Callable[[Reading, Trajectory, Distribution], tuple[Float[Array, ""], Metrics]]

SCHEDULES = ("constant", "linear", "cosine")
"""Schedules of the learning rate over a run, after its warm-up."""
LOSS_METRICS = ("loss", "policy_loss", "value_loss", "entropy", "value", "grad_norm")
"""Metrics of an actor-critic's update."""
VALUE_METRICS = ("loss", "value_loss", "action_value", "value")
"""Metrics of an update of action values."""


class LearnerState(NamedTuple):
    """What a learner keeps from update to update besides the agent; only arrays."""

    optimiser: optax.OptState = ()
    others: PyTree[Array] = ()
    """Other small state: a target network, counters."""
    replay: PyTree[Array] = ()
    """Experience that it replays. It may be large: it is updated in place, and a checkpoint keeps
    it in a separate file, which only a resumed run reads."""


class Learned(NamedTuple):
    """The result of an update."""

    agent: Agent
    state: LearnerState
    metrics: Metrics


class OneStep(NamedTuple):
    """An update that is one gradient step on the network's outputs for a whole rollout."""

    loss: ReadingLoss
    optimiser: optax.GradientTransformation
    """Its state is the learner's `LearnerState.optimiser`."""


class Gathering(NamedTuple):
    """What must be gathered before an update, and how; the defaults fit most learners."""

    sequence_length: int | None = None
    """Steps that are read as one sequence during learning; None for the whole rollout."""
    sequences_per_step: int | None = None
    """Sequences that a gradient step reads at a time, over all environments; None for all."""
    whole_episodes: bool = False
    """Whether every rollout is one whole episode of each environment. JAX tasks only."""
    tolerates_lag: bool = False
    """Whether it may learn from experience of earlier parameters, as with the asynchronous
    runner."""
    consecutive: bool = False
    """Whether each rollout must begin where the previous one ended, in every environment.
    Asynchronous actors then wait for each other."""
    starts: int = 0
    """Steps of all environments before the first gradient step."""
    scheduled: bool = False
    """Whether acting or an update depends on the number of updates in the whole run."""
    behaviour: Behaviour = follow_policy
    """The policy that acts."""
    one_step: OneStep | None = None
    """For an update that is one gradient step. If actions do not change the observations, acting
    and learning then share one reading of each episode."""


class LearnerConfig(Settings, Protocol):
    """The common settings of learners: a frozen dataclass with these and its own."""

    @property
    def num_envs(self) -> int:
        """Environments stepped in parallel."""
        ...

    @property
    def rollout_length(self) -> int:
        """Steps of every environment between two updates."""
        ...

    @property
    def gamma(self) -> float:
        """Discount per step."""
        ...

    @property
    def learning_rate(self) -> float:
        """Learning rate of the optimiser."""
        ...

    @property
    def max_grad_norm(self) -> float | None:
        """Maximum global norm of the gradient; None for no clipping."""
        ...


class AdamConfig(LearnerConfig, Protocol):
    """The settings that `adam`, `make_schedule` and `with_memory_rate` read."""

    @property
    def memory_rate(self) -> float: ...
    @property
    def schedule(self) -> str: ...
    @property
    def warmup_fraction(self) -> float: ...
    @property
    def adam_b1(self) -> float: ...
    @property
    def adam_b2(self) -> float: ...
    @property
    def adam_eps(self) -> float: ...


class Learner(Protocol):
    """A learning algorithm with its settings: what to gather, and what to learn from it.

    `LEARNERS` lists the classes with this interface. Runners call nothing else, so a learner knows
    neither tasks nor devices nor the source of rollouts.
    """

    settings: ClassVar[type]
    """The dataclass of its settings, a `LearnerConfig`."""
    metrics: ClassVar[tuple[str, ...]]
    """Names of the metrics of `learn`, besides the memory's ("memory.NAME")."""

    @property
    def config(self) -> LearnerConfig:
        """Its settings."""
        ...

    @property
    def gathering(self) -> Gathering:
        """What must be gathered for an update."""
        ...

    @property
    def make_heads(self) -> MakeHeads:
        """Builds the heads that it trains, such as `ActorCritic`."""
        ...

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        """Its state before the first update.

        Args:
            agent: before the first update.
            template: gives the shapes and dtypes of the rollouts that `learn` receives.
        """
        ...

    def learn(
        self, agent: Agent, state: LearnerState, rollout: Rollout, key: PRNGKeyArray
    ) -> Learned:
        """The update after a rollout; `key` is for random draws while learning."""
        ...


def require_learner(name: str, kind: type) -> None:
    """Refuses a class that lacks a member of `Learner`, or whose settings lack a common one.

    Raises:
        UserError: naming the missing members.
    """
    if missing := _lacking(kind, Learner):
        raise UserError(f"{name} is not a learner: it lacks {', '.join(missing)}")
    if not dataclasses.is_dataclass(kind.settings):
        raise UserError(f"settings of {name} must be a dataclass, got {kind.settings!r:.60}")
    if missing := _lacking(kind.settings, LearnerConfig):
        raise UserError(
            f"the settings of {name} lack {', '.join(missing)}, which all learners have"
        )


def _lacking(kind: Any, protocol: type) -> list[str]:
    """The members of a protocol that a class does not have."""
    members = {
        n for base in protocol.__mro__ for n in (*inspect.get_annotations(base), *vars(base))
    }
    public = {member for member in members if not member.startswith("_")}
    if not isinstance(kind, type):
        return sorted(public)
    fields = {field for base in kind.__mro__ for field in inspect.get_annotations(base)}
    return sorted(public - fields - {*dir(kind)})


def adam(
    config: AdamConfig, schedule: optax.Schedule | None = None
) -> optax.GradientTransformation:
    """Clipping by the global norm, then Adam.

    A complex number counts by its absolute value, both in the norm and in Adam's second moment.

    Args:
        config: the constants, and the learning rate if there is no schedule.
        schedule: the learning rate by the number of the gradient step.

    Source: Kingma and Ba (2015); order and constants of Pramanik's published code.
    """
    rate = config.learning_rate if schedule is None else schedule
    optimiser = optax.adam(rate, b1=config.adam_b1, b2=config.adam_b2, eps=config.adam_eps)
    return after_clipping(optimiser, config.max_grad_norm)


def scale_steps(
    rate: float, parts: Callable[[PyTree[Array]], list[PyTree[Array]]]
) -> optax.GradientTransformation:
    """Multiplies an optimiser's steps by a number, in some parts of what it changes."""

    def scaled(steps: PyTree[Array], params: PyTree[Array] | None) -> PyTree[Array]:
        return eqx.tree_at(parts, steps, jax.tree.map(lambda x: rate * x, parts(steps)))

    return optax.stateless(scaled)


def with_memory_rate(
    optimiser: optax.GradientTransformation, config: AdamConfig
) -> optax.GradientTransformation:
    """The optimiser with `memory_rate` times its learning rate for the agent's memory.

    Source: Luo et al. (2024, RESeL), for learners with a replay.
    """
    if config.memory_rate == 1:  # Its state keeps the paths that checkpoints have.
        return optimiser
    return optax.chain(optimiser, scale_steps(config.memory_rate, lambda agent: [agent.memory]))


def after_clipping(
    optimiser: optax.GradientTransformation, max_norm: float | None
) -> optax.GradientTransformation:
    """The optimiser after clipping gradients by their global norm; None for no clipping."""
    if max_norm is None:
        return optimiser
    return optax.chain(optax.clip_by_global_norm(max_norm), optimiser)


def make_schedule(config: AdamConfig, steps: int) -> optax.Schedule | None:
    """The learning rate by the number of the gradient step; None for a constant one.

    With n gradient steps, of which w = round(`warmup_fraction` n) are the warm-up, and r the
    settings' `learning_rate`, step i takes r i / w while i < w, and after it, with
    x = (i - w) / (n - w): r (constant), r (1 - x) (linear), r (1 + cos(pi x)) / 2 (cosine).

    Args:
        config: the settings. Their `schedule` is one of `SCHEDULES`, or "module:function" for one
            of your own, which is called with the learning rate and the number of gradient steps
            after the warm-up, and returns an optax schedule.
        steps: number of gradient steps in the run.

    Raises:
        UserError: if the function cannot be found or called.

    Source: Loshchilov and Hutter (2017), Eq. 5, without restarts, for the cosine; the formulas are
    optax's.
    """
    rate, warmup = config.learning_rate, round(config.warmup_fraction * steps)
    after = _after_warmup(config.schedule, rate, max(steps - warmup, 1))
    if not warmup:
        return after
    rise = optax.linear_schedule(0.0, rate, warmup)
    return optax.join_schedules([rise, after or optax.constant_schedule(rate)], [warmup])


def _after_warmup(schedule: str, rate: float, steps: int) -> optax.Schedule | None:
    if schedule == "constant":
        return None
    if schedule == "linear":
        return optax.linear_schedule(rate, 0.0, steps)
    if schedule == "cosine":
        return optax.cosine_decay_schedule(rate, steps)
    function = resolve(schedule)
    check_call(schedule, function, rate, steps)
    return function(rate, steps)


def is_scheduled(config: AdamConfig) -> bool:
    """Whether the learning rate is not constant."""
    return config.schedule != "constant" or config.warmup_fraction > 0


def require_parts(count: int, sequences: int, what: str) -> None:
    """Raises `UserError` if `gradient_accumulation` does not divide a minibatch."""
    require_at_least("gradient_accumulation", count, 1)
    if sequences % count:
        raise UserError(
            f"gradient_accumulation must divide the {what} of a minibatch, got {count} parts of "
            f"{sequences} {what}"
        )


def validate_adam(config: AdamConfig) -> None:
    """Raises `UserError` for impossible settings of an optimiser."""
    if is_reference(config.schedule):
        resolve(config.schedule)
    else:
        require_choice("schedule", config.schedule, SCHEDULES)
    require_fraction("warmup_fraction", config.warmup_fraction)
    require_rate("learning_rate", config.learning_rate)
    require_rate("memory_rate", config.memory_rate)
    require_rate("adam_eps", config.adam_eps, positive=True)
    for name in ("adam_b1", "adam_b2"):
        require_fraction(name, getattr(config, name))
    if 1 in (config.adam_b1, config.adam_b2):
        raise UserError("adam_b1 and adam_b2 must be below 1: at 1 nothing is learned")
    if config.max_grad_norm is not None:
        require_rate("max_grad_norm", config.max_grad_norm, positive=True)


class ReturnsConfig(AdamConfig, Protocol):
    """The settings of every learner that uses lambda-returns."""

    @property
    def lam(self) -> float: ...
    @property
    def ponder_cost(self) -> float: ...


def validate_returns(config: ReturnsConfig) -> None:
    """Raises `UserError` for impossible settings of a learner that uses lambda-returns."""
    require_rate("ponder_cost", config.ponder_cost)
    for name in ("gamma", "lam"):
        require_fraction(name, getattr(config, name))
    validate_adam(config)


class ActorCriticConfig(ReturnsConfig, Protocol):
    """The settings that every actor-critic has."""

    @property
    def entropy_cost(self) -> float: ...
    @property
    def value_cost(self) -> float: ...


def validate_actor_critic(config: ActorCriticConfig) -> None:
    """Raises `UserError` for impossible settings of an actor-critic."""
    for name in ("entropy_cost", "value_cost"):
        require_rate(name, getattr(config, name))
    validate_returns(config)


class SequencesConfig(LearnerConfig, Protocol):
    """The settings of a learner that reads its rollouts in sequences, several times."""

    @property
    def sequence_length(self) -> int: ...
    @property
    def minibatches(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def gradient_accumulation(self) -> int: ...


def count_sequences(config: SequencesConfig) -> int:
    """Number of sequences in a rollout, over all its environments."""
    return config.num_envs * config.rollout_length // config.sequence_length


def validate_sequences(config: SequencesConfig) -> None:
    """Raises `UserError` if sequences or minibatches do not divide a rollout."""
    for name in ("num_envs", "rollout_length", "sequence_length", "minibatches", "epochs"):
        require_at_least(name, getattr(config, name), 1)
    if config.rollout_length % config.sequence_length:
        raise UserError(
            f"sequence_length must divide rollout_length, got sequences of "
            f"{config.sequence_length} in rollouts of {config.rollout_length}"
        )
    count = count_sequences(config)
    if count % config.minibatches:
        raise UserError(
            f"minibatches must divide the sequences of a rollout, got {config.minibatches} "
            f"minibatches of {config.num_envs} environments x "
            f"{config.rollout_length // config.sequence_length} sequences = {count}"
        )
    require_parts(config.gradient_accumulation, count // config.minibatches, "sequences")


def gather_sequences(config: SequencesConfig) -> Gathering:
    """Rollouts in sequences, of which a gradient step reads a minibatch, whole or in parts."""
    parts = config.minibatches * config.gradient_accumulation
    return Gathering(config.sequence_length, count_sequences(config) // parts)


def draw_minibatches(key: PRNGKeyArray, config: SequencesConfig) -> Int[Array, "steps n"]:
    """The sequences of every gradient step on a rollout: all in each epoch, in random order."""
    count = count_sequences(config)
    orders = jax.vmap(partial(jax.random.permutation, x=count))(
        jax.random.split(key, config.epochs)
    )
    return orders.reshape(config.epochs * config.minibatches, -1)


def learn_minibatches(
    agent: Agent,
    state: LearnerState,
    minibatches: Shaped[Array, "steps ..."],
    step: Callable[[Agent, LearnerState, Array], Learned],
) -> Learned:
    """One gradient step after the other, each on its own sequences.

    Args:
        minibatches: the indices of every step's sequences, or the keys that draw them.
        step: a gradient step on these sequences.

    Returns:
        New agent, new state, and the means of the metrics over the steps.
    """
    params, static = eqx.partition(agent, eqx.is_array)

    def one(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
        params, state = carry
        made = step(eqx.combine(params, static), state, chosen)
        return (eqx.filter(made.agent, eqx.is_array), made.state), made.metrics

    (params, state), metrics = jax.lax.scan(one, (params, state), minibatches)
    return Learned(eqx.combine(params, static), state, jax.tree.map(jnp.mean, metrics))


def init_optimiser(optimiser: optax.GradientTransformation, agent: Agent) -> LearnerState:
    """The state before the first update of a learner that keeps only its optimiser's state."""
    return LearnerState(optimiser.init(eqx.filter(agent, eqx.is_inexact_array)))


def gradient_step(
    agent: Agent,
    state: LearnerState,
    trajectory: Trajectory,
    loss: Loss,
    optimiser: optax.GradientTransformation,
) -> Learned:
    """One gradient step on one trajectory.

    Returns:
        New agent, new state, and the loss's parts with "loss" and "grad_norm", the global norm
        before any clipping.
    """
    found = eqx.filter_value_and_grad(loss, has_aux=True)(agent, trajectory)
    return apply_gradient(agent, state, *found, optimiser)


def accumulate_gradient(
    loss: Callable[[Agent, T], tuple[Float[Array, ""], Metrics]],
    agent: Agent,
    take: Callable[[Array], T],
    chosen: Int[Array, "parts n"],
    weights: Float[Array, " parts"],
    of_loss: Float[Array, " parts"] | None = None,
) -> tuple[tuple[Float[Array, ""], Metrics], PyTree[Array]]:
    """A loss, its terms and its gradient over a batch that is read part by part, to save memory.

    Each is the weighted sum over the parts of the batch. For means, with the parts' `fractions` as
    weights, this equals the result for the whole batch up to rounding.

    Args:
        loss: of a part of the batch.
        take: makes a part of the batch from the indices of its sequences.
        chosen: the indices of every part.
        weights: of the parts.
        of_loss: weights of the parts in the loss and its gradient, if these are not such means.
    """
    with_gradient = eqx.filter_value_and_grad(loss, has_aux=True)

    def one(total: PyTree[Array], part: tuple[Array, Array, Array]) -> tuple[PyTree[Array], None]:
        indices, weight, own = part
        (value, parts), gradient = with_gradient(agent, take(indices))
        scaled = jax.tree.map(lambda x: own.astype(x.dtype) * x, (value, gradient))
        metrics = jax.tree.map(lambda x: weight.astype(x.dtype) * x, parts)
        return jax.tree.map(jnp.add, total, (*scaled, metrics)), None

    (value, parts), gradient = eqx.filter_eval_shape(lambda: with_gradient(agent, take(chosen[0])))
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (value, gradient, parts))
    each = (chosen, weights, weights if of_loss is None else of_loss)
    (value, gradient, parts), _ = jax.lax.scan(one, nothing, each)
    return (value, parts), gradient


def find_gradient(
    loss: Callable[[Agent, T], tuple[Float[Array, ""], Metrics]],
    agent: Agent,
    batch: T,
    chosen: Int[Array, " n"],
    parts: int,
) -> tuple[tuple[Float[Array, ""], Metrics], PyTree[Array]]:
    """A loss that is a mean over valid steps, its terms and its gradient over some sequences.

    Args:
        batch: all sequences, see `take_batch`, with "valid".
        chosen: which are read.
        parts: number of parts that are read one after the other, see `accumulate_gradient`; 1 for
            all at once.
    """
    if parts == 1:
        return eqx.filter_value_and_grad(loss, has_aux=True)(agent, take_batch(batch, chosen))
    whole: Any = batch
    split = chosen.reshape(parts, -1)
    return accumulate_gradient(
        loss, agent, partial(take_batch, batch), split, fractions(whole.valid, split)
    )


def take_batch(batch: T, chosen: Int[Array, " n"]) -> T:
    """The same times of fewer environments or sequences, `chosen` by index.

    Args:
        batch: arrays [time, all, ...] by name, and "state0", whose leaves are [all, ...].
        chosen: which are taken.
    """
    whole: Any = batch
    state0 = jax.tree.map(lambda leaf: leaf[chosen], whole.state0)
    taken = jax.tree.map(lambda leaf: leaf[:, chosen], whole._replace(state0=()))
    return taken._replace(state0=state0)


def fractions(
    valid: Bool[Array, "time sequences"], chosen: Int[Array, "parts n"]
) -> Float[Array, " parts"]:
    """The fraction of the valid steps of all chosen sequences in each part."""
    counts = jnp.sum(valid, axis=0)[chosen].sum(axis=1).astype(jnp.float32)
    return counts / jnp.maximum(jnp.sum(counts), 1.0)


def apply_gradient(
    agent: Agent,
    state: LearnerState,
    loss: tuple[Float[Array, ""], Metrics],
    gradient: PyTree[Array],
    optimiser: optax.GradientTransformation,
) -> Learned:
    """The step from a loss with its terms and its gradient, see `gradient_step`.

    The gradient is JAX's, d/dx - i d/dy for a complex parameter. The loss rises fastest along its
    conjugate, which the optimiser receives.
    """
    value, parts = loss
    gradient = jax.tree.map(jnp.conj, gradient)
    norm = optax.tree.norm(gradient)
    # Adam raises a float to an integer power, which a user's strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, new = optimiser.update(gradient, state.optimiser)
    metrics = {**parts, "loss": value, "grad_norm": norm}
    return Learned(eqx.apply_updates(agent, updates), state._replace(optimiser=new), metrics)


def learn_as_acted(
    agent: Agent,
    state: LearnerState,
    state0: State,
    observation: Float[Array, "time_and_one batch n"],
    start: Bool[Array, "time_and_one batch"],
    act: Callable[[Reading], tuple[Trajectory, T]],
    one_step: OneStep,
) -> tuple[Learned, T]:
    """One gradient step if all observations are known before any action: they are read once.

    Args:
        state0: the memory before the first observation; used unchanged.
        act: makes the trajectory, and anything else, from the network's outputs.
    """
    reading, backward = eqx.filter_vjp(lambda agent: read(agent, state0, observation, start), agent)
    trajectory, rest = act(reading)
    with_gradient = eqx.filter_value_and_grad(one_step.loss, has_aux=True)
    found, cotangent = with_gradient(reading, trajectory, agent.distribution)
    (gradient,) = backward(cotangent)
    return apply_gradient(agent, state, found, gradient, one_step.optimiser), rest


def valid_mean(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, ""]:
    """The mean of `x` where `valid`, 0 if nothing is; invalid entries may be NaN."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid.astype(x.dtype)), 1.0)


def valid_sum(x: Float[Array, "time batch"], valid: Bool[Array, "time batch"]) -> Array:
    """The sum over time of `x` where `valid`, and its mean over environments."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / x.shape[1]


def normalised(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, "*axes"]:
    """`x` with mean 0 and (biased) standard deviation 1 over the `valid` entries."""
    centred = x - valid_mean(x, valid)
    return centred / (jnp.sqrt(valid_mean(jnp.square(centred), valid)) + 1e-8)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number of a pytree is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
