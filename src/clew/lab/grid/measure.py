"""Evaluation of a study's agents after training: lanes of a pack, and the run of a cell."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from clew import interact
from clew.errors import UserError
from clew.interact.compiled_task import play_to_end
from clew.interact.episodes import EpisodeTooLong
from clew.interact.rollout import begin
from clew.interact.task import Task
from clew.lab.grid.study import Evaluation
from clew.run.build import Parts
from clew.run.config import TrainConfig
from clew.run.lanes import SIZES, Lane, open_lane
from clew.run.load import load_agent
from clew.run.updates import RunState

Played = dict[str, np.ndarray]
"""Name of a metric to its value in every episode."""
BATCH = 128
"""The maximum number of episodes that a lane plays in parallel."""


@runtime_checkable
class FixedStream(Protocol):
    """A task with numbered episodes."""

    def reset_at(self, episode: Array) -> tuple[Any, Array]:
        """Opens an episode by its number."""
        ...


def require_fixed_stream(task: Task) -> FixedStream:
    """The task's environment, whose episodes are numbered; nothing is computed.

    Raises:
        UserError: if they are not numbered, or this form of the task has no fixed stream.
    """
    env = task.require_stream().env
    if not isinstance(env, FixedStream):
        raise UserError(f"{task.name} has no fixed stream; turn evaluation.stream off")
    jax.eval_shape(env.reset_at, jax.ShapeDtypeStruct((), jnp.int32))
    return env


def evaluate_lanes(
    parts: Parts, state: RunState, lanes: Sequence[Lane], evaluation: Evaluation
) -> list[Played]:
    """The metrics of every evaluation episode, by name, for each lane.

    Raises:
        UserError: if an episode does not end or is not finite, or the task has no fixed stream to
            play.
    """
    count, names = min(BATCH, evaluation.episodes), parts.task.metric_names
    batches = math.ceil(evaluation.episodes / count)
    one = jax.jit(partial(_play_batch, parts, evaluation, count))
    agents, found = jax.device_get(state.seed.agent), []
    for index, lane in enumerate(lanes):
        params = agents
        if len(lanes) > 1:
            params = jax.tree.map(lambda leaf, i=index: leaf[i], agents)
        key = jax.random.fold_in(jax.random.key(evaluation.seed), lane.config.seed)
        keys = jax.random.split(key, batches)
        played = [
            jax.device_get(one(params, jnp.int32(lane.size), jnp.int32(n * count), keys[n]))
            for n in range(batches)
        ]
        which = f" of {lane.name}" if lane.name else ""
        if not all(ended.all() for _, ended in played):
            raise EpisodeTooLong(
                f"an episode{which} did not end within {evaluation.max_steps} steps "
                "(evaluation.max_steps)"
            )
        whole = {n: np.concatenate([metrics[n] for metrics, _ in played]) for n in names}
        found.append(_finite({n: v[: evaluation.episodes] for n, v in whole.items()}, which))
    return found


def _finite(played: Played, which: str) -> Played:
    """The results, if a row can hold them.

    Raises:
        UserError: for a metric that is not finite.
    """
    for name, values in played.items():
        if not np.isfinite(values).all():
            raise UserError(f"the {name} of an evaluated episode{which} is not finite")
    return played


def _play_batch(
    parts: Parts,
    evaluation: Evaluation,
    count: int,
    params: Any,
    size: Array,
    first: Array,
    key: PRNGKeyArray,
) -> tuple[dict[str, Array], Array]:
    agent, stream = eqx.combine(params, parts.static), parts.task.require_stream()
    reset_key, key = jax.random.split(key)
    if evaluation.stream:
        opened = jax.vmap(_reset_at(parts, size))(first + jnp.arange(count, dtype=jnp.int32))
        actor = begin(agent, *jax.vmap(stream.opened)(*opened))
    else:
        actor = open_lane(parts, agent, jax.random.split(reset_key, count), size)
    greedy, longest = evaluation.greedy, evaluation.max_steps
    return play_to_end(agent, stream, actor, greedy, longest, key)


def _reset_at(parts: Parts, size: Array) -> Any:
    if parts.config.env == SIZES:
        env: Any = parts.task.require_stream().env
        return partial(env.reset_at_in, size)
    return require_fixed_stream(parts.task).reset_at


def measure_run(
    path: Path, config: TrainConfig, job: Mapping[str, Any]
) -> tuple[Played | None, dict[str, Played] | None]:
    """Episodes of the trained agent in its setting, and in further ones unless it fails there.

    Returns:
        The results in its own setting, None if it was not to be measured; and in further ones, by
        name.

    Raises:
        UserError: if an episode does not end or is not finite, or a further setting has other
            observations.
    """
    evaluation = Evaluation(**job["evaluation"])
    if not evaluation.episodes:
        return None, {}
    loaded = load_agent(path, trust=True)  # its settings are those of the study
    params, static = eqx.partition(loaded.agent, eqx.is_array)

    def played(number: int, task: Task) -> Played:
        play = task.evaluator(static, greedy=evaluation.greedy, max_steps=evaluation.max_steps)
        entropy = (evaluation.seed, job["seeds"][0], number)
        return _finite(play(params, loaded.statistics, evaluation.episodes, entropy), "")

    own = played(0, loaded.task)
    if job["further_needs"] and own[job["further_needs"]].mean() < 0.5:
        return own, None
    further = {}
    for number, (name, options) in enumerate(job["further"].items(), 1):
        task = interact.make_task(config.env, dict(options), config.wrappers)
        loaded.task.check_same_observations(task, job["settings"][0], name)
        further[name] = played(number, task)
    return own, further
