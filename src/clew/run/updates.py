"""One update of a run: what is learned from what acting gathered, and what is recorded of both."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.learners.base import Learned, LearnerState, all_finite
from clew.agents.network import Agent
from clew.agents.trajectory import refresh_all
from clew.envs.base import Metrics
from clew.envs.stream import AutoReset
from clew.interact.open_loop_update import open_loop_update, updates_open_loop
from clew.interact.rollout import ActorState, Experience, gather


class Updated(NamedTuple):
    """What came of an update."""

    actor: Any
    """Where acting stands."""
    learned: Learned
    """The new agent, the learner's new state, and the parts of the loss."""
    episodes: Metrics
    """Sums over the episodes that ended in the rollout."""


class SeedState(NamedTuple):
    """Everything that one seed's training consists of; arrays only."""

    agent: Any
    """The arrays of the agent; what is not an array is the same all through a run."""
    learner: LearnerState
    actor: Any
    """Where acting stands: an `ActorState`, or a `HostState` for Gymnasium environments."""
    key: PRNGKeyArray
    sums: dict[str, Float[Array, ""]]
    """Sums since the last row of metrics: of the loss's parts over updates, and of the episodes'
    metrics over the episodes that ended."""
    finite: Bool[Array, ""]
    """Whether loss and parameters of the last update were finite."""

    def after(self, made: Updated, key: PRNGKeyArray, fresh_row: Bool[Array, ""]) -> "SeedState":
        """The state after an update.

        Args:
            made: by the update.
            key: of the next one.
            fresh_row: whether the update is the first of a row of metrics.
        """
        agent, learner, losses = made.learned
        added = losses | made.episodes
        sums = {n: jnp.where(fresh_row, 0.0, self.sums[n]) + added[n] for n in self.sums}
        finite = all_finite((losses["loss"], agent))
        return SeedState(eqx.filter(agent, eqx.is_array), learner, made.actor, key, sums, finite)


def act_and_learn(
    agent: Agent,
    state: LearnerState,
    actor: ActorState,
    rollout_key: PRNGKeyArray,
    learn_key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    *,
    stream: AutoReset,
    learner: Learner,
) -> Updated:
    """One update in a task written in JAX, in the way that learner and task ask for.

    Args:
        agent: the network.
        state: the learner's.
        actor: where acting stands.
        rollout_key: of the rollout's random numbers.
        learn_key: of what learning samples.
        number: of updates before this one.
        stream: the task.
        learner: says what to gather, and learns from it.
    """
    first_step = number * learner.config.rollout_length
    if updates_open_loop(learner, stream.env):
        update = partial(open_loop_update, env=stream.env, learner=learner)
        return Updated(*update(agent, state, actor, rollout_key, first_step))
    gathered = gather(agent, actor, rollout_key, first_step, stream=stream, learner=learner)
    return learn(agent, state, gathered, learn_key, learner)


def learn(
    agent: Agent, state: LearnerState, gathered: Experience, key: PRNGKeyArray, learner: Learner
) -> Updated:
    """What is learned from a rollout, wherever it was gathered."""
    actor, rollout, episodes = gathered
    learned = Learned(*learner.learn(agent, state, rollout, key))
    # What the memory cached was computed with the old parameters.
    memory = refresh_all(learned.agent, rollout.memory, learner.config.num_envs)
    return Updated(actor._replace(memory=memory), learned, episodes)
