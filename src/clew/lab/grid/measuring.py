"""What a resumable study's agents do after training, at home and elsewhere."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.host_evaluate import evaluate_seeds
from clew.interact.host_state import environment_seed
from clew.interact.tasks import HostSide, Stream
from clew.interact.tasks import make_stream as stream_of
from clew.lab.grid.study import Evaluation
from clew.lab.grid.work import Job
from clew.run.build import make_stream
from clew.run.config import TrainConfig
from clew.run.evaluate import play_batch, play_episodes
from clew.run.load import load_agent, load_run

Played = dict[str, np.ndarray]
"""Name of a metric to its value in every episode."""
Player = Callable[[int, Any], Played]
"""Plays on a stream; the number tells its episodes from those on other streams."""


def measure(
    path: Path, config: TrainConfig, job: Job
) -> tuple[Played | None, dict[str, Played] | None]:
    """Episodes of the trained agent at home, and elsewhere unless it fails at home already.

    Args:
        path: of the run.
        config: of the run.
        job: of `clew.lab.grid.cells.make_cell_job`.

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
    played = make(path, config, evaluation, job["seed"])
    own = played(0, home)
    if job["further_needs"] and own[job["further_needs"]].mean() < 0.5:
        return own, None
    return own, {
        name: played(number, _elsewhere(config, job, name, options, home))
        for number, (name, options) in enumerate(job["further"].items(), 1)
    }


def _elsewhere(
    config: TrainConfig, job: Job, name: str, options: Mapping[str, Any], home: Stream
) -> Stream:
    stream = stream_of(config.env, dict(options), config.wrappers)
    if isinstance(home, AutoReset) and isinstance(stream, AutoReset):
        shown, known = stream.observation_size, home.observation_size
    else:
        shown, known = stream.observation_space, home.observation_space
    if shown != known:
        numbers = " numbers" if isinstance(home, AutoReset) else ""
        raise UserError(
            f"{name} shows {shown}{numbers}, and {job['setting']} {known}: no agent can read both"
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
