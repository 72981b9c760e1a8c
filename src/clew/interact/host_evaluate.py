"""Fresh episodes of Gymnasium environments, played by a run's agents."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.bridges.gymnasium.stream import HostStream
from clew.errors import UserError
from clew.interact.acting import step
from clew.interact.host_rollout import environment_seed
from clew.interact.rollout import empty_memories

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask

SIDE_BY_SIDE = 16
"""Environments that are played at once."""


def evaluate_agent(
    task: "HostedTask",
    agent: Agent,
    choose: Callable,
    statistics: Any,
    episodes: int,
    max_steps: int,
    entropy: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """Every metric of every episode of one agent.

    Every environment plays the same number of episodes to their ends, so that short ones do not
    count more than long ones. What the wrappers learned in training is used and learns no more.

    Args:
        task: the environment.
        agent: the network.
        choose: of `compile_act`, with the agent's arrays.
        statistics: of the wrappers.
        episodes: how many.
        max_steps: gives up after so many steps of one episode.
        entropy: see `Evaluator`.

    Raises:
        UserError: if an episode does not end.
    """
    # Of more numbers than two one is made, so that results of studies stay what they are.
    seed, index = entropy if len(entropy) == 2 else (environment_seed(*entropy), 0)
    count = min(episodes, SIDE_BY_SIDE)
    with task.open(count, seed=environment_seed(seed, index), frozen=True) as stream:
        stream.restore(statistics)
        memory = empty_memories(agent, count)
        key = jax.random.fold_in(jax.random.key(seed), index)
        return _play(stream, choose, agent.distribution, memory, key, episodes, max_steps)


def _play(
    stream: HostStream,
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
