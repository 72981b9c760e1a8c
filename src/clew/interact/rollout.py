"""Acting: T steps of B environments under one policy, in one scan."""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from clew.agents.devices import shard_batch
from clew.agents.distributions import Distribution
from clew.agents.heads import Behaviour, Clock, follow_policy
from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout, Trajectory
from clew.envs.base import Metrics, OpenLoop
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.interact.acting import ActorState, act_and_step
from clew.interact.open_loop import apply_actions, episode_sums, precompute
from clew.memory.base import State


class Experience(NamedTuple):
    """What acting gathered for an update."""

    actor: Any
    """Where acting stands: an `ActorState`, or a `HostState` for Gymnasium environments. Its memory
    is that of the parameters that acted."""
    rollout: Rollout
    episodes: dict[str, Float[Array, ""]]
    """Sums over the episodes that ended: "episodes", their number, and the task's metrics."""


def init_actor(agent: Agent, stream: AutoReset, num_envs: int, key: PRNGKeyArray) -> ActorState:
    """Opens an episode in every environment, with an empty memory."""
    env, timestep = jax.vmap(stream.reset)(jax.random.split(key, num_envs))
    return begin(agent, env, timestep)


def begin(agent: Agent, env: AutoResetState, timestep: TimeStep) -> ActorState:
    """Opened environments, each with an empty memory."""
    num_envs = timestep.reward.shape[0]
    return ActorState(env, timestep, empty_memories(agent, num_envs))


def empty_memories(agent: Agent, count: int) -> State:
    """So many memories before any observation, each leaf [count, ...]."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * count), agent.init_state())


def rollout(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    length: int,
    key: PRNGKeyArray,
    *,
    whole_episodes: bool = False,
    behaviour: Behaviour = follow_policy,
    first_step: Int[Array, ""] | int = 0,
) -> tuple[ActorState, Trajectory, dict[str, Float[Array, ""]]]:
    """Acts for `length` steps in every environment, drawing actions from a policy.

    The random numbers of the whole rollout are drawn before it (`draw`).

    With `whole_episodes` an environment whose next episode has been opened stands still until the
    end of the rollout, and what is written of it until then is marked `last`, so not valid.

    In an open-loop task without action masks the episode's observations are then read in one pass,
    with the same results up to rounding.

    Args:
        agent: the network.
        stream: the task.
        actor: where acting stands.
        length: of the rollout.
        key: of its random numbers.
        whole_episodes: see above.
        behaviour: the policy that acts.
        first_step: how often each environment was stepped before, in the whole run.

    Returns:
        Where acting stands now, the trajectory, and sums over the episodes that ended in it:
        "episodes" (their number) and the stream's metrics.
    """
    num_envs = actor.timestep.reward.shape[0]
    env_keys, noise = draw(key, length, num_envs, agent.distribution)
    clock = whole_clock(first_step, length, num_envs)
    if whole_episodes and isinstance(stream.env, OpenLoop) and not stream.masks_actions:
        return _at_once(agent, stream.env, actor, env_keys, noise, behaviour, clock)
    state0 = actor.memory
    axes: Any = (None, 0, 1, 1, Clock(cast(Any, 1), cast(Any, None)))
    act = shard_batch(partial(_act, stream, whole_episodes, behaviour), axes, (0, 1))
    actor, (acted, result) = act(agent, actor, noise, env_keys, clock)
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
    return actor, trajectory, episode_sums(ended, metrics)


def gather(
    agent: Agent,
    actor: ActorState,
    key: PRNGKeyArray,
    first_step: Int[Array, ""] | int = 0,
    *,
    stream: AutoReset,
    learner: Learner,
) -> Experience:
    """Acts for a rollout, in the sequences that the learner reads.

    Args:
        agent: the network.
        actor: where acting stands.
        key: of the rollout's random numbers.
        first_step: how often each environment was stepped before, in the whole run.
        stream: the task.
        learner: says what to gather.
    """
    wanted, steps = learner.gathering, learner.config.rollout_length
    if wanted.sequence_length is None:
        actor, whole, episodes = rollout(
            agent,
            stream,
            actor,
            steps,
            key,
            whole_episodes=wanted.whole_episodes,
            behaviour=wanted.behaviour,
            first_step=first_step,
        )
        chunks = jax.tree.map(lambda x: x[None], whole)
    else:
        length = wanted.sequence_length

        def act(
            actor: ActorState, inputs: tuple[PRNGKeyArray, Int[Array, ""]]
        ) -> tuple[ActorState, tuple[Trajectory, Metrics]]:
            key, first_step = inputs
            actor, chunk, episodes = rollout(
                agent,
                stream,
                actor,
                length,
                key,
                behaviour=wanted.behaviour,
                first_step=first_step,
            )
            return actor, (chunk, episodes)

        count = steps // length
        firsts = first_step + length * jnp.arange(count, dtype=jnp.int32)
        inputs = jax.random.split(key, count), firsts
        actor, (chunks, sums) = jax.lax.scan(act, actor, inputs)
        episodes = jax.tree.map(lambda x: jnp.sum(x, axis=0), sums)
    seen = actor.timestep
    return Experience(actor, Rollout(chunks, actor.memory, seen.observation, seen.start), episodes)


def whole_clock(first_step: Int[Array, ""] | int, length: int, num_envs: int) -> Clock:
    """The clock of every step of a rollout: environments [1, batch], steps [length, 1]."""
    steps = first_step + jnp.arange(length, dtype=jnp.int32)
    return Clock(jnp.arange(num_envs, dtype=jnp.int32)[None], steps[:, None])


def _act(
    stream: AutoReset,
    whole_episodes: bool,
    behaviour: Behaviour,
    agent: Agent,
    actor: ActorState,
    noise: Array,
    env_keys: Key[Array, "time batch"],
    clock: Clock,
) -> tuple[ActorState, tuple[tuple, tuple]]:
    """Where acting stands after the rollout, and every step's actions and what they did."""
    distribution = agent.distribution

    def one(carry: tuple[ActorState, Array], inputs: tuple[Array, Array, Array]) -> tuple:
        (now, over), (noise, keys, step) = carry, inputs
        at = Clock(clock.environment[0], step)
        pick = partial(distribution.sample, noise=noise)
        after, choice = act_and_step(
            agent, stream, now, pick, keys, lambda outputs: behaviour(outputs, at)
        )
        seen, then, chosen = now.timestep, after.timestep, choice.named()
        kept = (chosen["action"], chosen["log_prob"], chosen["value"])
        acted = (seen.observation, seen.start, seen.last | over, *kept)
        reward = jnp.where(over, 0.0, then.reward)
        result = (reward, then.discount, then.ended & ~over, then.metrics)
        if whole_episodes:
            after = jax.tree.map(partial(_where, over), now, after)
            over = over | then.start
        return (after, over), (acted, result)

    carry = (actor, jnp.zeros(actor.timestep.reward.shape[0], bool))
    (actor, _), rows = jax.lax.scan(one, carry, (noise, env_keys, clock.step))
    return actor, rows


def _at_once(
    agent: Agent,
    env: OpenLoop,
    actor: ActorState,
    keys: Array,
    noise: Array,
    behaviour: Behaviour,
    clock: Clock,
) -> tuple[ActorState, Trajectory, dict[str, Array]]:
    precomputed = precompute(env, actor.env, actor.timestep, keys)
    axes = (0, 1, 1)
    unroll = shard_batch(
        lambda agent, *seen: jax.vmap(agent.unroll, axes, axes[:2])(*seen), (None, *axes), axes[:2]
    )
    read = (precomputed.observation[:-1], precomputed.start[:-1])
    memory, outputs = unroll(agent, actor.memory, *read)
    logits, value = behaviour(outputs, clock), outputs.value
    after, trajectory, sums = apply_actions(
        env, actor, precomputed, logits, value, noise, agent.distribution
    )
    return after._replace(memory=memory), trajectory, sums


def draw(
    key: PRNGKeyArray, length: int, num_envs: int, distribution: Distribution
) -> tuple[Key[Array, "time batch"], Array]:
    """All random numbers of a rollout: the environments' keys, and the noise of the actions."""
    env_key, action_key = jax.random.split(key)
    noise = distribution.noise_over(action_key, length, num_envs)
    return jax.random.split(env_key, (length, num_envs)), noise


def _where(choice: Bool[Array, " batch"], a: Array, b: Array) -> Array:
    """One or the other for each environment, the first axis of a leaf."""
    wide = choice.reshape(choice.shape + (1,) * (a.ndim - 1))
    return jnp.where(jnp.broadcast_to(wide, a.shape), a, b)


def _append(xs: PyTree[Array], x: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), xs, x)
