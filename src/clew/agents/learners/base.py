"""What every learning algorithm is, and the gradient step that they share."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.agents.trajectory import Outputs, Rollout, Trajectory, read
from clew.errors import UserError, require_choice, require_fraction, require_rate
from clew.memory.base import State
from clew.names import check_call, is_reference, resolve

T = TypeVar("T")

Metrics = dict[str, Float[Array, ""]]
Loss = Callable[[Agent, Trajectory], tuple[Float[Array, ""], Metrics]]
OutputsLoss = Callable[[Outputs, Trajectory, Distribution], tuple[Float[Array, ""], Metrics]]
Learned = tuple[Agent, optax.OptState, Metrics]
"""New agent, new optimiser state, metrics of the update."""

SCHEDULES = ("constant", "linear")
"""How the step size goes over a run."""
LOSS_METRICS = ("loss", "policy_loss", "value_loss", "entropy", "value", "grad_norm")
"""Metrics of an actor-critic's update."""


class LearnerConfig(Protocol):
    """What the settings of every learner have: a frozen dataclass with these and its own."""

    @property
    def num_envs(self) -> int:
        """Environments stepped side by side."""
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
        """Step size of the optimiser."""
        ...

    @property
    def max_grad_norm(self) -> float | None:
        """Largest global norm of the gradient; None for no limit."""
        ...

    def validate(self) -> None:
        """Refuses impossible settings, with a `UserError`."""
        ...


class AdamConfig(Protocol):
    """The settings that `adam` reads."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def max_grad_norm(self) -> float | None: ...
    @property
    def adam_b1(self) -> float: ...
    @property
    def adam_b2(self) -> float: ...
    @property
    def adam_eps(self) -> float: ...


class Learner(Protocol):
    """A learning algorithm with its settings: what to gather, and what to learn from it.

    `LEARNERS` names the classes that have this form. Runners call nothing else, so a learner knows
    neither tasks nor devices nor where rollouts come from.
    """

    settings: ClassVar[type]
    """The dataclass of its settings, a `LearnerConfig`."""
    metrics: ClassVar[tuple[str, ...]]
    """Names of what `learn` reports, besides the memory's metrics ("memory.NAME")."""
    tolerates_lag: ClassVar[bool]
    """Whether it may learn from what earlier parameters gathered, as with the asynchronous
    runner."""

    @property
    def config(self) -> LearnerConfig:
        """Its settings."""
        ...

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Turns gradients into steps."""
        ...

    @property
    def sequence_length(self) -> int | None:
        """Steps that are read in one piece while learning; None for the whole rollout."""
        ...

    @property
    def sequences_per_step(self) -> int:
        """Sequences that one gradient step reads, over all environments."""
        ...

    @property
    def whole_episodes(self) -> bool:
        """Whether every rollout is one whole episode of each environment. JAX tasks only."""
        ...

    @property
    def scheduled(self) -> bool:
        """Whether an update depends on how many the whole run has."""
        ...

    @property
    def loss_of_outputs(self) -> OutputsLoss | None:
        """The loss as a function of the network's outputs, if an update is one gradient step.

        Where no action changes an observation, acting and learning then read each episode once.
        """
        ...

    def learn(
        self, agent: Agent, opt_state: optax.OptState, rollout: Rollout, key: PRNGKeyArray
    ) -> Learned:
        """The update that follows a rollout; `key` is for what learning samples."""
        ...


def require_learner(name: str, kind: type) -> None:
    """Refuses a class that lacks a member of `Learner`.

    Raises:
        UserError: naming what it lacks.
    """
    members = {*Learner.__annotations__, *vars(Learner)}
    public = {member for member in members if not member.startswith("_")}
    fields = {field for base in kind.__mro__ for field in inspect.get_annotations(base)}
    missing = sorted(public - fields - {*dir(kind)}) if isinstance(kind, type) else sorted(public)
    if missing:
        raise UserError(f"{name} is no learner: it lacks {', '.join(missing)}")
    if not dataclasses.is_dataclass(kind.settings):
        raise UserError(f"settings of {name} must be a dataclass, got {kind.settings!r:.60}")


def adam(
    config: AdamConfig, schedule: optax.Schedule | None = None
) -> optax.GradientTransformation:
    """Clipping by the global norm, then Adam.

    Args:
        config: the constants, and the step size where there is no schedule.
        schedule: the step size by the number of the gradient step.

    Source: Kingma and Ba (2015); order and constants of Pramanik's published code.
    """
    rate = config.learning_rate if schedule is None else schedule
    optimiser = optax.adam(rate, b1=config.adam_b1, b2=config.adam_b2, eps=config.adam_eps)
    if config.max_grad_norm is None:
        return optimiser
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optimiser)


def make_schedule(schedule: str, rate: float, steps: int) -> optax.Schedule | None:
    """The step size by the number of the gradient step; None for a constant one.

    Args:
        schedule: one of `SCHEDULES`, or "module:function" for one of your own, which is called with
            the step size of the settings and the number of gradient steps of the whole run, and
            returns an optax schedule.
        rate: the step size of the settings.
        steps: that the run's steps allow.

    Raises:
        UserError: if the function cannot be found or called.
    """
    if is_reference(schedule):
        function = resolve(schedule)
        check_call(schedule, function, rate, steps)
        return function(rate, steps)
    return None if schedule == "constant" else optax.linear_schedule(rate, 0.0, steps)


def validate_schedule(schedule: str) -> None:
    """Refuses an unknown schedule, with a `UserError`."""
    if is_reference(schedule):
        resolve(schedule)
    else:
        require_choice("schedule", schedule, SCHEDULES)


def validate_adam(config: AdamConfig) -> None:
    """Refuses impossible settings of `adam`, with a `UserError`."""
    require_rate("learning_rate", config.learning_rate)
    require_rate("adam_eps", config.adam_eps, positive=True)
    for name in ("adam_b1", "adam_b2"):
        require_fraction(name, getattr(config, name))
    if 1 in (config.adam_b1, config.adam_b2):
        raise UserError("adam_b1 and adam_b2 must be below 1, at 1 nothing is ever learned")
    if config.max_grad_norm is not None:
        require_rate("max_grad_norm", config.max_grad_norm, positive=True)


def init_optimiser(optimiser: optax.GradientTransformation, agent: Agent) -> optax.OptState:
    """The optimiser's state before the first update."""
    return optimiser.init(eqx.filter(agent, eqx.is_inexact_array))


def gradient_step(
    agent: Agent,
    opt_state: optax.OptState,
    trajectory: Trajectory,
    loss: Loss,
    optimiser: optax.GradientTransformation,
) -> Learned:
    """One gradient step on one trajectory.

    Returns:
        New agent, new optimiser state, and the loss's parts with "loss" and "grad_norm", the
        global norm before any clipping.
    """
    (value, parts), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(agent, trajectory)
    agent, opt_state, norm = apply_gradient(agent, opt_state, gradient, optimiser)
    return agent, opt_state, {**parts, "loss": value, "grad_norm": norm}


def apply_gradient(
    agent: Agent,
    opt_state: optax.OptState,
    gradient: PyTree[Array],
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, Float[Array, ""]]:
    """New agent, new optimiser state, and the global norm before any clipping."""
    norm = optax.tree.norm(gradient)
    # Adam raises a float to an integer power, which a user's strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = optimiser.update(gradient, opt_state)
    return eqx.apply_updates(agent, updates), opt_state, norm


def gradient_step_as_acted(
    agent: Agent,
    opt_state: optax.OptState,
    state0: State,
    observation: Float[Array, "time_and_one batch n"],
    start: Bool[Array, "time_and_one batch"],
    act: Callable[[Outputs], tuple[Trajectory, T]],
    loss: OutputsLoss,
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, Metrics, T]:
    """One gradient step where all observations are known before any action: they are read once.

    Args:
        agent: the network.
        opt_state: the optimiser's.
        state0: before the first observation; taken as it is.
        observation: all of them.
        start: which open an episode.
        act: makes the trajectory from the network's outputs, and anything else.
        loss: of what the network says of them.
        optimiser: the learner's.
    """
    outputs, backward = eqx.filter_vjp(lambda agent: read(agent, state0, observation, start), agent)
    trajectory, rest = act(outputs)
    with_gradient = eqx.filter_value_and_grad(loss, has_aux=True)
    (value, parts), cotangent = with_gradient(outputs, trajectory, agent.distribution)
    (gradient,) = backward(cotangent)
    agent, opt_state, norm = apply_gradient(agent, opt_state, gradient, optimiser)
    return agent, opt_state, {**parts, "loss": value, "grad_norm": norm}, rest


def valid_mean(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, ""]:
    """The mean of `x` where `valid`, 0 if nothing is; what is not valid may even be NaN."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid.astype(x.dtype)), 1.0)


def valid_sum(x: Float[Array, "time batch"], valid: Bool[Array, "time batch"]) -> Array:
    """The sum over time of `x` where `valid`, and its mean over environments."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / x.shape[1]


def normalised(x: Float[Array, "*axes"], valid: Bool[Array, "*axes"]) -> Float[Array, "*axes"]:
    """`x` with mean 0 and (biased) deviation 1 over what is `valid`."""
    centred = x - valid_mean(x, valid)
    return centred / (jnp.sqrt(valid_mean(jnp.square(centred), valid)) + 1e-8)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number of a pytree is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
