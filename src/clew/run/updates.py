"""One rollout and what is learned from it, as one function of arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout, Trajectory, refresh_all
from clew.envs.base import Metrics
from clew.envs.stream import AutoReset
from clew.interact.open_loop_update import open_loop_update, updates_open_loop
from clew.interact.rollout import ActorState, rollout


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
    learner: Learner,
) -> Updated:
    """One rollout and what is learned from it, in the way that learner and task ask for."""
    if updates_open_loop(learner, stream.env):
        return Updated(
            *open_loop_update(agent, opt_state, actor, rollout_key, env=stream.env, learner=learner)
        )
    actor, gathered, episodes = gather(agent, actor, rollout_key, stream=stream, learner=learner)
    agent, opt_state, losses = learner.learn(agent, opt_state, gathered, learn_key)
    # What the memory cached was computed with the old parameters.
    memory = refresh_all(agent, actor.memory, learner.config.num_envs)
    return Updated(actor._replace(memory=memory), agent, opt_state, losses, episodes)


def gather(
    agent: Agent,
    actor: ActorState,
    key: PRNGKeyArray,
    *,
    stream: AutoReset,
    learner: Learner,
) -> tuple[ActorState, Rollout, Metrics]:
    """A rollout in the sequences that the learner reads, and sums over its episodes."""
    length = learner.sequence_length
    if length is None:
        actor, whole, episodes = rollout(
            agent,
            stream,
            actor,
            learner.config.rollout_length,
            key,
            whole_episodes=learner.whole_episodes,
        )
        chunks = jax.tree.map(lambda x: x[None], whole)
    else:

        def act(
            actor: ActorState, key: PRNGKeyArray
        ) -> tuple[ActorState, tuple[Trajectory, Metrics]]:
            actor, chunk, episodes = rollout(agent, stream, actor, length, key)
            return actor, (chunk, episodes)

        keys = jax.random.split(key, learner.config.rollout_length // length)
        actor, (chunks, sums) = jax.lax.scan(act, actor, keys)
        episodes = jax.tree.map(lambda x: jnp.sum(x, axis=0), sums)
    seen = actor.timestep
    return actor, Rollout(chunks, actor.memory, seen.observation, seen.start), episodes
