"""Whole episodes of a task written in JAX, played in one compiled program."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.agents.network import Agent
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.acting import ActorState, act_and_step
from clew.interact.rollout import init_actor

BATCH = 64
"""Episodes evaluated side by side."""


def play_episodes(
    play: Callable[[PRNGKeyArray], Any], key: PRNGKeyArray, episodes: int, env: str, max_steps: int
) -> dict[str, np.ndarray]:
    """Every metric of so many episodes, `BATCH` of them at a time.

    Args:
        play: a compiled `play_batch` of one agent.
        key: of the episodes and samples.
        episodes: how many.
        env: the task's name, for the error.
        max_steps: of an episode, as `play` has it.

    Raises:
        UserError: if an episode does not end.
    """
    keys = jax.random.split(key, math.ceil(episodes / BATCH))
    parts = [jax.device_get(play(one)) for one in keys]
    if not all(ended.all() for _, ended in parts):
        raise UserError(f"an episode of {env} did not end within {max_steps} steps")
    return {n: np.concatenate([m[n] for m, _ in parts])[:episodes] for n in parts[0][0]}


def play_batch(
    static: Agent, stream: AutoReset, greedy: bool, max_steps: int, params: Any, key: PRNGKeyArray
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """The metrics of the first episode of `BATCH` environments, and which of them ended."""
    agent = eqx.combine(params, static)
    reset_key, key = jax.random.split(key)
    return play(agent, stream, init_actor(agent, stream, BATCH, reset_key), greedy, max_steps, key)


def play(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    greedy: bool,
    max_steps: int,
    key: PRNGKeyArray,
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """Plays every environment's episode to its end.

    Args:
        agent: the network.
        stream: the task.
        actor: each environment at the beginning of an episode, with an empty memory.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: gives up after so many steps.
        key: of the draws, and of the environments' own chance.

    Returns:
        The stream's metrics of every episode, and whether it ended.
    """
    count = actor.timestep.reward.shape[0]

    def more(carry: tuple) -> Array:
        return ~jnp.all(carry[1]) & (carry[4] < max_steps)

    def one(carry: tuple) -> tuple:
        actor, ended, metrics, key, steps = carry
        key, action_key, env_key = jax.random.split(key, 3)
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        keys = jax.random.split(env_key, count)
        actor, _ = act_and_step(agent, stream, actor, pick, keys)
        then = actor.timestep
        first = then.ended & ~ended
        metrics = {n: jnp.where(first, then.metrics[n], metrics[n]) for n in metrics}
        return actor, ended | first, metrics, key, steps + 1

    zeros = {name: jnp.zeros(count, jnp.float32) for name in stream.metric_names}
    carry = (actor, jnp.zeros(count, jnp.bool_), zeros, key, jnp.zeros((), jnp.int32))
    _, ended, metrics, _, _ = jax.lax.while_loop(more, one, carry)
    return metrics, ended
