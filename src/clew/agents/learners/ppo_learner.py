"""What proximal policy optimisation learns from one rollout."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from clew.agents.learners.learner import apply_gradient
from clew.agents.learners.ppo import PPOConfig, Sequences, ppo_loss
from clew.agents.network import Agent
from clew.agents.returns import lambda_returns, vtrace
from clew.agents.trajectory import Trajectory, read, refresh_all

Metrics = dict[str, Float[Array, ""]]


def learn_ppo(
    agent: Agent,
    opt_state: optax.OptState,
    chunks: Trajectory,
    final_value: Float[Array, " batch"],
    key: PRNGKeyArray,
    config: PPOConfig,
    optimiser: optax.GradientTransformation,
) -> tuple[Agent, optax.OptState, Metrics]:
    """The learning that follows one rollout: `epochs` times `minibatches` gradient steps.

    Every gradient step reads whole sequences, each from the memory's state that acting had before
    its first observation, with what that state caches rebuilt for the present parameters.

    Args:
        agent: the network.
        opt_state: the optimiser's.
        chunks: the rollout's sequences one after the other, each a trajectory of
            `sequence_length` steps: every leaf has them as first axis, [K, S, B, ...].
        final_value: of the observation after the last step.
        key: deals the sequences out.
        config: the settings.
        optimiser: of `make_optimiser`.

    Returns:
        New agent, new optimiser's state, and means over the gradient steps that were made of the
        loss's parts, "loss", "grad_norm" and "gradient_steps", their number.
    """
    batch = make_sequences(agent, chunks, final_value, config)
    orders = jax.vmap(partial(jax.random.permutation, x=config.sequences))(
        jax.random.split(key, config.epochs)
    ).reshape(config.epochs * config.minibatches, -1)
    params, static = eqx.partition(agent, eqx.is_array)

    def attempt(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
        params, opt_state, stopped = carry
        agent = eqx.combine(params, static)
        part = take_sequences(batch, chosen)
        loss = eqx.filter_value_and_grad(ppo_loss, has_aux=True)
        (value, parts), gradient = loss(agent, part, config)
        if config.target_kl is not None:
            stopped = stopped | (parts["kl"] > config.target_kl)
        new, new_opt_state, norm = apply_gradient(agent, opt_state, gradient, optimiser)
        made = (eqx.filter(new, eqx.is_array), new_opt_state)
        if config.target_kl is not None:
            made = jax.tree.map(
                lambda old, new: jnp.where(stopped, old, new), (params, opt_state), made
            )
        metrics = parts | {"loss": value, "grad_norm": norm}
        return (*made, stopped), metrics | {"made": ~stopped}

    def skip(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
        shapes = jax.eval_shape(attempt, carry, chosen)[1]
        return carry, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def one(carry: PyTree[Array], chosen: Array) -> tuple[PyTree[Array], Metrics]:
        if config.target_kl is None:
            return attempt(carry, chosen)
        return jax.lax.cond(carry[2], skip, attempt, carry, chosen)

    carry = (params, opt_state, jnp.zeros((), bool))
    (params, opt_state, _), metrics = jax.lax.scan(one, carry, orders)
    made = metrics.pop("made")
    number = jnp.sum(made.astype(jnp.float32))
    means = {
        n: jnp.sum(jnp.where(made, x, 0.0)) / jnp.maximum(number, 1.0) for n, x in metrics.items()
    }
    return eqx.combine(params, static), opt_state, means | {"gradient_steps": number}


def make_sequences(
    agent: Agent, chunks: Trajectory, final_value: Float[Array, " batch"], config: PPOConfig
) -> Sequences:
    """Advantages and targets over the whole rollout, and all of it cut into sequences.

    Args:
        agent: the present network, which only `vtrace` asks.
        chunks: as `learn_ppo` takes them.
        final_value: of the observation after the last step, at the time of acting.
        config: the settings.
    """
    shape = chunks.reward.shape
    valid = ~chunks.last[:, :-1]
    rewards, discounts, oks = (
        _joined(x) for x in (chunks.reward, config.gamma * chunks.discount, valid)
    )
    values = jnp.append(_joined(chunks.value), final_value[None], axis=0)
    if config.advantages == "gae":
        target = lambda_returns(rewards, discounts, values, oks, config.lam)
        advantage = target - values[:-1]
    else:
        log_prob, values = reread_chunks(agent, chunks)
        log_ratio = log_prob - _joined(chunks.log_prob)
        target, advantage = vtrace(
            rewards, discounts, values, oks, log_ratio, config.lam, config.vtrace_clip
        )
    return Sequences(
        observation=jax.tree.map(lambda x: _side_by_side(x[:, :-1]), chunks.observation),
        start=_side_by_side(chunks.start[:, :-1]),
        action=_side_by_side(chunks.action),
        log_prob=_side_by_side(chunks.log_prob),
        value=_side_by_side(chunks.value),
        advantage=_side_by_side(advantage.reshape(shape)),
        target=_side_by_side(target.reshape(shape)),
        valid=_side_by_side(valid),
        state0=jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chunks.state0),
    )


def reread_chunks(
    agent: Agent, chunks: Trajectory
) -> tuple[Float[Array, "time batch"], Float[Array, "time_and_one batch"]]:
    """Log-probabilities of the actions, and values of all observations, by the present network."""
    count, batch = chunks.start.shape[0], chunks.start.shape[2]
    state0 = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chunks.state0)
    state0 = refresh_all(agent, state0, count * batch)
    observation = jax.tree.map(_side_by_side, chunks.observation)
    logits, values, _ = read(agent, state0, observation, _side_by_side(chunks.start))
    action = _side_by_side(chunks.action)
    log_prob = agent.distribution.log_prob(logits[:-1], action)
    each = values.reshape(-1, count, batch)
    all_values = jnp.append(_in_order(each[:-1]), each[-1:, -1], axis=0)
    return _in_order(log_prob.reshape(-1, count, batch)), all_values


def take_sequences(batch: Sequences, chosen: Array) -> Sequences:
    """Fewer sequences, `chosen` by index."""
    state0 = jax.tree.map(lambda leaf: leaf[chosen], batch.state0)
    taken = jax.tree.map(lambda leaf: leaf[:, chosen], batch._replace(state0=()))
    return taken._replace(state0=state0)


def _joined(x: Array) -> Array:
    """[K, S, B, ...] to [K S, B, ...]."""
    return x.reshape(-1, *x.shape[2:])


def _side_by_side(x: Array) -> Array:
    """[K, S, B, ...] to [S, K B, ...]."""
    x = jnp.swapaxes(x, 0, 1)
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def _in_order(x: Array) -> Array:
    """[S, K, B] to [K S, B]."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, x.shape[2])
