"""The agents of a pack, side by side: how they begin, and what they do in the end."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from clew.agents.network import Agent
from clew.errors import UserError
from clew.interact.rollout import ActorState, begin
from clew.lab.grid.study import Evaluation
from clew.run.build import agent_parts, build_agent, jax_stream
from clew.run.compiled import Parts, RunState, SeedState, begin_seed, init_run
from clew.run.config import TrainConfig
from clew.run.evaluate import play

MIXED = "mixed settings"
"""Name of the task that plays several settings, while it does."""
BATCH = 128
"""Episodes evaluated side by side, at most."""


class Lane(NamedTuple):
    """One cell among those of a program."""

    setting: str
    variant: int
    """Which of the program's settings."""
    seed: int
    config: TrainConfig
    """Of the cell alone."""


def mixed_config(configs: Sequence[TrainConfig], lanes: int) -> TrainConfig:
    """The settings of the program that trains on the tasks of all `configs` at once.

    Every lane makes one update an episode, so they all make as many; shorter episodes wait.
    """
    # It also has the widest window, if they differ in that.
    first = max(configs, key=lambda config: config.a2c.rollout_length)
    longest = first.a2c.rollout_length
    variants = [config.env_options for config in configs]
    a2c = replace(first.a2c, rollout_length=longest)
    assert len({config.updates for config in configs}) == 1
    return replace(
        first,
        env=MIXED,
        env_options={"task": first.env, "variants": variants},
        a2c=a2c,
        steps=first.updates * first.a2c.num_envs * longest,
        seed=0,
        seeds=lanes,
    )


def init_lanes(parts: Parts, lanes: Sequence[Lane]) -> RunState:
    """The state before the first update: every lane begins as its cell alone would.

    An agent that reads fewer numbers than the program shows gets rows of zeros for the rest, which
    are multiplied with zeros, and so never learn.
    """
    if parts.config.env != MIXED:
        return init_run(parts, [lane.seed for lane in lanes])
    template, _ = agent_parts(parts.config, parts.jax_stream)
    keys = [jax.random.split(jax.random.key(lane.seed), 3) for lane in lanes]
    agents = [_agent_of(lane, key[0], template) for lane, key in zip(lanes, keys, strict=True)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *agents)
    variants = np.array([lane.variant for lane in lanes], np.int32)
    one = jax.vmap(partial(_begin_lane, parts))
    return RunState(jnp.zeros((), jnp.int32), jax.jit(one)(stacked, jnp.stack(keys), variants))


def _agent_of(lane: Lane, key: PRNGKeyArray, template: Any) -> Any:
    """Arrays of the lane's agent in the program's shapes."""
    agent = build_agent(lane.config, jax_stream(lane.config), key)
    leaves = jax.device_get(jax.tree.leaves(eqx.filter(agent, eqx.is_array)))
    shapes, tree = jax.tree.flatten(template)
    padded = [np.zeros(shape.shape, shape.dtype) for shape in shapes]
    for whole, leaf in zip(padded, leaves, strict=True):
        whole[tuple(slice(n) for n in leaf.shape)] = leaf
    return jax.tree.unflatten(tree, padded)


def _begin_lane(parts: Parts, arrays: Any, keys: PRNGKeyArray, variant: Array) -> SeedState:
    _, env_key, key = keys
    agent = eqx.combine(arrays, parts.static)
    actor = _open(parts, agent, jax.random.split(env_key, parts.config.a2c.num_envs), variant)
    return begin_seed(parts, agent, actor, key)


def _open(parts: Parts, agent: Agent, keys: Array, variant: Array) -> ActorState:
    env: Any = parts.jax_stream.env
    reset = partial(env.reset_in, variant) if parts.config.env == MIXED else env.reset
    return begin(agent, *jax.vmap(parts.jax_stream.opened)(*jax.vmap(reset)(keys)))


def evaluate_lanes(
    parts: Parts, state: RunState, lanes: Sequence[Lane], evaluation: Evaluation
) -> list[dict[str, np.ndarray]]:
    """The metrics of every evaluation episode, by name, for each lane.

    Raises:
        UserError: if an episode does not end, or the task has no fixed stream to play.
    """
    count = min(BATCH, evaluation.episodes)
    batches = math.ceil(evaluation.episodes / count)
    one = jax.jit(partial(_play_batch, parts, evaluation, count))
    agents, found = jax.device_get(state.seed.agent), []
    for index, lane in enumerate(lanes):
        params = agents
        if len(lanes) > 1:
            params = jax.tree.map(lambda leaf, i=index: leaf[i], agents)
        key = jax.random.fold_in(jax.random.key(evaluation.seed), lane.seed)
        keys = jax.random.split(key, batches)
        played = [
            jax.device_get(one(params, jnp.int32(lane.variant), jnp.int32(n * count), keys[n]))
            for n in range(batches)
        ]
        if not all(ended.all() for _, ended in played):
            raise UserError(f"an episode did not end within {evaluation.max_steps} steps")
        names = parts.jax_stream.metric_names
        whole = {n: np.concatenate([metrics[n] for metrics, _ in played]) for n in names}
        found.append({n: values[: evaluation.episodes] for n, values in whole.items()})
    return found


def _play_batch(
    parts: Parts,
    evaluation: Evaluation,
    count: int,
    params: Any,
    variant: Array,
    first: Array,
    key: PRNGKeyArray,
) -> tuple[dict[str, Array], Array]:
    agent = eqx.combine(params, parts.static)
    reset_key, key = jax.random.split(key)
    if evaluation.stream:
        opened = jax.vmap(_reset_at(parts, variant))(first + jnp.arange(count, dtype=jnp.int32))
        actor = begin(agent, *jax.vmap(parts.jax_stream.opened)(*opened))
    else:
        actor = _open(parts, agent, jax.random.split(reset_key, count), variant)
    return play(agent, parts.jax_stream, actor, evaluation.greedy, evaluation.max_steps, key)


def _reset_at(parts: Parts, variant: Array) -> Any:
    env: Any = parts.jax_stream.env
    if parts.config.env == MIXED:
        return partial(env.reset_at_in, variant)
    if not hasattr(env, "reset_at"):
        raise UserError(f"{parts.config.env} has no fixed stream; set evaluation.stream off")
    return env.reset_at
