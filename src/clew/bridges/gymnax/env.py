"""Environments of others that are written in JAX and follow gymnax's interface, as tasks."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from clew.envs.base import Environment, EnvState, Observation, Transition
from clew.errors import require_choice

if TYPE_CHECKING:
    from gymnasium.spaces import Space

    from clew.bridges.gymnasium.spaces import ActionAdapter, ObservationAdapter

EVERY_END = ("terminated",)
NOT_METRICS = ("discount", "terminated", "truncated", "return", "length")
"""What `info` may hold that is said elsewhere, by the transition or by the stream."""

_Flags = Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class Foreign:
    """An environment of others and what was found out about it; compared by identity."""

    name: str
    env: Any
    params: Any
    observations: "ObservationAdapter"
    actions: "ActionAdapter"
    state: Any
    """The state's tree with the type of each leaf, or None for a random key's."""
    truncated: _Flags | None
    """Says of state and params whether time is up; None if nothing cuts episodes off."""
    metric_names: tuple[str, ...]


class GymnaxEnvironment(Environment):
    """An environment that follows the interface of gymnax 1.0, as a task.

    What is used of it:

        reset(key, params) -> observation, state
        step_env(key, state, action, params) -> observation, state, reward, terminated, info
        is_truncated(state, params) -> whether the time limit was reached
        observation_space(params), action_space(params)
        default_params, unless `params` is given

    `step_env` may answer `truncated` after `terminated` by itself, and needs no `is_truncated`
    then. gymnax's `step` is not used: it opens the next episode at once, and `AutoReset` does that
    here, one step after the final observation of a truncated episode. What an environment's own
    `step` does besides (DeepSea-bsuite counts over episodes) is not done.

    Observations have the forms of `clew.bridges.gymnasium.spaces.adapt_observation`: uint8 or
    float32 for a Box, int32 for a Discrete, a flat dict of them. Metrics are the single numbers in
    `info`, its "discount" apart.

    Args:
        env: the environment.
        params: its settings, a tree of numbers; None for its `default_params`.
        name: what error messages call it.
        every_end: how to read an environment that only says `done`, without telling an end from a
            time limit, as before gymnax 1.0: None refuses it, "terminated" counts every end as a
            termination, time limits too, so that nothing is expected after them.

    Raises:
        UserError: something of the interface is missing or fails, a space is not supported, or
            observations do not have their space's form.

    Source: gymnax 1.0 (R. T. Lange, 2022), environments/environment.py.
    """

    foreign: Foreign = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self, env: Any, params: Any = None, *, name: str = "", every_end: str | None = None
    ) -> None:
        from clew.bridges.gymnax.probe import probe

        if every_end is not None:
            require_choice("every_end", every_end, EVERY_END)
        self.foreign = probe(env, params, name or type(env).__name__, every_end)
        leaves = self.foreign.observations.leaves
        self.observation_size = sum(_count(leaf.shape) for leaf in leaves)
        space = self.foreign.actions.space
        self.num_actions = int(getattr(space, "n", 0)) if not space.shape else 0
        self.metric_names = self.foreign.metric_names

    @property
    def observation_space(self) -> "Space":
        """What observations are."""
        return self.foreign.observations.space

    @property
    def action_space(self) -> "Space":
        """What actions are: whole numbers from 0 on, or a Box of float32."""
        return self.foreign.actions.space

    @property
    def about(self) -> str:
        """What the environment says of itself, in one line; may be empty."""
        return (inspect.getdoc(type(self.foreign.env)) or "").partition("\n")[0]

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens an episode."""
        observation, state = self.foreign.env.reset(key, self.foreign.params)
        return typed(self.foreign.state, state), seen(self.foreign.observations, observation)

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        """Takes one action."""
        foreign, adapter = self.foreign, self.foreign.actions
        dtype = action_dtype(adapter)
        action = jnp.asarray(action).astype(dtype)
        if adapter.start is not None:
            action = action + adapter.start.astype(dtype)
        answer = foreign.env.step_env(key, state, action, foreign.params)
        observation, after, reward, terminated, *truncated, info = answer
        if not truncated:
            limit = foreign.truncated
            truncated = [False if limit is None else limit(after, foreign.params)]
        return typed(foreign.state, after), Transition(
            observation=seen(foreign.observations, observation),
            reward=scalar(reward, jnp.float32),
            terminated=scalar(terminated, jnp.bool_),
            truncated=scalar(truncated[0], jnp.bool_),
            metrics={name: scalar(info[name], jnp.float32) for name in self.metric_names},
        )


def action_dtype(adapter: "ActionAdapter") -> Any:
    """The type of an environment's actions in JAX; Gymnasium's own is int64 for a choice."""
    return jnp.dtype(jnp.int32 if adapter.dtype.kind in "iu" else adapter.space.dtype)


def seen(adapter: "ObservationAdapter", observation: Any) -> Observation:
    """An observation in the form that the agent sees, as `ObservationAdapter` does in NumPy."""
    found = {}
    for leaf in adapter.leaves:
        value = observation
        for key in leaf.path:
            value = picked(value, key)
        value = jnp.asarray(value).astype(leaf.dtype).reshape(leaf.shape)
        found[leaf.name] = value if leaf.offset is None else value - leaf.offset.astype(leaf.dtype)
    return found if adapter.leaves[0].path else found[""]


def picked(value: Any, key: str | int) -> Any:
    """A part of an observation: of a mapping, of a sequence, or a field of a dataclass."""
    if isinstance(key, int) or isinstance(value, Mapping):
        return value[key]
    return getattr(value, key)


def typed(types: Any, state: Any) -> Any:
    """A state whose leaves have the types of a tree, whatever Python's numbers became on the way.

    gymnax's environments open with plain numbers, such as a time of 0, and go on with arrays.
    """
    leaves, tree = jax.tree.flatten(state)
    wanted = jax.tree.leaves(types, is_leaf=lambda leaf: leaf is None)
    cast = [
        leaf if dtype is None else jax.lax.convert_element_type(leaf, dtype)
        for leaf, dtype in zip(leaves, wanted, strict=True)
    ]
    return jax.tree.unflatten(tree, cast)


def scalar(value: Any, dtype: Any) -> Array:
    """A single number, whatever axes of length 1 it has."""
    return jnp.asarray(value).astype(dtype).reshape(())


def _count(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
