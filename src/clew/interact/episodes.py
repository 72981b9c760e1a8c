"""Whole episodes: as they were played, for inspection (`Episodes`), for a film (`Recording`)."""

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
    """An episode did not end within the steps that it may take."""


Picture = UInt8[np.ndarray, "height width 3"]

CUT = "cut"
"""How an episode ends that is left before its end."""
INSPECTED = ("observation", "action")
"""What `Episodes` keep of each step."""
FILMED = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "value": "values",
    "probabilities": "probabilities",
    "action_values": "action_values",
}
"""What a `Recording` keeps of each step, and under which name."""


class Played(NamedTuple):
    """An episode of T steps as it was played, with what was to be kept of each step."""

    steps: dict[str, Any]
    """Name of what is kept to its values, with time as the first axis of every leaf."""
    length: int
    """Its steps, T."""
    ended: str
    """terminated, truncated, or `CUT` where it took too long."""
    metrics: dict[str, Any]
    """The task's numbers about it; empty if it was cut."""
    labels: dict[str, Any] = {}
    """What was to be remembered, if the task says so."""


class Episodes(NamedTuple):
    """Whole episodes as an agent saw and played them, filled up with zeros at their ends.

    Nothing here depends on where they come from: whoever has an environment of another kind fills
    in these arrays in a loop.
    """

    observations: Float[np.ndarray, "episodes time n"]
    """All numbers of an observation in one axis, see `in_one_axis`."""
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
    entries: tuple[str, ...] = ()
    """What each of the n numbers is of, where an observation is a dict: "cue", "map[3]"."""

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
            self.entries,
        )


class Recording(NamedTuple):
    """An episode of T steps. Nothing here depends on where it comes from.

    Whoever has an environment that is not written in JAX fills in these arrays in a loop and hands
    the frames that the environment rendered as `pictures`.
    """

    observations: Any
    """[T, ...] what the agent saw before each action, or a dict of such arrays."""
    actions: np.ndarray
    """[T] the actions taken, counted from 0 where they have probabilities; else as the environment
    takes them, [T, k] if each is k numbers."""
    rewards: Float[np.ndarray, " time"]
    """Of each action, as the agent learned from it."""
    values: Float[np.ndarray, " time"]
    """The agent's value of each observation."""
    probabilities: Float[np.ndarray, "time actions"] | None
    """Of each action at each step; None where actions are no choices."""
    ended: str = "terminated"
    """How the episode ended: terminated, truncated, or cut where recording stopped before its
    end."""
    pictures: Sequence[Picture] | None = None
    """Of each step, before its action; any size. None where there are none."""
    texts: Sequence[str] | None = None
    """The same as lines of text."""
    action_names: Sequence[str] = ()
    """What the actions are called, or the numbers of an action; empty if they have no names."""
    metrics: dict[str, float] = {}
    """The task's numbers about the episode, such as "success"."""
    own_rewards: Float[np.ndarray, " time"] | None = None
    """The task's own reward of each action; None if the agent learned from just that."""
    action_values: Float[np.ndarray, "time actions"] | None = None
    """Of each action at each step; None for an agent that learned a policy."""

    @property
    def length(self) -> int:
        """Its steps, T."""
        return len(self.actions)

    @property
    def earned(self) -> Float[np.ndarray, " time"]:
        """The task's own reward of each action, T."""
        return self.rewards if self.own_rewards is None else self.own_rewards

    def returns(self, gamma: float) -> Float[np.ndarray, " time"]:
        """What came after each observation, r_t + gamma r_{t+1} + ..., to the recording's end."""
        found, total = np.zeros(self.length), 0.0
        for t in reversed(range(self.length)):
            found[t] = total = float(self.rewards[t]) + gamma * total
        return found


class Rendered(Sequence):
    """What a task renders of each step, made when it is asked for.

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
    """How an episode ended, of which this is the last step."""
    if not ended:
        return CUT
    return "truncated" if discount else "terminated"


def episodes_of(played: Sequence[Played], max_steps: int) -> Episodes:
    """Those of the episodes that ended in time, of which `INSPECTED` was kept.

    Raises:
        UserError: if none did.
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
    """The names of the numbers of `in_one_axis`, of observations [episodes, time, ...]."""
    if not isinstance(observation, dict):
        return ()
    sizes = {name: math.prod(x.shape[2:]) for name, x in parts_by_name(observation).items()}
    named = ([name] if n == 1 else [f"{name}[{i}]" for i in range(n)] for name, n in sizes.items())
    return tuple(itertools.chain.from_iterable(named))


def parts_by_name(observation: Any) -> dict[str, Any]:
    """The arrays of an observation, called as in a Gymnasium environment's; "" if it is one."""
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
    """The recording of an episode of which `FILMED` was kept, with pictures and what else there is.

    Actions are called as the task does, or as the environment counts them.
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
    """All numbers of observations with this many leading axes, as float32 in one last axis."""
    leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(observation)]
    flat = [leaf.reshape(*leaf.shape[:lead], -1) for leaf in leaves]
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=-1)


class FlattenedEncoder(eqx.Module):
    """An encoder that takes all numbers of an observation in one axis, in the order of its leaves.

    Encoders make of numbers what they need: a byte or a choice may come as a float of that value.
    """

    encoder: Callable[[Any], Array]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead out"]:
        """What the encoder makes of the observation."""
        ends = itertools.accumulate(math.prod(shape) for shape in self.shapes)
        parts = jnp.split(x, list(ends)[:-1], axis=-1)
        pairs = zip(parts, self.shapes, strict=True)
        leaves = [part.reshape(*x.shape[:-1], *shape) for part, shape in pairs]
        return self.encoder(jax.tree.unflatten(self.structure, leaves))


def reads_one_axis(agent: Agent, observation: Any) -> Agent:
    """The agent with observations in one axis, and without its action mask.

    Its logits are those of all actions, of which a mask would allow some. Of the observation only
    the shapes count.
    """
    leaves, structure = jax.tree.flatten(observation)
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    flattened = FlattenedEncoder(agent.encoder, structure, shapes)
    agent = eqx.tree_at(lambda agent: agent.encoder, agent, flattened)
    if agent.mask is None:
        return agent
    return eqx.tree_at(
        lambda agent: agent.mask, agent, None, is_leaf=lambda x: isinstance(x, ReadMask)
    )
