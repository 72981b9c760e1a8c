"""Whole episodes, recorded while an agent plays, for everything that is asked afterwards."""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from clew.agents.network import Agent
from clew.envs.stream import AutoReset
from clew.errors import UserError, require_episodes
from clew.interact.acting import ActorState, act_and_step
from clew.interact.flat import in_one_axis
from clew.interact.rollout import init_actor

BATCH = 64
"""Episodes played side by side."""
PIECE = 32
"""Steps between two looks at whether all episodes have ended."""


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

    def one(carry: tuple[ActorState, Array], key: PRNGKeyArray) -> tuple:
        actor, over = carry
        action_key, env_key = jax.random.split(key)
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        keys = jax.random.split(env_key, batch)
        after, choice = act_and_step(agent, stream, actor, pick, keys)
        seen, then = actor.timestep, after.timestep
        first = then.ended & ~over
        row = {
            "observation": in_one_axis(seen.observation, 1),
            "action": choice.action,
            "ended": first,
            "metrics": {n: jnp.where(first, x, 0.0) for n, x in then.metrics.items()},
        }
        return (after, over | first), row

    return jax.lax.scan(one, carry, jax.random.split(key, PIECE))


def none_ended(count: int, max_steps: int) -> UserError:
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
        raise none_ended(count, max_steps)
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
