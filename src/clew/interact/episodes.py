"""Whole episodes: as played (`Played`), for inspection (`Episodes`), for films (`Recording`)."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped, UInt8

from clew.agents.network import Agent, ReadMask
from clew.errors import UserError
from clew.interact.policy import PolicyAdapter


class EpisodeTooLong(UserError):
    """An episode did not end within the allowed number of steps."""


Picture = UInt8[np.ndarray, "height width 3"]

CUT = "cut"
"""The ending of an episode that was left before its end."""
INSPECTED = ("observation", "action")
"""Values of each step that `Episodes` keep."""
FILMED = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "value": "values",
    "probabilities": "probabilities",
    "action_values": "action_values",
}
"""Values of each step that a `Recording` keeps, with their names there."""


class Played(NamedTuple):
    """An episode of T steps as it was played, with the kept values of each step."""

    steps: dict[str, Any]
    """Name to kept values, with time as the first axis of every leaf."""
    length: int
    """Number of steps, T."""
    ended: str
    """terminated, truncated, or `CUT` if it took too long."""
    metrics: dict[str, Any]
    """The task's metrics of the episode; empty if it was cut."""
    labels: dict[str, Any] = {}
    """The things to be remembered, if the task has labels."""


class Episodes(NamedTuple):
    """Whole episodes as an agent saw and played them, padded with zeros at their ends.

    Nothing here depends on the source of the episodes: for an environment of another kind, fill in
    these arrays in a loop.
    """

    observations: Float[np.ndarray, "episodes time n"]
    """All numbers of an observation on one axis, see `in_one_axis`."""
    actions: Shaped[np.ndarray, "episodes time *action"]
    """In the form that the policy's distribution keeps."""
    lengths: Int[np.ndarray, " episodes"]
    """Number of observations of each episode that an action followed, at least 1."""
    labels: dict[str, Int[np.ndarray, " episodes"]]
    """The things to be remembered, by name; empty if the task has no labels."""
    metrics: dict[str, Float[np.ndarray, " episodes"]]
    """The task's metrics of each episode, such as "success"."""
    left_out: int
    """Number of episodes that did not end in time and are not included."""
    entries: tuple[str, ...] = ()
    """Names of the n numbers, if an observation is a dict: "cue", "map[3]"."""

    @property
    def number(self) -> int:
        """The number of episodes."""
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return int(self.lengths.max())

    def first(self, count: int) -> "Episodes":
        """The first `count` episodes."""
        return self.pick(np.arange(min(count, self.number)))

    def pick(self, index: Int[np.ndarray, " some"]) -> "Episodes":
        """The episodes with these indices, padded to the longest of them."""
        longest = int(self.lengths[index].max()) if len(index) else 0
        return Episodes(
            self.observations[index, :longest],
            self.actions[index, :longest],
            self.lengths[index],
            {name: values[index] for name, values in self.labels.items()},
            {name: values[index] for name, values in self.metrics.items()},
            self.left_out,
            self.entries,
        )


class Recording(NamedTuple):
    """An episode of T steps. Nothing here depends on its source.

    For an environment that is not written in JAX, fill in these arrays in a loop, and pass the
    frames that the environment rendered as `pictures`.
    """

    observations: Any
    """[T, ...] observations of the agent before each action, or a dict of such arrays."""
    actions: np.ndarray
    """[T] the actions taken, counted from 0 if they have probabilities; else as the environment
    takes them, [T, k] if each is k numbers."""
    rewards: Float[np.ndarray, " time"]
    """Reward of each action, as used for learning."""
    values: Float[np.ndarray, " time"]
    """The agent's value of each observation."""
    probabilities: Float[np.ndarray, "time actions"] | None
    """Probability of each action at each step; None unless it is one discrete choice."""
    ended: str = "terminated"
    """How the episode ended: terminated, truncated, or cut if recording stopped before its end."""
    pictures: Sequence[Picture] | None = None
    """The picture of each step before its action, of any size; None if there are none."""
    texts: Sequence[str] | None = None
    """The same as lines of text."""
    action_names: Sequence[str] = ()
    """Names of the actions, or of the numbers of an action; empty if they have no names."""
    metrics: dict[str, float] = {}
    """The task's metrics of the episode, such as "success"."""
    own_rewards: Float[np.ndarray, " time"] | None = None
    """The task's own reward of each action; None if the agent learned from exactly that."""
    action_values: Float[np.ndarray, "time actions"] | None = None
    """Value of each action at each step; None for an agent that learned a policy."""

    @property
    def length(self) -> int:
        """Number of steps, T."""
        return len(self.actions)

    @property
    def earned(self) -> Float[np.ndarray, " time"]:
        """The task's own reward of each action, T."""
        return self.rewards if self.own_rewards is None else self.own_rewards

    def returns(self, gamma: float) -> Float[np.ndarray, " time"]:
        """The return after each observation, r_t + gamma r_{t+1} + ..., to the recording's end."""
        found, total = np.zeros(self.length), 0.0
        for t in reversed(range(self.length)):
            found[t] = total = float(self.rewards[t]) + gamma * total
        return found


class Rendered(Sequence):
    """The pictures or texts that a task renders, each made on access.

    A thousand pictures at once would take half a gigabyte.

    Args:
        render: `render_image` or `render_text` of an environment.
        states: with time as the first axis of every leaf.
        observations: [T, n], or a dict of such arrays.
    """

    def __init__(self, render: Any, states: Any, observations: Any):
        self._render, self._states, self._observations = render, states, observations

    def __len__(self) -> int:
        return len(jax.tree.leaves(self._observations)[0])

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        moment = (self._states, self._observations)
        return self._render(*jax.tree.map(lambda leaf: leaf[index], moment))


def ending(ended: Any, discount: Any) -> str:
    """How an episode ended, from its last step."""
    if not ended:
        return CUT
    return "truncated" if discount else "terminated"


def episodes_of(played: Sequence[Played], max_steps: int) -> Episodes:
    """The episodes that ended in time, as `Episodes`; each must have kept `INSPECTED`.

    Raises:
        UserError: if none ended in time.
    """
    whole = [episode for episode in played if episode.ended != CUT]
    if not whole:
        raise UserError(
            f"none of {len(played)} episodes ended within {max_steps} steps; raise max_steps, or "
            "use sampled actions if greedy ones never finish"
        )
    lengths = np.array([episode.length for episode in whole])

    def filled(*leaves: np.ndarray) -> np.ndarray:
        out = np.zeros((len(leaves), lengths.max(), *leaves[0].shape[1:]), leaves[0].dtype)
        for row, leaf in zip(out, leaves, strict=True):
            row[: len(leaf)] = leaf
        return out

    def joined(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        return {name: np.array([row[name] for row in rows]) for name in metrics_of_all(rows)}

    steps = jax.tree.map(filled, *(episode.steps for episode in whole))
    return Episodes(
        in_one_axis(steps["observation"], 2),
        steps["action"],
        lengths,
        joined([episode.labels for episode in whole]),
        joined([episode.metrics for episode in whole]),
        len(played) - len(whole),
        _entries(steps["observation"]),
    )


def _entries(observation: Any) -> tuple[str, ...]:
    """Names of the numbers of `in_one_axis`, for observations [episodes, time, ...]."""
    if not isinstance(observation, dict):
        return ()
    sizes = {name: math.prod(x.shape[2:]) for name, x in parts_by_name(observation).items()}
    named = ([name] if n == 1 else [f"{name}[{i}]" for i in range(n)] for name, n in sizes.items())
    return tuple(itertools.chain.from_iterable(named))


def parts_by_name(observation: Any) -> dict[str, Any]:
    """The arrays of an observation, by their names in Gymnasium; "" for a single array."""
    parts = jax.tree_util.tree_leaves_with_path(observation)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in parts}


def metrics_of_all(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The names that every row has, in the first one's order."""
    return [name for name in rows[0] if all(name in row for row in rows)]


def recording_of(
    played: Played,
    agent: Agent,
    adapter: PolicyAdapter,
    *,
    action_names: Sequence[str] = (),
    **shown: Any,
) -> Recording:
    """The recording of an episode that has kept `FILMED`, with pictures and more, if there are any.

    Actions have the task's names, or the environment's numbers.
    """
    fields = {field: played.steps[name] for name, field in FILMED.items()}
    if fields["probabilities"] is None:
        fields["actions"] = adapter.taken(agent.distribution, fields["actions"])
    return Recording(
        **fields,
        ended=played.ended,
        metrics={name: float(value) for name, value in played.metrics.items()},
        action_names=action_names or adapter.action_names,
        **shown,
    )


def in_one_axis(observation: Any, lead: int) -> Float[np.ndarray, "*lead n"]:
    """All numbers of observations with `lead` leading axes, as float32 on one last axis."""
    leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(observation)]
    flat = [leaf.reshape(*leaf.shape[:lead], -1) for leaf in leaves]
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=-1)


class FlattenedEncoder(eqx.Module):
    """An encoder that takes all numbers of an observation on one axis, in the order of its leaves.

    It may be what reads the critic's own entries, which gives None where they are missing.

    Encoders convert numbers themselves: a byte or a discrete value may come as a float.
    """

    encoder: Callable[[Any], Any]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*lead n"]) -> Any:
        """Encodes the observation."""
        ends = itertools.accumulate(math.prod(shape) for shape in self.shapes)
        parts = jnp.split(x, list(ends)[:-1], axis=-1)
        pairs = zip(parts, self.shapes, strict=True)
        leaves = [part.reshape(*x.shape[:-1], *shape) for part, shape in pairs]
        return self.encoder(jax.tree.unflatten(self.structure, leaves))


def reads_one_axis(agent: Agent, observation: Any) -> Agent:
    """The agent with observations on one axis, and without its action mask.

    Its logits are those of all actions, also of those that a mask would forbid. Only the shapes of
    the observation are used.
    """
    leaves, structure = jax.tree.flatten(observation)
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    flattened = FlattenedEncoder(agent.encoder, structure, shapes)
    agent = eqx.tree_at(lambda agent: agent.encoder, agent, flattened)
    if agent.critic_only is not None:
        flattened = FlattenedEncoder(agent.critic_only, structure, shapes)
        agent = eqx.tree_at(lambda agent: agent.critic_only, agent, flattened)
    if agent.mask is None:
        return agent
    return eqx.tree_at(
        lambda agent: agent.mask, agent, None, is_leaf=lambda x: isinstance(x, ReadMask)
    )
