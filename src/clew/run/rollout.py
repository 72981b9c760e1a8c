"""Acting: T steps of B environments under one policy, in one scan."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from clew.agents.network import Agent
from clew.agents.trajectory import Trajectory
from clew.envs.base import AutoReset, AutoResetState, OpenLoop, TimeStep
from clew.memory.base import State


class ActorState(NamedTuple):
    """Where acting stands: every leaf has the environments as its first axis."""

    env: AutoResetState
    timestep: TimeStep
    memory: State


def init_actor(agent: Agent, stream: AutoReset, num_envs: int, key: PRNGKeyArray) -> ActorState:
    """Opens an episode in every environment, with an empty memory."""
    env, timestep = jax.vmap(stream.reset)(jax.random.split(key, num_envs))
    return begin(agent, env, timestep)


def begin(agent: Agent, env: AutoResetState, timestep: TimeStep) -> ActorState:
    """Opened environments, each with an empty memory."""
    num_envs = timestep.reward.shape[0]
    memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_envs), agent.init_state())
    return ActorState(env, timestep, memory)


def rollout(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    length: int,
    key: PRNGKeyArray,
    *,
    whole_episodes: bool = False,
) -> tuple[ActorState, Trajectory, dict[str, Float[Array, ""]]]:
    """Acts for `length` steps in every environment, drawing actions from the policy.

    The random numbers of the whole rollout are drawn before it: an action is the largest of
    logits plus Gumbel noise, which is a draw from the softmax of the logits.

    With `whole_episodes` an environment whose next episode has been opened stands still until the
    end of the rollout, and what is written of it until then is marked `last`, so not valid.

    In an open-loop task the episode's observations are then read in one pass, with the same
    results up to rounding.

    Returns:
        Where acting stands now, the trajectory, and sums over the episodes that ended in it:
        "episodes" (their number) and the stream's metrics.
    """
    num_envs = actor.timestep.reward.shape[0]
    env_key, action_key = jax.random.split(key)
    env_keys = jax.random.split(env_key, (length, num_envs))
    noise = jax.random.gumbel(action_key, (length, num_envs, stream.num_actions))
    if whole_episodes and isinstance(stream.env, OpenLoop):
        one = partial(_foresee, agent, stream.env)
        axes = (ActorState(0, 0, 0), 1, 1)
        return _of_batch(*jax.vmap(one, in_axes=axes)(actor, noise, env_keys), actor.memory)

    def one(carry: tuple[ActorState, Array], inputs: tuple[Array, Array]) -> tuple:
        (now, over), (noise, keys) = carry, inputs
        seen = now.timestep
        memory, logits, value = jax.vmap(agent.step)(now.memory, seen.observation, seen.start)
        action = jnp.argmax(logits + noise, axis=-1)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=-1)[:, 0]
        env, then = jax.vmap(stream.step)(now.env, action, keys)
        acted = (seen.observation, seen.start, seen.last | over, action, log_prob, value)
        reward = jnp.where(over, 0.0, then.reward)
        result = (reward, then.discount, then.ended & ~over, then.metrics)
        after = ActorState(env, then, memory)
        if whole_episodes:
            after = jax.tree.map(partial(_where, over), now, after)
            over = over | then.start
        return (after, over), (acted, result)

    state0 = actor.memory
    carry = (actor, jnp.zeros(num_envs, bool))
    (actor, _), (acted, result) = jax.lax.scan(one, carry, (noise, env_keys))
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
    return actor, trajectory, _sums(ended, metrics)


def _foresee(
    agent: Agent,
    env: OpenLoop,
    now: ActorState,
    noise: Float[Array, "time actions"],
    keys: Key[Array, " time"],
) -> tuple[ActorState, Trajectory, Array, dict[str, Array]]:
    """One environment's rollout: what it will show, what is done about it, and what that earns."""
    length = len(keys)
    states = env.ahead(now.env.env, length)
    step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    step = jax.vmap(env.step)
    after, shown = step(states, jnp.zeros(length, jnp.int32), step_keys)
    passed = jnp.cumsum(shown.terminated.astype(jnp.int32))
    over = jnp.append(jnp.zeros(1, bool), passed > 0)  # before the step, and at the end
    finished, final = over[-1], jnp.argmax(shown.terminated)
    fresh_state, fresh = env.next_episode(_at(after, final), reset_keys[final])
    observed = jnp.concatenate([now.timestep.observation[None], shown.observation])
    observation = jnp.where(over[:, None], fresh, observed)
    start = jnp.append(now.timestep.start, jnp.zeros(length, bool)) | over

    memory, logits, values = agent.unroll(now.memory, observation[:-1], start[:-1])
    action = jnp.argmax(logits + noise, axis=-1)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=-1)[:, 0]

    earned = step(states, action, step_keys)[1]
    ended = earned.terminated & ~over[:-1]
    reward = jnp.where(over[:-1], 0.0, earned.reward)
    total = now.env.episode_return + jnp.cumsum(reward)
    count = now.env.episode_length + jnp.arange(1, length + 1, dtype=jnp.int32)
    discount = 1.0 - ended.astype(jnp.float32)
    metrics = earned.metrics | {"return": total, "length": count.astype(jnp.float32)}
    trajectory = Trajectory(
        observation=observation,
        start=start,
        last=over.at[-1].set(False),
        action=action,
        reward=reward,
        discount=discount,
        log_prob=log_prob,
        value=values,
        state0=(),
    )
    env_state = AutoResetState(
        env=jax.tree.map(partial(jnp.where, finished), fresh_state, _at(after, length - 1)),
        last=now.env.last,
        episode_return=jnp.where(finished, 0.0, total[-1]),
        episode_length=jnp.where(finished, 0, count[-1]),
    )
    timestep = now.timestep._replace(observation=observation[-1], start=start[-1])
    return ActorState(env_state, timestep, memory), trajectory, ended, metrics


def _of_batch(
    actor: ActorState,
    trajectory: Trajectory,
    ended: Array,
    metrics: dict[str, Array],
    state0: State,
) -> tuple[ActorState, Trajectory, dict[str, Array]]:
    """The rollouts of all environments, time first."""
    trajectory = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), trajectory)
    return actor, trajectory._replace(state0=state0), _sums(ended, metrics)


def _sums(ended: Array, metrics: dict[str, Array]) -> dict[str, Array]:
    """How many episodes ended, and the sums of their metrics."""
    episodes = {"episodes": jnp.sum(ended.astype(jnp.float32))}
    return episodes | {n: jnp.sum(jnp.where(ended, x, 0.0)) for n, x in metrics.items()}


def _at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _where(choice: Bool[Array, " batch"], a: Array, b: Array) -> Array:
    """One or the other for each environment, the first axis of a leaf."""
    wide = choice.reshape(choice.shape + (1,) * (a.ndim - 1))
    return jnp.where(jnp.broadcast_to(wide, a.shape), a, b)


def _append(xs: Array, x: Array) -> Array:
    return jnp.concatenate([xs, x[None]])
