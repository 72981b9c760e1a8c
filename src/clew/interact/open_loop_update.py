"""An update that reads an episode once, for acting and for learning."""

from typing import cast

import jax
from jaxtyping import Array, Int, PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.learners.base import Learned, LearnerState, learn_as_acted
from clew.agents.network import Agent
from clew.agents.trajectory import Reading, Trajectory
from clew.envs.base import Environment, Metrics, OpenLoop
from clew.interact.open_loop import apply_actions, precompute
from clew.interact.rollout import ActorState, draw, whole_clock


def updates_open_loop(learner: Learner, env: Environment) -> bool:
    """Whether each rollout is one whole episode whose observations no action can change.

    Then one reading serves acting and learning, and no memory goes from one update to the next.
    Tasks with action masks are stepped.
    """
    gathering = learner.gathering
    if not isinstance(env, OpenLoop) or env.masks_actions or gathering.one_step is None:
        return False
    return gathering.whole_episodes and learner.config.rollout_length >= env.longest


def open_loop_update(
    agent: Agent,
    state: LearnerState,
    before: ActorState,
    key: PRNGKeyArray,
    first_step: Int[Array, ""] | int,
    *,
    env: Environment,
    learner: Learner,
) -> tuple[ActorState, Learned, Metrics]:
    """One rollout and what is learned from it, where `updates_open_loop`.

    It is what `rollout` and `learn` do one after the other, up to rounding.

    Returns:
        Where acting stands, with the memory as it was; what was learned; sums over the episodes.
    """
    task, config, gathering = cast(OpenLoop, env), learner.config, learner.gathering
    assert gathering.one_step is not None
    env_keys, noise = draw(key, config.rollout_length, config.num_envs, agent.distribution)
    precomputed = precompute(task, before.env, before.timestep, env_keys)
    clock = whole_clock(first_step, config.rollout_length, config.num_envs)

    def act(reading: Reading) -> tuple[Trajectory, tuple[ActorState, Metrics]]:
        outputs = jax.tree.map(lambda x: x[:-1], reading.outputs)
        logits = gathering.behaviour(outputs, clock)
        after, trajectory, sums = apply_actions(
            task, before, precomputed, logits, outputs.value, noise, agent.distribution
        )
        return trajectory, (after, sums)

    seen = (precomputed.observation, precomputed.start)
    learned, (after, sums) = learn_as_acted(
        agent, state, before.memory, *seen, act, gathering.one_step
    )
    return after, learned, sums
