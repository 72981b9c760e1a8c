"""An update that reads an episode once, for acting and for learning."""

from typing import cast

import jax
import optax
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.learners.base import gradient_step_as_acted
from clew.agents.network import Agent
from clew.agents.trajectory import Outputs, Trajectory
from clew.envs.base import Environment, Metrics, OpenLoop
from clew.interact.open_loop import apply_actions, precompute
from clew.interact.rollout import ActorState, draw


def updates_open_loop(learner: Learner, env: Environment) -> bool:
    """Whether each rollout is one whole episode whose observations no action can change.

    Then one reading serves acting and learning, and no memory goes from one update to the next.
    Tasks with action masks are stepped.
    """
    if not isinstance(env, OpenLoop) or env.masks_actions or learner.loss_of_outputs is None:
        return False
    return learner.whole_episodes and learner.config.rollout_length >= env.longest


def open_loop_update(
    agent: Agent,
    opt_state: optax.OptState,
    before: ActorState,
    key: PRNGKeyArray,
    *,
    env: Environment,
    learner: Learner,
) -> tuple[ActorState, Agent, optax.OptState, Metrics, Metrics]:
    """One rollout and what is learned from it, where `updates_open_loop`.

    It is what `rollout` and `learn` do one after the other, up to rounding.

    Returns:
        Where acting stands, with the memory as it was; the new agent and optimiser's state; the
        parts of the loss; sums over the episodes.
    """
    task, config, loss = cast(OpenLoop, env), learner.config, learner.loss_of_outputs
    assert loss is not None
    env_keys, noise = draw(key, config.rollout_length, config.num_envs, agent.distribution)
    precomputed = precompute(task, before.env, before.timestep, env_keys)

    def act(outputs: Outputs) -> tuple[Trajectory, tuple[ActorState, Metrics]]:
        logits, values, _ = jax.tree.map(lambda x: x[:-1], outputs)
        after, trajectory, sums = apply_actions(
            task, before, precomputed, logits, values, noise, agent.distribution
        )
        return trajectory, (after, sums)

    seen = (precomputed.observation, precomputed.start)
    agent, opt_state, losses, (after, sums) = gradient_step_as_acted(
        agent, opt_state, before.memory, *seen, act, loss, learner.optimiser
    )
    return after, agent, opt_state, losses, sums
