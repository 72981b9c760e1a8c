"""What the agents of a study do after training: lanes of a pack, and the run of a cell."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.host_evaluate import evaluate_seeds
from clew.interact.host_state import environment_seed
from clew.interact.rollout import begin
from clew.interact.tasks import HostSide, Stream
from clew.interact.tasks import make_stream as stream_of
from clew.lab.grid.study import Evaluation
from clew.run.build import make_stream
from clew.run.compiled import Parts, RunState
from clew.run.config import TrainConfig
from clew.run.evaluate import play, play_batch, play_episodes
from clew.run.lanes import SIZES, Lane, open_lane
from clew.run.load import load_agent, load_run

Played = dict[str, np.ndarray]
"""Name of a metric to its value in every episode."""
BATCH = 128
"""Most episodes that a lane plays side by side."""
Player = Callable[[int, Any], Played]
"""Plays on a stream; the number tells its episodes from those on other streams."""


@runtime_checkable
class FixedStream(Protocol):
    """A task whose episodes have numbers."""

    def reset_at(self, episode: Array) -> tuple[Any, Array]:
        """Opens an episode by its number."""
        ...


def evaluate_lanes(
    parts: Parts, state: RunState, lanes: Sequence[Lane], evaluation: Evaluation
) -> list[Played]:
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
        key = jax.random.fold_in(jax.random.key(evaluation.seed), lane.config.seed)
        keys = jax.random.split(key, batches)
        played = [
            jax.device_get(one(params, jnp.int32(lane.size), jnp.int32(n * count), keys[n]))
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
    size: Array,
    first: Array,
    key: PRNGKeyArray,
) -> tuple[dict[str, Array], Array]:
    agent = eqx.combine(params, parts.static)
    reset_key, key = jax.random.split(key)
    if evaluation.stream:
        opened = jax.vmap(_reset_at(parts, size))(first + jnp.arange(count, dtype=jnp.int32))
        actor = begin(agent, *jax.vmap(parts.jax_stream.opened)(*opened))
    else:
        actor = open_lane(parts, agent, jax.random.split(reset_key, count), size)
    return play(agent, parts.jax_stream, actor, evaluation.greedy, evaluation.max_steps, key)


def _reset_at(parts: Parts, size: Array) -> Any:
    env: Any = parts.jax_stream.env
    if parts.config.env == SIZES:
        return partial(env.reset_at_in, size)
    if not isinstance(env, FixedStream):
        raise UserError(f"{parts.config.env} has no fixed stream; set evaluation.stream off")
    return env.reset_at


def measure_run(
    path: Path, config: TrainConfig, job: Mapping[str, Any]
) -> tuple[Played | None, dict[str, Played] | None]:
    """Episodes of the trained agent at home, and elsewhere unless it fails at home already.

    Args:
        path: of the run.
        config: of the run.
        job: of `clew.lab.grid.jobs.make_job`.

    Returns:
        What was played at home, None if nothing was to be; and elsewhere, by name.

    Raises:
        UserError: if an episode does not end, or elsewhere looks otherwise than home.
    """
    evaluation = Evaluation(**job["evaluation"])
    if not evaluation.episodes:
        return None, {}
    home = make_stream(config)
    make = _host_player if isinstance(home, HostSide) else _jax_player
    played = make(path, config, evaluation, job["seeds"][0])
    own = played(0, home)
    if job["further_needs"] and own[job["further_needs"]].mean() < 0.5:
        return own, None
    return own, {
        name: played(number, _elsewhere(config, job, name, options, home))
        for number, (name, options) in enumerate(job["further"].items(), 1)
    }


def _elsewhere(
    config: TrainConfig, job: Mapping[str, Any], name: str, options: Mapping[str, Any], home: Stream
) -> Stream:
    stream = stream_of(config.env, dict(options), config.wrappers)
    if isinstance(home, AutoReset) and isinstance(stream, AutoReset):
        shown, known = stream.observation_size, home.observation_size
    else:
        shown, known = stream.observation_space, home.observation_space
    if shown != known:
        numbers = " numbers" if isinstance(home, AutoReset) else ""
        raise UserError(
            f"{name} shows {shown}{numbers}, and {job['settings'][0]} {known}: no agent can read "
            "both"
        )
    return stream


def _jax_player(path: Path, config: TrainConfig, evaluation: Evaluation, seed: int) -> Player:
    agent, static = eqx.partition(load_agent(path).agent, eqx.is_array)
    key = jax.random.fold_in(jax.random.key(evaluation.seed), seed)

    def played(number: int, stream: AutoReset) -> Played:
        play = jax.jit(partial(play_batch, static, stream, evaluation.greedy, evaluation.max_steps))
        mine = jax.random.fold_in(key, number)
        limits = (evaluation.episodes, config.env, evaluation.max_steps)
        return play_episodes(partial(play, agent), mine, *limits)

    return played


def _host_player(path: Path, config: TrainConfig, evaluation: Evaluation, seed: int) -> Player:
    run = load_run(path)

    def played(number: int, side: HostSide) -> Played:
        mine = environment_seed(evaluation.seed, seed, number)
        episodes, greedy = evaluation.episodes, evaluation.greedy
        return evaluate_seeds(run, side, episodes, greedy, mine, evaluation.max_steps)[0]

    return played
