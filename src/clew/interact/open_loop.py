"""Whole episodes of tasks in which no action changes what is observed, played in one pass."""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from clew.agents.distributions import Distribution
from clew.agents.trajectory import Trajectory
from clew.envs.base import EnvState, Metrics, OpenLoop
from clew.envs.stream import AutoResetState, TimeStep
from clew.interact.acting import ActorState


class Precomputed(NamedTuple):
    """What a rollout will show, whatever is done."""

    observation: Float[Array, "time_and_one batch n"]
    start: Bool[Array, "time_and_one batch"]
    over: Bool[Array, "time_and_one batch"]
    """The episode ended before; from there on the next one's first observation stands still."""
    states: EnvState
    """Before every step, each leaf [time, batch, ...]."""
    keys: Key[Array, "time batch"]
    """Of every step."""
    after: EnvState
    """After the rollout."""


def precompute(
    env: OpenLoop, state: AutoResetState, timestep: TimeStep, keys: Key[Array, "time batch"]
) -> Precomputed:
    """What every environment shows until its episode has ended, and then.

    Args:
        env: the task.
        state: of every environment.
        timestep: what each shows now.
        keys: of every step, as `AutoReset.step` takes them.
    """
    axes = Precomputed(1, 1, 1, 1, 1, 0)  # pyright: ignore[reportArgumentType]
    one = jax.vmap(partial(_precompute, env), in_axes=(0, 0, 0, 1), out_axes=axes)
    return one(state.env, timestep.observation, timestep.start, keys)


def _precompute(
    env: OpenLoop,
    state: EnvState,
    observation: Float[Array, " n"],
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
        observation=jnp.where(over[:, None], fresh, observed),
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
    """Samples the actions and computes what they earn.

    Args:
        env: the task.
        before: where acting stood before the rollout.
        precomputed: what the rollout shows.
        logits: what the policy says of it.
        values: what is expected.
        noise: of the actions, see `rollout`.
        distribution: of the actions.

    Returns:
        What `rollout` does, but for the memory, which is still that of `before`.
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


def episode_sums(ended: Bool[Array, "time batch"], metrics: Metrics) -> dict[str, Float[Array, ""]]:
    """How many episodes ended ("episodes"), and the sums of their metrics."""
    episodes = {"episodes": jnp.sum(ended.astype(jnp.float32))}
    return episodes | {n: jnp.sum(jnp.where(ended, x, 0.0)) for n, x in metrics.items()}


def _at(tree: Any, index: Int[Array, ""] | int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)
