"""Acting: T steps of B environments under one policy, in one scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.agents.network import Agent
from clew.agents.trajectory import Trajectory
from clew.envs.base import AutoReset, AutoResetState, TimeStep
from clew.memory.base import State


class ActorState(NamedTuple):
    """Where acting stands: every leaf has the environments as its first axis."""

    env: AutoResetState
    timestep: TimeStep
    memory: State


def init_actor(agent: Agent, stream: AutoReset, num_envs: int, key: PRNGKeyArray) -> ActorState:
    """Opens an episode in every environment, with an empty memory."""
    env, timestep = jax.vmap(stream.reset)(jax.random.split(key, num_envs))
    memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_envs), agent.init_state())
    return ActorState(env, timestep, memory)


def rollout(
    agent: Agent, stream: AutoReset, actor: ActorState, length: int, key: PRNGKeyArray
) -> tuple[ActorState, Trajectory, dict[str, Float[Array, ""]]]:
    """Acts for `length` steps in every environment, drawing actions from the policy.

    The random numbers of the whole rollout are drawn before it: an action is the largest of
    logits plus Gumbel noise, which is a draw from the softmax of the logits.

    Returns:
        Where acting stands now, the trajectory, and sums over the episodes that ended in it:
        "episodes" (their number) and the stream's metrics.
    """
    num_envs = actor.timestep.reward.shape[0]
    env_key, action_key = jax.random.split(key)
    env_keys = jax.random.split(env_key, (length, num_envs))
    noise = jax.random.gumbel(action_key, (length, num_envs, stream.num_actions))

    def one(now: ActorState, inputs: tuple[Array, Array]) -> tuple[ActorState, tuple]:
        noise, keys = inputs
        seen = now.timestep
        memory, logits, value = jax.vmap(agent.step)(now.memory, seen.observation, seen.start)
        action = jnp.argmax(logits + noise, axis=-1)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=-1)[:, 0]
        env, then = jax.vmap(stream.step)(now.env, action, keys)
        acted = (seen.observation, seen.start, seen.last, action, log_prob, value)
        result = (then.reward, then.discount, then.ended, then.metrics)
        return ActorState(env, then, memory), (acted, result)

    state0 = actor.memory
    actor, (acted, result) = jax.lax.scan(one, actor, (noise, env_keys))
    observation, start, last, action, log_prob, value = acted
    reward, discount, ended, metrics = result
    trajectory = Trajectory(
        observation=_append(observation, actor.timestep.observation),
        start=_append(start, actor.timestep.start),
        last=_append(last, actor.timestep.last),
        action=action,
        reward=reward,
        discount=discount,
        log_prob=log_prob,
        value=value,
        state0=state0,
    )
    episodes = {"episodes": jnp.sum(ended.astype(jnp.float32))}
    sums = {name: jnp.sum(jnp.where(ended, value, 0.0)) for name, value in metrics.items()}
    return actor, trajectory, episodes | sums


def _append(xs: Array, x: Array) -> Array:
    return jnp.concatenate([xs, x[None]])
