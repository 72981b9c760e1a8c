"""One rollout and what is learned from it, as one function of arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.learner import learn
from clew.agents.learners.ppo import PPOConfig
from clew.agents.learners.ppo_learner import learn_ppo
from clew.agents.network import Agent
from clew.agents.trajectory import refresh_all, step_all
from clew.envs.base import Metrics
from clew.envs.stream import AutoReset
from clew.interact.open_loop_update import open_loop_update, updates_open_loop
from clew.interact.rollout import ActorState, rollout
from clew.run.config import TrainConfig


class Updated(NamedTuple):
    """What came of an update."""

    actor: ActorState
    """Where acting stands."""
    agent: Agent
    optimiser: optax.OptState
    losses: Metrics
    """The parts of the loss."""
    episodes: Metrics
    """Sums over the episodes that ended in the rollout."""


def make_update(
    agent: Agent,
    opt_state: optax.OptState,
    actor: ActorState,
    rollout_key: PRNGKeyArray,
    learn_key: PRNGKeyArray,
    *,
    stream: AutoReset,
    config: TrainConfig,
    optimiser: optax.GradientTransformation,
) -> Updated:
    """One rollout and what is learned from it, in the way that algorithm and task ask for."""
    if config.algorithm == "ppo":
        keys = (rollout_key, learn_key)
        return _with_ppo(agent, opt_state, actor, keys, stream, config.ppo, optimiser)
    if updates_open_loop(config.a2c, stream.env):
        made = open_loop_update(
            agent,
            opt_state,
            actor,
            rollout_key,
            env=stream.env,
            config=config.a2c,
            optimiser=optimiser,
        )
        return Updated(*made)
    keys = (rollout_key, learn_key)
    return _with_a2c(agent, opt_state, actor, keys, stream, config.a2c, optimiser)


def _with_a2c(
    agent: Agent,
    opt_state: optax.OptState,
    actor: ActorState,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    stream: AutoReset,
    config: A2CConfig,
    optimiser: optax.GradientTransformation,
) -> Updated:
    actor, trajectory, episodes = rollout(
        agent,
        stream,
        actor,
        config.rollout_length,
        keys[0],
        whole_episodes=config.whole_episodes,
    )
    agent, opt_state, losses = learn(agent, opt_state, trajectory, keys[1], config, optimiser)
    # What the memory cached was computed with the old parameters.
    memory = refresh_all(agent, actor.memory, config.num_envs)
    return Updated(actor._replace(memory=memory), agent, opt_state, losses, episodes)


def _with_ppo(
    agent: Agent,
    opt_state: optax.OptState,
    actor: ActorState,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    stream: AutoReset,
    config: PPOConfig,
    optimiser: optax.GradientTransformation,
) -> Updated:
    length = config.sequence_length

    def act(actor: ActorState, key: PRNGKeyArray) -> tuple[ActorState, tuple]:
        actor, *told = rollout(agent, stream, actor, length, key)
        return actor, tuple(told)

    rollout_keys = jax.random.split(keys[0], config.rollout_length // length)
    actor, (chunks, episodes) = jax.lax.scan(act, actor, rollout_keys)
    seen = actor.timestep
    _, _, value = step_all(agent, actor.memory, seen.observation, seen.start)
    agent, opt_state, losses = learn_ppo(
        agent, opt_state, chunks, value, keys[1], config, optimiser
    )
    memory = refresh_all(agent, actor.memory, config.num_envs)
    sums = jax.tree.map(lambda x: jnp.sum(x, axis=0), episodes)
    return Updated(actor._replace(memory=memory), agent, opt_state, losses, sums)
