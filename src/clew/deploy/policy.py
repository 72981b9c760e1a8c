"""One step of a policy as a function of arrays, from the environment's observation to its action.

The wrappers between environment and agent in training are included: offsets of categories, kept
entries, normalisation with fixed statistics, the encoding of the previous action and reward.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PyTree

from clew.agents.heads import known_value, named_preferences, preferences
from clew.agents.network import Agent
from clew.bridges.gymnasium.spaces import Leaf, adapt_observation, category_counts
from clew.bridges.gymnasium.wrappers import EPSILON
from clew.deploy import pairs
from clew.deploy.graph import Graph, GraphBuilder, Ref
from clew.deploy.lower import Lowering, lower
from clew.deploy.runner import PolicyError, Reader
from clew.envs.spaces import (
    BARE,
    MASK,
    PREVIOUS_ACTION,
    PREVIOUS_ENDED,
    PREVIOUS_REWARD,
    float_boxes,
    join_mask,
    kept,
    without_mask,
)
from clew.envs.wrappers import INFO, WrapperConfig, encode_action
from clew.errors import UserError
from clew.interact.policy import PolicyAdapter, TrainedWrappers
from clew.memory.kernels import without_kernels
from clew.run.checkpoint import path_name

_LONGEST_NAME = 1_000
"""Most characters in the name of an input or of a leaf of the state."""


class Traced(NamedTuple):
    """A policy's graph, and the meaning of its names."""

    graph: Graph
    inputs: list[dict[str, Any]]
    """Entries of the manifest: name, kind, shape and dtype of every input."""
    outputs: list[dict[str, Any]]
    state: list[dict[str, Any]]
    initial: dict[str, np.ndarray]
    """The state before any observation, by the names of its leaves."""


def adapter_of_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> PolicyAdapter:
    """The adapter of an agent without wrappers, whose distribution is over `action_space`.

    An `ActionMask` in the observations becomes a separate input.
    """
    rest, mask = without_mask(observation_space)
    shown = mask is not None and mask.shown
    wrappers = WrapperConfig(action_mask=None if mask is None else INFO, show_action_mask=shown)
    return PolicyAdapter(adapt_observation(rest), None, action_space, action_space, wrappers, {})


def trained_wrappers(adapter: PolicyAdapter, num_envs: int | None = None) -> TrainedWrappers:
    """The wrappers of training for the policy of a run, which refuses the same inputs as an export.

    Args:
        adapter: of the run's task.
        num_envs: environments side by side, the first axis of observations; None for one.
    """
    entries = map(_observation_entry, adapter.observations.leaves)
    reader = Reader(entries if num_envs is None else (_of_many(e, num_envs) for e in entries))

    def read(observation: Any) -> list[np.ndarray]:
        try:
            arrays = reader(observation).values()
        except PolicyError as error:
            raise UserError(str(error)) from error
        return [x[None] if num_envs is None else x for x in arrays]

    return TrainedWrappers(adapter, read, num_envs)


class PolicyStep:
    """An agent with its wrappers as a pure function, without a batch, optionally with `value`."""

    def __init__(self, agent: Agent, adapter: PolicyAdapter, *, value: bool = False):
        self.params, self._static = eqx.partition(agent, eqx.is_array)
        self._adapter, self._value = adapter, value
        self.state = jax.tree.map(np.asarray, agent.init_state())
        self.distribution = agent.distribution
        self._masks = adapter.masks
        self._mask_name = MASK
        if self._masks is not None and not self._masks.in_info:
            self._mask_name = f"{BARE}/{self._masks.source}"

    def inputs(self) -> list[dict[str, Any]]:
        """The manifest's entries of the inputs, without the state."""
        found = [_observation_entry(leaf) for leaf in self._adapter.observations.leaves]
        if self._masks is not None:
            shape = [self._masks.size]
            if self._masks.in_info:
                found.append({"name": MASK, "kind": MASK})
            (entry,) = (entry for entry in found if entry["name"] == self._mask_name)
            splits = np.cumsum(self._masks.sizes)[:-1].tolist()
            entry |= {"shape": shape, "dtype": "bool", "splits": splits}
            entry.pop("categories", None)
        found.append({"name": "start", "kind": "start", "shape": [], "dtype": "bool"})
        space = self._adapter.action_space
        of_actions = "float32" if isinstance(space, spaces.Box) else "int32"
        previous = {
            PREVIOUS_ACTION: {"shape": list(space.shape or ()), "dtype": of_actions},
            PREVIOUS_REWARD: {"shape": [], "dtype": "float32"},
            PREVIOUS_ENDED: {"shape": [], "dtype": "bool"},
        }
        names = self._adapter.wrappers.shows_previous
        return found + [{"name": name, "kind": name, **previous[name]} for name in names]

    def __call__(
        self, params: PyTree[Array], state: PyTree[Array], inputs: dict[str, Array]
    ) -> tuple[PyTree[Array], dict[str, Array]]:
        """The new state, and the outputs: the greedy action, and the parameters it follows from."""
        agent = eqx.combine(params, self._static)
        state, answer = agent.step(state, self._seen(inputs), inputs["start"])
        numbers = preferences(answer)
        allowed = None if self._masks is None else inputs[self._mask_name]
        shown = named_preferences(agent.distribution, answer, allowed)
        outputs = {"action": self.action(numbers), **shown}
        return state, outputs | ({"value": known_value(answer)} if self._value else {})

    def action(self, numbers: Array) -> Array:
        """The environment's greedy action for the distribution's parameters."""
        chosen = self.distribution.decode(self.distribution.mode(numbers))
        adapter = self._adapter.actions
        chosen = jnp.asarray(chosen)
        if adapter is None or adapter.start is None:
            return chosen
        return chosen + jnp.asarray(adapter.start, chosen.dtype)

    def numbers(self, params: Any, state: Any, inputs: dict[str, Array]) -> Array:
        """The distribution's parameters, for the golden episode."""
        agent = eqx.combine(params, self._static)
        return preferences(agent.step(state, self._seen(inputs), inputs["start"])[1])

    def leaves(self, state: PyTree[Any]) -> dict[str, Any]:
        """The leaves of a state by name, arrays in the form of files."""
        return {name: pairs.stored(leaf) for name, leaf in _named(state).items()}

    def state_of(
        self, leaves: Mapping[str, Any], read: Callable[[Any], Any] = pairs.restored
    ) -> PyTree[Any]:
        """The state from its leaves in the form of files, with any leading axes; `read` joins the
        two parts of a complex one."""
        own, structure = jax.tree.flatten(self.state)
        both = zip(own, leaves.values(), strict=True)
        found = [read(leaf) if np.iscomplexobj(like) else leaf for like, leaf in both]
        return jax.tree.unflatten(structure, found)

    def trace(self) -> Traced:
        """The graph.

        Raises:
            UserError: naming an operation of the agent that exports do not support.
        """
        builder, entries = GraphBuilder(), self.inputs()
        low = Lowering(builder)
        given = {
            e["name"]: Ref(e["name"], tuple(e["shape"]), np.dtype(e["dtype"])) for e in entries
        }
        initial = self.leaves(self.state)
        states = {n: Ref(f"state/{n}", leaf.shape, leaf.dtype) for n, leaf in initial.items()}
        for name in (*given, *states):
            if len(name) > _LONGEST_NAME or any(
                c == "\0" or "\ud800" <= c <= "\udfff" for c in name
            ):
                raise UserError(
                    f"cannot export: the name {name!r:.60} has {len(name)} characters, expected at "
                    f"most {_LONGEST_NAME} of printable text"
                )
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: low.constant(leaf, path_name(path)[1:]), self.params
        )
        state = self.state_of(states, partial(pairs.read_stored, low))
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (self.params, self.state, given)
        )
        with without_kernels():
            new, outputs = lower(self, shapes, (params, state, given), builder)
        after = {name: pairs.to_store(low, leaf) for name, leaf in _named(new).items()}
        graph = builder.finish(given, states, outputs, after)
        described = _entries(initial)
        for entry, like in zip(described, jax.tree.leaves(self.state), strict=True):
            entry |= {"complex": list(pairs.PARTS)} if np.iscomplexobj(like) else {}
        return Traced(graph, entries, _entries(outputs), described, initial)

    def _seen(self, inputs: dict[str, Array]) -> Any:
        """The agent's input, with its action mask if it has one."""
        seen = self._adapter.observations.nested(self._observed(inputs))
        return seen if self._masks is None else join_mask(seen, inputs[self._mask_name])

    def _observed(self, inputs: dict[str, Array]) -> Any:
        """The agent's input without its action mask; applies the wrappers of training in order."""
        adapter, config = self._adapter, self._adapter.wrappers
        named = {
            leaf.name or BARE: _adapted(leaf, inputs[_observation_name(leaf)])
            for leaf in adapter.observations.leaves
            if self._masks is None or _observation_name(leaf) != self._mask_name
        }
        if config.keep is not None:
            named = {BARE: named[BARE][np.array(config.keep)]}
        if config.normalise_observations:
            named |= self._normalised(named)
        for name in config.shows_previous:
            named[name] = jnp.where(inputs["start"], 0.0, self._previous(name, inputs[name]))
        single = not isinstance(adapter.unmasked, spaces.Dict) and not config.shows_previous
        return named[BARE] if single else named

    def _previous(self, name: str, given: Array) -> Array:
        """The agent's input from its previous step."""
        if name == PREVIOUS_REWARD:
            return self._reward(given)[None]
        if name == PREVIOUS_ENDED:
            return given.astype(jnp.float32)[None]
        actions = self._adapter.actions
        if actions is not None and actions.start is not None:
            given = given - jnp.asarray(actions.start, given.dtype)
        return encode_action(self._adapter.action_space, given)

    def _normalised(self, named: dict[str, Array]) -> dict[str, Array]:
        """(x - mean) / deviation, clipped; the mean is split in two for full float32 precision."""
        config, moments = self._adapter.wrappers, self._adapter.statistics["observation"]
        space = kept(self._adapter.unmasked, config.keep)
        found = {}
        for name in float_boxes(space):
            mean, m2 = (np.asarray(moments[name][key], np.float64) for key in ("mean", "m2"))
            count = float(moments[name]["count"])
            variance = m2 / count if count else np.ones_like(m2)
            high = mean.astype(np.float32)
            low = (mean - high).astype(np.float32)
            scale = (1.0 / np.sqrt(variance + EPSILON)).astype(np.float32)
            away = (named[name] - high) - low
            found[name] = jnp.clip(away * scale, -config.observation_clip, config.observation_clip)
        return found

    def _reward(self, reward: Array) -> Array:
        """The reward in the form that the agent learned from."""
        config, scale = self._adapter.wrappers, self._adapter.wrappers.reward_scale
        if config.normalise_rewards:
            learned = self._adapter.statistics["reward"]
            if float(learned["count"]):
                scale = scale / float(np.sqrt(float(learned["mean_square"]) + EPSILON))
        reward = reward * np.float32(scale)
        clip = config.reward_clip
        return reward if clip is None else jnp.clip(reward, -clip, clip)


def _named(state: PyTree[Any]) -> dict[str, Any]:
    named = jax.tree_util.tree_leaves_with_path(state)
    return {path_name(path).strip("/") or "state": leaf for path, leaf in named}


def _entries(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(value.shape), "dtype": value.dtype.name}
        for name, value in values.items()
    ]


def _observation_name(leaf: Leaf) -> str:
    """The name in exports of the input of an observation, or of one of its entries."""
    return f"{BARE}/{leaf.name}" if leaf.name else BARE


def _observation_entry(leaf: Leaf) -> dict[str, Any]:
    """The manifest's entry of an observation, or of one of its entries."""
    entry = {
        "name": _observation_name(leaf),
        "kind": "observation",
        "path": list(leaf.path),
        "shape": list(leaf.raw_shape),
        "dtype": leaf.dtype.name,
        "space": str(leaf.space),
    }
    if not isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
        return entry
    counts = category_counts(leaf.space).astype(np.int64)
    first = np.zeros_like(counts) + leaf.space.start + (0 if leaf.offset is None else leaf.offset)
    ends = [end.reshape(leaf.raw_shape).tolist() for end in (first, first + counts - 1)]
    return entry | {"categories": ends}


def _of_many(entry: dict[str, Any], count: int) -> dict[str, Any]:
    """The entry of `count` observations at once."""
    many = {"shape": [count, *entry["shape"]]}
    if "categories" in entry:
        many["categories"] = [[end] * count for end in entry["categories"]]
    return entry | many


def _adapted(leaf: Leaf, x: Array) -> Array:
    """An observation in the form of the agent's training environments."""
    x = x.reshape(leaf.shape)
    return x if leaf.offset is None else x - jnp.asarray(leaf.offset, x.dtype)
