"""Whole episodes, recorded while an agent plays, for everything that is asked afterwards."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from clew.agents.network import Agent
from clew.bridges.gymnasium.stream import GymnasiumStream
from clew.envs.stream import AutoReset
from clew.errors import UserError, require_episodes
from clew.interact.acting import (
    ActorState,
    act_and_step,
    compile_act,
    only_action,
    step,
    step_keys,
)
from clew.interact.evaluate import HOST_BATCH
from clew.interact.flat import in_one_axis
from clew.interact.host_rollout import environment_seed
from clew.interact.rollout import empty_memories, init_actor

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask

BATCH = 64
"""Episodes played side by side."""
PIECE = 32
"""Steps between two looks at whether all episodes have ended."""
LARGEST = 4 * 2**30
"""Bytes of observations of Gymnasium environments that are held at most."""


class Episodes(NamedTuple):
    """Whole episodes as an agent saw and played them, filled up with zeros at their ends.

    Nothing here depends on where they come from: whoever has an environment of another kind
    records it in a loop and fills in these arrays.
    """

    observations: Float[np.ndarray, "episodes time n"]
    """All numbers of an observation in one axis, see `clew.interact.flat`."""
    actions: Shaped[np.ndarray, "episodes time *action"]
    """As the policy's distribution keeps them."""
    lengths: Int[np.ndarray, " episodes"]
    """Observations of each episode that an action followed, at least 1."""
    labels: dict[str, Int[np.ndarray, " episodes"]]
    """What was to be remembered, by name; empty if the task does not say."""
    metrics: dict[str, Float[np.ndarray, " episodes"]]
    """The task's numbers about each episode, such as "success"."""
    left_out: int
    """Episodes that did not end in time and are not here."""

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """Steps of the longest."""
        return int(self.lengths.max())

    def first(self, count: int) -> "Episodes":
        """The first `count` of them."""
        return self.pick(np.arange(min(count, self.number)))

    def pick(self, index: Int[np.ndarray, " some"]) -> "Episodes":
        """Those with these numbers, filled up to the longest of them."""
        longest = int(self.lengths[index].max()) if len(index) else 0
        return Episodes(
            self.observations[index, :longest],
            self.actions[index, :longest],
            self.lengths[index],
            {name: values[index] for name, values in self.labels.items()},
            {name: values[index] for name, values in self.metrics.items()},
            self.left_out,
        )


def record_episodes(
    agent: Agent,
    stream: AutoReset,
    *,
    episodes: int = 200,
    greedy: bool = True,
    max_steps: int = 1000,
    seed: int = 0,
) -> Episodes:
    """Plays fresh episodes and keeps what was seen and chosen.

    Args:
        agent: the network.
        stream: the task.
        episodes: how many, at least 1.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: an episode that takes longer is left out, and counted.
        seed: of the episodes and samples.

    Raises:
        UserError: if no episode ended in time.
    """
    require_episodes(episodes, max_steps, seed)
    arrays, static = eqx.partition(agent, eqx.is_array)
    batch = min(BATCH, episodes)
    opened = jax.jit(partial(_open, static, stream, batch))
    played = jax.jit(partial(_play, static, stream, greedy))
    parts = []
    for key in jax.random.split(jax.random.key(seed), math.ceil(episodes / batch)):
        reset_key, key = jax.random.split(key)
        carry, labels = opened(arrays, reset_key)
        rows: list[Any] = []
        while len(rows) * PIECE < max_steps and not np.all(carry[1]):
            carry, row = played(arrays, carry, jax.random.fold_in(key, len(rows)))
            rows.append(jax.device_get(row))
        parts.append((jax.device_get(labels), rows))
    return _joined(parts, episodes, max_steps)


def _open(
    static: Agent, stream: AutoReset, batch: int, arrays: Any, key: PRNGKeyArray
) -> tuple[tuple[ActorState, Array], dict[str, Array]]:
    actor = init_actor(eqx.combine(arrays, static), stream, batch, key)
    return (actor, jnp.zeros(batch, bool)), jax.vmap(stream.env.remembered)(actor.env.env)


def _play(
    static: Agent,
    stream: AutoReset,
    greedy: bool,
    arrays: Any,
    carry: tuple[ActorState, Array],
    key: PRNGKeyArray,
) -> tuple[tuple[ActorState, Array], dict[str, Any]]:
    """`PIECE` steps; after its first end an environment plays on and is not looked at."""
    agent = eqx.combine(arrays, static)
    batch = carry[1].shape[0]

    def one(carry: tuple[ActorState, Array], keys: tuple[Array, Array]) -> tuple:
        actor, over = carry
        action_key, env_key = keys
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        each = jax.random.split(env_key, batch)
        after, choice = act_and_step(agent, stream, actor, pick, each)
        seen, then = actor.timestep, after.timestep
        first = then.ended & ~over
        row = {
            "observation": in_one_axis(seen.observation, 1),
            "action": choice.action,
            "ended": first,
            "metrics": {n: jnp.where(first, x, 0.0) for n, x in then.metrics.items()},
        }
        return (after, over | first), row

    return jax.lax.scan(one, carry, step_keys(key, PIECE, agent.distribution))


def _none_ended(count: int, max_steps: int) -> UserError:
    """The error for episodes of which none ended in time."""
    return UserError(
        f"none of {count} episodes ended within {max_steps} steps; raise max_steps, or take "
        "actions sampled from the policy if the greedy ones lead nowhere"
    )


def _joined(parts: list[tuple[Any, list[Any]]], count: int, max_steps: int) -> Episodes:
    """The episodes of all batches that ended in time, with the episode as the first axis."""
    longest = min(max_steps, PIECE * max(len(rows) for _, rows in parts))

    def stack(rows: list[Any]) -> Any:
        def one(*leaves: np.ndarray) -> np.ndarray:
            joined = np.moveaxis(np.concatenate(leaves), 1, 0)[:, :longest]
            pad = [(0, 0), (0, longest - joined.shape[1])] + [(0, 0)] * (joined.ndim - 2)
            return np.pad(joined, pad)

        return jax.tree.map(one, *rows)

    stacked = [(labels, stack(rows)) for labels, rows in parts]
    labels, rows = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *stacked)
    ended = rows["ended"].any(axis=1)
    if not ended.any():
        raise _none_ended(count, max_steps)
    lengths = rows["ended"].argmax(axis=1) + 1
    alive = np.arange(longest)[None, :] < lengths[:, None]
    found = Episodes(
        np.where(alive[:, :, None], rows["observation"], 0.0).astype(np.float32),
        np.where(alive.reshape(*alive.shape, *[1] * (rows["action"].ndim - 2)), rows["action"], 0),
        lengths,
        labels,
        {name: values.sum(axis=1) for name, values in rows["metrics"].items()},
        int((~ended).sum()),
    )
    return found.pick(np.flatnonzero(ended))


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
    long ones. Such environments do not say what was to be remembered, so there are no labels.

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
    count = min(HOST_BATCH, episodes)
    with task.open(count, seed=environment_seed(seed, 0), frozen=True) as stream:
        if statistics is not None:
            stream.restore(statistics)
        player = _Player(agent, stream, choose, jax.random.key(seed), max_steps)
        found = player.play(-(-episodes // count))
    kept = found[:episodes]
    whole = [episode for episode in kept if episode is not None]
    if not whole:
        raise _none_ended(episodes, max_steps)
    return _padded(whole, len(kept) - len(whole))


class _Player:
    """Plays Gymnasium environments, and holds the rows of every episode that has not ended."""

    def __init__(
        self, agent: Agent, stream: GymnasiumStream, choose: Any, key: Any, max_steps: int
    ):
        self._distribution, self._stream, self._choose = agent.distribution, stream, choose
        self._key, self._max_steps = key, max_steps
        self._memory = empty_memories(agent, stream.num_envs)
        self._rows: list[list[tuple]] = [[] for _ in range(stream.num_envs)]
        self._bytes = 0

    def play(self, each: int) -> list[tuple[list[tuple], dict[str, float]] | None]:
        """Plays `each` episodes of every environment: rows and metrics, or None for too long ones.

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


def _padded(whole: list[tuple[list[tuple], dict[str, float]]], left_out: int) -> Episodes:
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
