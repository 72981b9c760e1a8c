"""One rollout in, new parameters out."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from clew.agents.learners.a2c import A2CConfig, a2c_loss, loss_of_outputs
from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import Agent
from clew.agents.trajectory import Outputs, Trajectory, read
from clew.memory.base import State

Rest = TypeVar("Rest")

Loss = Callable[[Agent, Trajectory], tuple[Float[Array, ""], dict[str, Float[Array, ""]]]]


def make_optimiser(config: A2CConfig | PPOConfig, updates: int = 1) -> optax.GradientTransformation:
    """Clipping by the global norm, then Adam.

    Args:
        config: the step size, which is constant unless there is a schedule, and other constants.
        updates: rollouts of the whole run, which a linear schedule ends with.

    Source: Kingma and Ba (2015); order and constants of the authors' published code.
    """
    rate = config.learning_rate
    if isinstance(config, PPOConfig) and config.schedule == "linear":
        rate = optax.linear_schedule(rate, 0.0, updates * config.epochs * config.minibatches)
    adam = optax.adam(rate, b1=config.adam_b1, b2=config.adam_b2, eps=config.adam_eps)
    if config.max_grad_norm is None:
        return adam
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam)


def init_optimiser(optimiser: optax.GradientTransformation, agent: Agent) -> optax.OptState:
    """The optimiser's state before the first update."""
    return optimiser.init(eqx.filter(agent, eqx.is_inexact_array))


def gradient_step(
    agent: Agent,
    opt_state: optax.OptState,
    trajectory: Trajectory,
    loss: Loss,
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, dict[str, Float[Array, ""]]]:
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


def learn(
    agent: Agent,
    opt_state: optax.OptState,
    trajectory: Trajectory,
    key: PRNGKeyArray,
    config: A2CConfig,
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, dict[str, Float[Array, ""]]]:
    """The learning that follows one rollout: one gradient step per minibatch.

    With more than one minibatch the environments are dealt out at random; whole environments,
    because a memory must read its observations in order. Metrics are means over the minibatches.
    """

    def loss(agent: Agent, trajectory: Trajectory) -> tuple[Array, dict[str, Array]]:
        return a2c_loss(agent, trajectory, config)

    if config.minibatches == 1:
        return gradient_step(agent, opt_state, trajectory, loss, optimiser)
    order = jax.random.permutation(key, config.num_envs).reshape(config.minibatches, -1)
    params, static = eqx.partition(agent, eqx.is_array)

    def one(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], dict[str, Array]]:
        params, opt_state = carry
        batch = take_environments(trajectory, chosen)
        agent, opt_state, metrics = gradient_step(
            eqx.combine(params, static), opt_state, batch, loss, optimiser
        )
        return (eqx.filter(agent, eqx.is_array), opt_state), metrics

    (params, opt_state), metrics = jax.lax.scan(one, (params, opt_state), order)
    return eqx.combine(params, static), opt_state, jax.tree.map(jnp.mean, metrics)


def learn_as_acted(
    agent: Agent,
    opt_state: optax.OptState,
    state0: State,
    observation: Float[Array, "time_and_one batch n"],
    start: Bool[Array, "time_and_one batch"],
    act: Callable[[Outputs], tuple[Trajectory, Rest]],
    config: A2CConfig,
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, dict[str, Float[Array, ""]], Rest]:
    """`learn` where all observations are known before any action: they are read only once.

    Args:
        agent: the network.
        opt_state: the optimiser's.
        state0: before the first observation; taken as it is.
        observation: all of them.
        start: which open an episode.
        act: makes the trajectory from the network's outputs, and anything else.
        config: with one minibatch.
        optimiser: of `make_optimiser`.
    """
    outputs, backward = eqx.filter_vjp(lambda agent: read(agent, state0, observation, start), agent)
    trajectory, rest = act(outputs)
    loss = eqx.filter_value_and_grad(loss_of_outputs, has_aux=True)
    (value, parts), cotangent = loss(outputs, trajectory, config, agent.distribution)
    (gradient,) = backward(cotangent)
    agent, opt_state, norm = apply_gradient(agent, opt_state, gradient, optimiser)
    return agent, opt_state, {**parts, "loss": value, "grad_norm": norm}, rest


def take_environments(trajectory: Trajectory, chosen: Array) -> Trajectory:
    """The same times of fewer environments, `chosen` by index."""
    state0 = jax.tree.map(lambda leaf: leaf[chosen], trajectory.state0)
    rest = trajectory._replace(state0=())
    taken = jax.tree.map(lambda leaf: leaf[:, chosen], rest)
    return taken._replace(state0=state0)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number of a pytree is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
