"""Whole episodes of Gymnasium environments, for everything that is asked afterwards."""

from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from clew.agents.network import Agent
from clew.bridges.gymnasium.stream import HostStream
from clew.errors import UserError, require_episodes
from clew.interact.acting import compile_act, only_action, step
from clew.interact.episodes import Episodes, none_ended
from clew.interact.flat import in_one_axis
from clew.interact.host_evaluate import SIDE_BY_SIDE
from clew.interact.host_rollout import environment_seed
from clew.interact.rollout import empty_memories

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask

LARGEST = 4 * 2**30
"""Bytes of observations that are held at most."""


def record_host_episodes(
    agent: Agent,
    task: "HostedTask",
    *,
    statistics: Any = None,
    episodes: int = 200,
    greedy: bool = True,
    max_steps: int = 1000,
    seed: int = 0,
) -> Episodes:
    """Plays fresh episodes of a Gymnasium environment, as `record_episodes` does of other tasks.

    Every environment plays the same number of episodes, so that short ones do not count more than
    long ones. Nothing is known of what was to be remembered, so there are no labels.

    Args:
        agent: the network.
        task: the environment, with the wrappers of the training.
        statistics: what the wrappers have learned, which they keep; None for nothing.
        episodes: how many, at least 1.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: an episode that takes longer is left out, and counted.
        seed: of the episodes and samples.

    Raises:
        UserError: for impossible numbers, if no episode ends in time, or if all that is seen takes
            more memory than `LARGEST`.
        EnvironmentFault: the environment failed.
    """
    require_episodes(episodes, max_steps, seed)
    arrays, static = eqx.partition(agent, eqx.is_array)
    choose = partial(compile_act(static, greedy=greedy, keep=only_action), arrays)
    count = min(SIDE_BY_SIDE, episodes)
    with task.open(count, seed=environment_seed(seed, 0), frozen=True) as stream:
        if statistics is not None:
            stream.restore(statistics)
        player = _Player(agent, stream, choose, jax.random.key(seed), max_steps)
        found = player.play(-(-episodes // count))
    kept = found[:episodes]
    whole = [episode for episode in kept if episode is not None]
    if not whole:
        raise none_ended(episodes, max_steps)
    return _joined(whole, len(kept) - len(whole))


class _Player:
    """Plays, and holds what was seen since every environment's episode began."""

    def __init__(self, agent: Agent, stream: HostStream, choose: Any, key: Any, max_steps: int):
        self._distribution, self._stream, self._choose = agent.distribution, stream, choose
        self._key, self._max_steps = key, max_steps
        self._memory = empty_memories(agent, stream.num_envs)
        self._rows: list[list[tuple]] = [[] for _ in range(stream.num_envs)]
        self._bytes = 0

    def play(self, each: int) -> list[tuple[list[tuple], dict[str, float]] | None]:
        """So many episodes of each environment: rows and metrics, or None for one that was long.

        Those that began first come first.
        """
        stream = self._stream
        found: list[list] = [[] for _ in range(stream.num_envs)]
        now, time = stream.reset(), 0
        while any(len(own) < each for own in found):
            seen = np.asarray(in_one_axis(now.observation, 1))
            moment = (now.observation, now.start, self._key, np.int32(time))
            self._memory, action = self._choose(self._memory, *moment)
            action = np.asarray(action)
            final = now.last
            (now,), time = step([stream], self._distribution, [action]), time + 1
            for index in np.flatnonzero(~final).tolist():
                if len(found[index]) < each:
                    self._keep(index, seen[index], action[index])
            for index in np.flatnonzero(now.ended).tolist():
                if len(found[index]) < each:
                    found[index].append(self._closed(index, now.metrics))
        return [own[number] for number in range(each) for own in found]

    def _keep(self, index: int, seen: np.ndarray, action: np.ndarray) -> None:
        rows = self._rows[index]
        rows.append((seen, action) if len(rows) < self._max_steps else ())
        self._bytes += seen.nbytes if rows[-1] else 0
        if self._bytes > LARGEST:
            raise UserError(
                f"what was seen of {self._stream.name} takes more than {LARGEST / 2**30:.0f} GiB; "
                "take fewer episodes, or a lower max_steps"
            )

    def _closed(
        self, index: int, metrics: dict[str, np.ndarray]
    ) -> tuple[list[tuple], dict[str, float]] | None:
        rows, self._rows[index] = self._rows[index], []
        if len(rows) > self._max_steps:
            return None
        return rows, {name: float(values[index]) for name, values in metrics.items()}


def _joined(whole: list[tuple[list[tuple], dict[str, float]]], left_out: int) -> Episodes:
    lengths = np.array([len(rows) for rows, _ in whole])

    def filled(place: int) -> np.ndarray:
        like = whole[0][0][0][place]
        out = np.zeros((len(whole), lengths.max(), *like.shape), like.dtype)
        for number, (rows, _) in enumerate(whole):
            out[number, : len(rows)] = [row[place] for row in rows]
        return out

    names = whole[0][1]
    metrics = {name: np.array([own[name] for _, own in whole]) for name in names}
    return Episodes(filled(0), filled(1), lengths, {}, metrics, left_out)
