"""Whole episodes, played for their metrics; those of a JAX task in one compiled program."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.bridges.gymnasium.stream import GymnasiumStream
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.acting import ActorState, act_and_step, step
from clew.interact.host_rollout import environment_seed
from clew.interact.rollout import empty_memories, init_actor

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask

BATCH = 64
"""Episodes of a compiled task that are evaluated side by side."""
HOST_BATCH = 16
"""Gymnasium environments that are played side by side."""


def play_episodes(
    play: Callable[[PRNGKeyArray], Any], key: PRNGKeyArray, episodes: int, env: str, max_steps: int
) -> dict[str, np.ndarray]:
    """Every metric of `episodes` episodes of a JAX task, `BATCH` of them at a time.

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
        max_steps: gives up after this many steps.
        key: of the sampled actions and of the environments.

    Returns:
        The stream's metrics of every episode, and whether it ended.
    """
    count = actor.timestep.reward.shape[0]

    def more(carry: tuple) -> Array:
        return ~jnp.all(carry[1]) & (carry[4] < max_steps)

    def one(carry: tuple) -> tuple:
        actor, ended, metrics, key, steps, held = carry
        key, action_key, env_key = jax.random.split(key, 3)
        drawn = agent.distribution.noise_time(steps) == steps
        action_key = jax.lax.select(drawn, action_key, held)
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        keys = jax.random.split(env_key, count)
        actor, _ = act_and_step(agent, stream, actor, pick, keys)
        then = actor.timestep
        first = then.ended & ~ended
        metrics = {n: jnp.where(first, then.metrics[n], metrics[n]) for n in metrics}
        return actor, ended | first, metrics, key, steps + 1, action_key

    zeros = {name: jnp.zeros(count, jnp.float32) for name in stream.metric_names}
    carry = (actor, jnp.zeros(count, jnp.bool_), zeros, key, jnp.zeros((), jnp.int32), key)
    _, ended, metrics, *_ = jax.lax.while_loop(more, one, carry)
    return metrics, ended


def play_host_episodes(
    task: "HostedTask",
    agent: Agent,
    choose: Callable,
    statistics: Any,
    episodes: int,
    max_steps: int,
    entropy: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """Every metric of every episode of one agent in a Gymnasium environment.

    Every environment plays the same number of episodes to their ends, so that short ones do not
    count more than long ones. What the wrappers learned in training is used and learns no more.

    Args:
        task: the environment.
        agent: the network.
        choose: of `compile_act`, with the agent's arrays.
        statistics: of the wrappers.
        episodes: how many.
        max_steps: gives up after this many steps of one episode.
        entropy: see `Evaluator`.

    Raises:
        UserError: if an episode does not end.
    """
    # More than two numbers are hashed to one, so that published results stay what they are.
    seed, index = entropy if len(entropy) == 2 else (environment_seed(*entropy), 0)
    count = min(episodes, HOST_BATCH)
    with task.open(count, seed=environment_seed(seed, index), frozen=True) as stream:
        stream.restore(statistics)
        memory = empty_memories(agent, count)
        key = jax.random.fold_in(jax.random.key(seed), index)
        return _play_host(stream, choose, agent.distribution, memory, key, episodes, max_steps)


def _play_host(
    stream: GymnasiumStream,
    choose: Callable,
    distribution: Distribution,
    memory: PyTree[Array],
    key: PRNGKeyArray,
    episodes: int,
    max_steps: int,
) -> dict[str, np.ndarray]:
    """The metrics of the first episodes, as many of every environment."""
    each = math.ceil(episodes / stream.num_envs)
    played = np.zeros(stream.num_envs, int)
    kept: list[dict[int, dict[str, float]]] = [{} for _ in range(each)]
    now, time = stream.reset(), 0
    while (played < each).any():
        if time >= max_steps * each:
            raise UserError(f"an episode of {stream.name} did not end within {max_steps} steps")
        memory, action = choose(memory, now.observation, now.start, key, np.int32(time))
        (now,), time = step([stream], distribution, [np.asarray(action)]), time + 1
        for index in np.flatnonzero(now.ended & (played < each)):
            kept[played[index]][index] = {n: float(x[index]) for n, x in now.metrics.items()}
            played[index] += 1
    rows = [row[i] for row in kept for i in sorted(row)][:episodes]
    return {name: np.array([row[name] for row in rows]) for name in stream.metric_names}
