"""Rollouts: T steps of B environments under one policy.

A rollout is one scan. If actions do not change the observations and the learner uses whole
episodes, one pass over them serves acting and learning (`open_loop_update`).
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from clew.agents.devices import shard_batch
from clew.agents.distributions import Distribution
from clew.agents.heads import Behaviour, Clock, follow_policy
from clew.agents.learners import Learner
from clew.agents.learners.base import Learned, LearnerState, learn_as_acted
from clew.agents.network import Agent
from clew.agents.trajectory import Reading, Rollout, Trajectory, empty_memories
from clew.envs.base import Environment, EnvState, Metrics, OpenLoop, choose
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.interact.acting import ActorState, act_and_step


class Experience(NamedTuple):
    """The experience gathered for an update."""

    actor: Any
    """The state of acting: an `ActorState`, or a `HostState` for Gymnasium environments. Its memory
    state comes from the parameters that acted."""
    rollout: Rollout
    episodes: dict[str, Float[Array, ""]]
    """Sums over the episodes that ended: "episodes" (their number) and the task's metrics."""


def init_actor(agent: Agent, stream: AutoReset, num_envs: int, key: PRNGKeyArray) -> ActorState:
    """Opens an episode in every environment, with an empty memory."""
    env, timestep = jax.vmap(stream.reset)(jax.random.split(key, num_envs))
    return begin(agent, env, timestep)


def begin(agent: Agent, env: AutoResetState, timestep: TimeStep) -> ActorState:
    """Opened environments, each with an empty memory."""
    num_envs = timestep.reward.shape[0]
    return ActorState(env, timestep, empty_memories(agent, num_envs))


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
    noise: Array | None = None,
) -> tuple[ActorState, Trajectory, dict[str, Float[Array, ""]]]:
    """Acts for `length` steps in every environment, drawing actions from a policy.

    The random numbers of the whole rollout are drawn before it (`draw`).

    With `whole_episodes` an environment waits until the end of the rollout once its next episode is
    open; its steps until then are marked `last`, so they are not valid. If the last step truncated
    an episode, the next one is opened after the rollout.

    Args:
        behaviour: the policy that acts.
        first_step: how often each environment was stepped before, in the whole run.
        noise: of the actions, in the form of `Distribution.noise_over`; drawn by the key if None.

    Returns:
        The new state of acting, the trajectory, and sums over the episodes that ended in it:
        "episodes" (their number) and the stream's metrics.
    """
    num_envs = actor.timestep.reward.shape[0]
    env_keys, drawn = draw(key, length, num_envs, agent.distribution)
    noise = drawn if noise is None else noise
    clock = whole_clock(first_step, length, num_envs)
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
    if whole_episodes:
        opening = jax.random.split(jax.random.fold_in(key, 2), num_envs)
        env, timestep = jax.vmap(stream.open_next)(actor.env, actor.timestep, opening)
        actor = actor._replace(env=env, timestep=timestep)
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
    """Acts for a rollout, in the sequences that the learner reads; see `rollout`."""
    wanted, steps = learner.gathering, learner.config.rollout_length
    length = wanted.sequence_length or steps
    one = partial(rollout, agent, stream, length=length, behaviour=wanted.behaviour)

    def act(
        actor: ActorState, inputs: tuple[PRNGKeyArray, Int[Array, ""], Array | None]
    ) -> tuple[ActorState, tuple[Trajectory, Metrics]]:
        key, first_step, noise = inputs
        actor, chunk, episodes = one(actor, key=key, first_step=first_step, noise=noise)
        return actor, (chunk, episodes)

    if wanted.sequence_length is None:
        actor, whole, episodes = one(
            actor, key=key, whole_episodes=wanted.whole_episodes, first_step=first_step
        )
        chunks = jax.tree.map(lambda x: x[None], whole)
    else:
        count = steps // length
        firsts = first_step + length * jnp.arange(count, dtype=jnp.int32)
        noise = None
        if agent.distribution.noise_steps > 1:  # held across sequences
            num_envs, other = actor.timestep.reward.shape[0], jax.random.fold_in(key, count)
            whole = agent.distribution.noise_over(other, steps, num_envs)
            noise = whole.reshape(count, length, *whole.shape[1:])
        inputs = jax.random.split(key, count), firsts, noise
        actor, (chunks, sums) = jax.lax.scan(act, actor, inputs)
        episodes = jax.tree.map(lambda x: jnp.sum(x, axis=0), sums)
    seen = actor.timestep
    return Experience(actor, Rollout(chunks, actor.memory, seen.observation, seen.start), episodes)


def whole_clock(first_step: Int[Array, ""] | int, length: int, num_envs: int) -> Clock:
    """The clock of every step of a rollout: environments [1, batch], steps [length, 1]."""
    steps = first_step + jnp.arange(length, dtype=jnp.int32)
    return Clock(jnp.arange(num_envs, dtype=jnp.int32)[None], steps[:, None])


def draw(
    key: PRNGKeyArray, length: int, num_envs: int, distribution: Distribution
) -> tuple[Key[Array, "time batch"], Array]:
    """All random numbers of a rollout: the environments' keys, and the noise of the actions."""
    env_key, action_key = jax.random.split(key)
    noise = distribution.noise_over(action_key, length, num_envs)
    return jax.random.split(env_key, (length, num_envs)), noise


def episode_sums(ended: Bool[Array, "time batch"], metrics: Metrics) -> dict[str, Float[Array, ""]]:
    """How many episodes ended ("episodes"), and the sums of their metrics."""
    episodes = {"episodes": jnp.sum(ended.astype(jnp.float32))}
    return episodes | {n: jnp.sum(jnp.where(ended, x, 0.0)) for n, x in metrics.items()}


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
    """The state of acting after the rollout, and every step's actions with their results."""
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
            after = jax.vmap(choose)(over, now, after)
            over = over | then.start
        return (after, over), (acted, result)

    carry = (actor, jnp.zeros(actor.timestep.reward.shape[0], bool))
    (actor, _), rows = jax.lax.scan(one, carry, (noise, env_keys, clock.step))
    return actor, rows


class Precomputed(NamedTuple):
    """The observations of a rollout, which do not depend on the actions."""

    observation: Shaped[Array, "time_and_one batch ..."]
    start: Bool[Array, "time_and_one batch"]
    over: Bool[Array, "time_and_one batch"]
    """Whether the episode ended before; from there on the first observation of the next one is
    repeated."""
    states: EnvState
    """The states before every step, each leaf [time, batch, ...]."""
    keys: Key[Array, "time batch"]
    """The keys of every step."""
    after: EnvState
    """The state after the rollout."""


def precompute(
    env: OpenLoop, state: AutoResetState, timestep: TimeStep, keys: Key[Array, "time batch"]
) -> Precomputed:
    """The observations of every environment, during its episode and afterwards.

    `keys` are those of every step, in the form of `AutoReset.step`.
    """
    axes = Precomputed(1, 1, 1, 1, 1, 0)  # pyright: ignore[reportArgumentType]
    one = jax.vmap(partial(_precompute, env), in_axes=(0, 0, 0, 1), out_axes=axes)
    return one(state.env, timestep.observation, timestep.start, keys)


def _precompute(
    env: OpenLoop,
    state: EnvState,
    observation: Shaped[Array, "..."],
    start: Bool[Array, ""],
    keys: Key[Array, " time"],
) -> Precomputed:
    length = len(keys)
    states = env.ahead(state, length)
    step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    after, shown = jax.vmap(env.step)(states, jnp.zeros(length, jnp.int32), step_keys)
    passed = jnp.cumsum(shown.terminated.astype(jnp.int32))
    over = jnp.append(jnp.zeros(1, bool), passed > 0)
    final = jnp.argmax(shown.terminated)
    fresh_state, fresh = env.next_episode(_at(after, final), reset_keys[final])
    observed = jnp.concatenate([observation[None], shown.observation])
    return Precomputed(
        observation=jax.vmap(choose, in_axes=(0, None, 0))(over, fresh, observed),
        start=jnp.append(start, jnp.zeros(length, bool)) | over,
        over=over,
        states=states,
        keys=step_keys,
        after=jax.tree.map(partial(jnp.where, over[-1]), fresh_state, _at(after, length - 1)),
    )


def apply_actions(
    env: OpenLoop,
    before: ActorState,
    precomputed: Precomputed,
    logits: Float[Array, "time batch actions"],
    values: Float[Array, "time batch"],
    noise: Array,
    distribution: Distribution,
) -> tuple[ActorState, Trajectory, dict[str, Float[Array, ""]]]:
    """Samples the actions and computes their rewards; `noise` is that of `rollout`.

    Returns:
        The results of `rollout`, except that the memory's state is still that of `before`.
    """
    action = distribution.sample(logits, noise)
    log_prob = distribution.log_prob(logits, action)
    taken = cast(Array, distribution.decode(action))
    earned = jax.vmap(jax.vmap(env.step))(precomputed.states, taken, precomputed.keys)[1]
    over, finished = precomputed.over[:-1], precomputed.over[-1]
    ended = earned.terminated & ~over
    reward = jnp.where(over, 0.0, earned.reward)
    total = before.env.episode_return[None] + jnp.cumsum(reward, axis=0)
    steps = jnp.arange(1, len(action) + 1, dtype=jnp.int32)
    count = before.env.episode_length[None] + steps[:, None]
    metrics = earned.metrics | {"return": total, "length": count.astype(jnp.float32)}
    trajectory = Trajectory(
        observation=precomputed.observation,
        start=precomputed.start,
        last=precomputed.over.at[-1].set(False),
        action=action,
        reward=reward,
        discount=1.0 - ended.astype(jnp.float32),
        log_prob=log_prob,
        value=values,
        state0=before.memory,
    )
    state = AutoResetState(
        env=precomputed.after,
        last=before.env.last,
        episode_return=jnp.where(finished, 0.0, total[-1]),
        episode_length=jnp.where(finished, 0, count[-1]),
    )
    timestep = TimeStep(
        observation=precomputed.observation[-1],
        reward=reward[-1],
        discount=trajectory.discount[-1],
        start=precomputed.start[-1],
        last=trajectory.last[-1],
        ended=ended[-1],
        metrics={name: jnp.where(ended[-1], value[-1], 0.0) for name, value in metrics.items()},
    )
    after = ActorState(state, timestep, before.memory)
    return after, trajectory, episode_sums(ended, metrics)


def updates_open_loop(learner: Learner, env: Environment) -> bool:
    """Whether each rollout is one whole episode whose observations do not depend on actions.

    Then one pass serves acting and learning, and no memory state passes from one update to the
    next. Tasks with action masks are stepped instead.
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
    env: Environment,
    learner: Learner,
) -> tuple[ActorState, Learned, Metrics]:
    """One rollout and the learning from it, if `updates_open_loop`.

    The result equals `rollout` followed by `learn`, up to rounding.

    Returns:
        The state of acting with an unchanged memory state, the result of learning, and sums over
        the episodes.
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


def _at(tree: Any, index: Int[Array, ""] | int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _append(xs: PyTree[Array], x: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), xs, x)
