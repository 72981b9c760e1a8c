"""Fresh episodes of environments of others, played by a run's agents."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from clew.agents.network import Agent
from clew.envs.host import HostStream
from clew.errors import UserError
from clew.run import checkpoint, folder
from clew.run.build import make_stream
from clew.run.config import TrainConfig
from clew.run.host_state import packed, unpacked
from clew.run.rollout import empty_memories
from clew.run.tasks import HostSide

SIDE_BY_SIDE = 16
"""Environments that are played at once."""


def evaluate_seeds(
    path: Path,
    config: TrainConfig,
    params: PyTree[Array],
    static: Agent,
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int,
) -> list[dict[str, np.ndarray]]:
    """Every metric of so many episodes of each seed's agent.

    Every environment plays the same number of episodes to their ends, so that short ones do not
    count more than long ones. What the wrappers learned in training is used and learns no more.

    Args:
        path: the run's folder.
        config: its settings.
        params: the agents' arrays, seeds first.
        static: the agent without them.
        episodes: for every seed.
        greedy: take the likeliest action, instead of drawing from the policy.
        seed: of the episodes and draws.
        max_steps: gives up after so many steps of one episode.

    Raises:
        UserError: if an episode does not end, or no checkpoint is usable.
    """
    side = make_stream(config)
    assert isinstance(side, HostSide)
    statistics = load_statistics(path, config, side)
    choose = jax.jit(partial(_choose, static, greedy), donate_argnums=1)
    found = []
    for index in range(config.seeds):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], params)
        count = min(episodes, SIDE_BY_SIDE)
        entropy = int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
        with side.open(count, seed=entropy, frozen=True) as stream:
            stream.restore(statistics[index])
            memory = empty_memories(eqx.combine(own, static), count)
            key = jax.random.fold_in(jax.random.key(seed), index)
            found.append(_play(stream, partial(choose, own), memory, key, episodes, max_steps))
    return found


def load_statistics(path: Path, config: TrainConfig, side: HostSide) -> list[Any]:
    """What the wrappers had learned at the newest good checkpoint, of every seed.

    Raises:
        UserError: if there is no usable checkpoint.
    """
    blank = packed(side.statistics())
    several = config.seeds > 1
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(((config.seeds,) if several else ()) + x.shape, x.dtype),
        blank,
    )
    newest = checkpoint.load_newest(
        path / folder.CHECKPOINTS,
        lambda read: checkpoint.restore(read, shapes, prefix="/seed/actor/statistics"),
    )
    if newest is None:
        raise UserError(f"{path} has no checkpoint yet")
    whole = unpacked(newest[1])
    if not several:
        return [whole]
    return [jax.tree.map(lambda x, i=i: x[i], whole) for i in range(config.seeds)]


def _play(
    stream: HostStream,
    choose: Any,
    memory: PyTree[Array],
    key: PRNGKeyArray,
    episodes: int,
    max_steps: int,
) -> dict[str, np.ndarray]:
    """The metrics of the first episodes, as many of every environment."""
    each = math.ceil(episodes / stream.num_envs)
    played = np.zeros(stream.num_envs, int)
    kept: list[dict[int, dict[str, float]]] = [{} for _ in range(each)]
    step, time = stream.reset(), 0
    while (played < each).any():
        if time >= max_steps * each:
            raise UserError(f"an episode of {stream.name} did not end within {max_steps} steps")
        memory, action = choose(memory, step.observation, step.start, key, np.int32(time))
        step, time = stream.step(np.asarray(action)), time + 1
        for index in np.flatnonzero(step.ended & (played < each)):
            kept[played[index]][index] = {n: float(x[index]) for n, x in step.metrics.items()}
            played[index] += 1
    rows = [row[i] for row in kept for i in sorted(row)][:episodes]
    return {name: np.array([row[name] for row in rows]) for name in stream.metric_names}


def _choose(
    static: Agent,
    greedy: bool,
    params: PyTree[Array],
    memory: PyTree[Array],
    observation: Any,
    start: Array,
    key: PRNGKeyArray,
    time: Array,
) -> tuple[PyTree[Array], Array]:
    agent = eqx.combine(params, static)
    memory, logits, _ = jax.vmap(agent.step)(memory, observation, start)
    now = jax.random.fold_in(key, time)
    action = agent.distribution.choose(logits, now, greedy=greedy)
    return memory, jnp.asarray(agent.distribution.decode(action))
