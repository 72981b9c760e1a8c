"""Environments with gymnax's interface as tasks: "gymnax:ID" or "gymnax:module:factory".

The bridges give other packages this interface too, see `PACKAGES` in `clew.bridges.jax_packages`.
"""

import dataclasses
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key

from clew.bridges.gymnasium.build import call
from clew.bridges.gymnasium.spaces import (
    ActionAdapter,
    ObservationAdapter,
    adapt_action,
    adapt_observation,
    is_categorical,
)
from clew.bridges.jax_packages import Factory, import_package
from clew.envs.base import Environment, EnvState, Observation, Transition
from clew.errors import UserError, parameters_of, require_choice, unknown_name
from clew.names import resolve

KEY = "key"
"""Stands for the type of random keys, which are never converted."""
NEEDED = ("reset", "step_env", "observation_space", "action_space")
OLD = (
    "has only `done`, as before gymnax 1.0, which does not separate a time limit from a "
    "termination: give it is_terminated(state, params) and is_truncated(state, params), or count "
    "every end as a termination with the option every_end=terminated"
)
EVERY_END = ("terminated",)
NOT_METRICS = ("discount", "terminated", "truncated", "return", "length")
"""Entries of `info` that the transition or the stream already has."""


@dataclass(frozen=True, eq=False)
class GymnaxSpec:
    """An environment of another library and facts from its shapes; compared by identity."""

    name: str
    env: Any
    params: Any
    observations: ObservationAdapter
    actions: ActionAdapter
    state: Any
    """The state's tree with the type of each leaf, `KEY` for a random key's."""
    truncated: Callable[[Any, Any], Any] | None
    """Whether the time limit is reached, from state and params; None if there is no limit."""
    metric_names: tuple[str, ...]
    action_mask: Callable[[Any], Any] | None
    """The allowed actions in a state; None if all are always allowed."""
    render: Callable[[Any], np.ndarray] | None
    """Draws a state; None if it cannot be drawn."""


class GymnaxEnvironment(Environment):
    """An environment with the interface of gymnax 1.0, as a task.

    These parts of it are used:

        reset(key, params) -> observation, state
        step_env(key, state, action, params) -> observation, state, reward, terminated, info
        is_truncated(state, params) -> whether the time limit was reached
        observation_space(params), action_space(params)
        default_params, unless `params` is given

    `step_env` may also return `truncated` after `terminated`, and then needs no `is_truncated`.
    gymnax's `step` is not used: it opens the next episode at once, while here `AutoReset` does so,
    one step after the final observation of a truncated episode. Anything else that an environment's
    own `step` does is left out (DeepSea-bsuite counts over episodes).

    An environment may have `action_mask(state)`, which becomes the task's mask, and
    `render_state(state)`, a picture for people.

    Observations have the forms of `clew.bridges.gymnasium.spaces.adapt_observation`: uint8 or
    float32 for a Box, int32 for a Discrete, a flat dict of them. Metrics are the single numbers in
    `info`, except "discount".

    Args:
        env: the environment.
        params: its settings, a tree of numbers; None for its `default_params`.
        name: its name in error messages.
        every_end: for an environment with only `done`, which does not separate terminations from
            time limits, as before gymnax 1.0: None refuses it, "terminated" counts every end as a
            termination, including time limits, so that the value after them is 0. It is refused for
            other environments.

    Raises:
        UserError: a part of the interface is missing or fails, a space is not supported, or
            observations do not have the form of their space.

    Source: gymnax 1.0 (R. T. Lange, 2022), environments/environment.py.
    """

    spec: GymnaxSpec = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self, env: Any, params: Any = None, *, name: str = "", every_end: str | None = None
    ) -> None:
        if every_end is not None:
            require_choice("every_end", every_end, EVERY_END)
        self.spec = probe(env, params, name or type(env).__name__, every_end)
        leaves = self.spec.observations.leaves
        self.observation_size = sum(math.prod(leaf.shape) for leaf in leaves)
        space = self.spec.actions.space
        self.num_actions = int(getattr(space, "n", 0)) if not space.shape else 0
        self.metric_names = self.spec.metric_names

    @property
    def observation_space(self) -> spaces.Space:
        return self.spec.observations.space

    @property
    def action_space(self) -> spaces.Space:
        """The actions: integers from 0, or a Box of float32."""
        return self.spec.actions.space

    @property
    def about(self) -> str:
        """The environment's own description, on one line; may be empty."""
        return (inspect.getdoc(type(self.spec.env)) or "").partition("\n")[0]

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        observation, state = self.spec.env.reset(key, self.spec.params)
        return typed(self.spec.state, state), seen(self.spec.observations, observation)

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        spec, adapter = self.spec, self.spec.actions
        dtype = action_dtype(adapter)
        action = jnp.asarray(action).astype(dtype)
        if adapter.start is not None:
            action = action + adapter.start.astype(dtype)
        answer = spec.env.step_env(key, state, action, spec.params)
        observation, after, reward, terminated, *truncated, info = answer
        if not truncated:
            limit = spec.truncated
            truncated = [False if limit is None else limit(after, spec.params)]
        return typed(spec.state, after), Transition(
            observation=seen(spec.observations, observation),
            reward=scalar(reward, jnp.float32),
            terminated=scalar(terminated, jnp.bool_),
            truncated=scalar(truncated[0], jnp.bool_),
            metrics={name: scalar(info[name], jnp.float32) for name in self.metric_names},
        )

    def action_mask(self, state: EnvState) -> Array | None:
        return None if self.spec.action_mask is None else self.spec.action_mask(state)

    def render_image(self, state: Any, observation: Any) -> np.ndarray | None:
        return None if self.spec.render is None else self.spec.render(state)


def action_dtype(adapter: ActionAdapter) -> Any:
    """The type of an environment's actions in JAX; Gymnasium's is int64 for discrete actions."""
    return jnp.dtype(jnp.int32 if adapter.dtype.kind in "iu" else adapter.space.dtype)


def seen(adapter: ObservationAdapter, observation: Any) -> Observation:
    """An observation in the agent's form, as from `ObservationAdapter` in NumPy."""
    found = {}
    for leaf in adapter.leaves:
        value = observation
        for key in leaf.path:
            value = picked(value, key)
        value = jnp.asarray(value).astype(leaf.dtype).reshape(leaf.shape)
        found[leaf.name] = value if leaf.offset is None else value - leaf.offset.astype(leaf.dtype)
    return found if adapter.leaves[0].path else found[""]


def picked(value: Any, key: str | int) -> Any:
    """A part of an observation: an entry of a mapping or sequence, or a field of a dataclass."""
    if isinstance(key, int) or isinstance(value, Mapping):
        return value[key]
    return getattr(value, key)


def typed(types: Any, state: Any) -> Any:
    """A state with its leaves converted to the types of a tree.

    gymnax's environments begin with Python numbers, such as a time of 0, and continue with arrays.
    """

    def one(dtype: Any, leaf: Any) -> Any:
        return leaf if dtype is KEY else jax.lax.convert_element_type(leaf, dtype)

    return jax.tree.map(one, types, state)


def scalar(value: Any, dtype: Any) -> Array:
    """A single number, without its axes of length 1."""
    return jnp.asarray(value).astype(dtype).reshape(())


def probe(env: Any, params: Any, name: str, every_end: str | None) -> GymnaxSpec:
    """The facts that `GymnaxEnvironment` needs, from the shapes that the environment returns.

    Raises:
        UserError: see `GymnaxEnvironment`.
    """
    _check_interface(env, params, name)
    if params is None:
        params = env.default_params
    # Arrays, as in gymnax's own compiled `step`, with known values.
    params = jax.tree.map(jnp.asarray, params)
    observations = adapt_observation(converted(env.observation_space(params), name), name)
    actions = adapt_action(converted(env.action_space(params), name), name)
    key = jax.eval_shape(lambda: jax.random.key(0))
    first, opened = _shapes(f"{name}'s reset", lambda k: env.reset(k, params), key)
    answer = _shapes(
        f"{name}'s step_env",
        lambda k, state, action: env.step_env(k, state, action, params),
        key,
        opened,
        jax.ShapeDtypeStruct(actions.space.shape or (), action_dtype(actions)),
    )
    if len(answer) not in (5, 6):
        raise UserError(
            f"{name}'s step_env must return observation, state, reward, terminated and info, but "
            f"returned {len(answer)} values"
        )
    state = _state_types(opened, answer[1], name)
    limit = _limit(env) if len(answer) == 5 else None
    tells = limit is not None or len(answer) == 6
    if tells and every_end is not None:
        raise UserError(f"{name} separates terminations from time limits: leave out every_end")
    if not tells and every_end is None:
        raise UserError(f"{name} {OLD}")
    if limit is not None:
        _shapes(f"{name}'s is_truncated", lambda state: limit(state, params), answer[1])
    for when, observation in (("reset", first), ("step_env", answer[0])):
        _check_observation(observations, observation, f"{name}'s {when}")
    for what, value in zip(("reward", "terminated"), answer[2:4], strict=True):
        if np.prod(value.shape, dtype=int) != 1:
            raise UserError(f"{name}'s {what} must be one number, but has shape {value.shape}")
    more = (getattr(env, method, None) for method in ("action_mask", "render_state"))
    metrics = _metrics(answer[-1])
    return GymnaxSpec(name, env, params, observations, actions, state, limit, metrics, *more)


def converted(space: Any, name: str) -> spaces.Space:
    """A space of gymnax, or one with the same attributes, as Gymnasium's.

    Raises:
        UserError: it is not a Discrete, Box, Dict or Tuple.
    """
    if isinstance(space, gymnasium.Space):
        return space
    if hasattr(space, "spaces"):
        inner = space.spaces
        if isinstance(inner, Mapping):
            return spaces.Dict({key: converted(value, name) for key, value in inner.items()})
        return spaces.Tuple([converted(value, name) for value in inner])
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise UserError(f"{name} has the space {space!r}; supported are Box, Discrete, Dict, Tuple")
    shape, dtype = tuple(space.shape), np.dtype(space.dtype)
    dtype = np.dtype(np.float32) if dtype.kind == "f" else dtype
    bounds = [np.broadcast_to(np.asarray(bound), shape) for bound in (space.low, space.high)]
    if dtype.kind in "iu":  # infinite bounds of integers become those of the type
        limits = np.iinfo(dtype.type)
        bounds = [np.clip(bound, limits.min, limits.max) for bound in bounds]
    low, high = (np.array(bound).astype(dtype) for bound in bounds)
    return spaces.Box(low, high, shape, dtype.type)


def _check_interface(env: Any, params: Any, name: str) -> None:
    needed = NEEDED if params is not None else (*NEEDED, "default_params")
    for attribute in needed:
        if not hasattr(env, attribute):
            why = ""
            if attribute == "step_env" and hasattr(env, "step"):
                why = "; its step is not enough, because it opens the next episode at once"
            raise UserError(
                f"{name} does not follow gymnax's interface: {type(env).__name__} has no "
                f"{attribute}{why}"
            )


def _limit(env: Any) -> Callable[[Any, Any], Any] | None:
    """The environment's `is_truncated`; None if its ends already include the time limit."""
    terminal, terminated = (
        next((kind for kind in type(env).__mro__ if method in vars(kind)), None)
        for method in ("is_terminal", "is_terminated")
    )
    # Written for an older gymnax, where is_terminal had the limit, but with the new base class.
    older = False
    if terminal is not None and terminated is not None:
        older = terminal is not terminated and issubclass(terminal, terminated)
    limit = getattr(env, "is_truncated", None)
    return None if older or not callable(limit) else limit


def _shapes(what: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return jax.eval_shape(function, *args)
    except Exception as error:
        line = next(iter(str(error).splitlines()), "")
        raise UserError(f"{what} failed: {type(error).__name__}: {line}") from error


def _check_observation(adapter: ObservationAdapter, observation: Any, where: str) -> None:
    for leaf in adapter.leaves:
        found = observation
        for key in leaf.path:
            try:
                found = picked(found, key)
            except (LookupError, AttributeError, TypeError):
                raise UserError(f"{where} has no {leaf.name!r}, but its space has") from None
        label = f" {leaf.name}" if leaf.name else ""
        if np.prod(found.shape, dtype=int) != np.prod(leaf.raw_shape, dtype=int):
            raise UserError(
                f"{where} observes{label} in shape {found.shape}, but its space has "
                f"{leaf.raw_shape}"
            )
        whole = is_categorical(leaf.space) or leaf.dtype == np.uint8
        if whole and np.dtype(found.dtype).kind == "f":
            raise UserError(
                f"{where} observes{label} as {found.dtype}, but its space has {leaf.dtype}"
            )


def _state_types(opened: Any, stepped: Any, name: str) -> Any:
    """A tree of types for both the first state and the state after a step."""
    if jax.tree.structure(opened) != jax.tree.structure(stepped):
        raise UserError(
            f"{name}'s state changes its structure from reset to step_env: "
            f"{jax.tree.structure(opened)} and {jax.tree.structure(stepped)}"
        )

    def one(a: Any, b: Any) -> Any:
        if a.shape != b.shape:
            raise UserError(
                f"{name}'s state has a part of shape {a.shape} after reset, but {b.shape} after "
                "step_env"
            )
        if jnp.issubdtype(a.dtype, jax.dtypes.extended):
            return KEY
        return jnp.promote_types(a.dtype, b.dtype)

    return jax.tree.map(one, opened, stepped)


def _metrics(info: Any) -> tuple[str, ...]:
    if not isinstance(info, Mapping):
        return ()
    return tuple(
        sorted(
            name
            for name, value in info.items()
            if isinstance(name, str)
            and name not in NOT_METRICS
            and getattr(value, "shape", None) == ()
            and np.dtype(value.dtype).kind in "bifu"
        )
    )


def make_gymnax(name: str, options: Mapping[str, Any] | None = None) -> GymnaxEnvironment:
    """Builds an environment of gymnax, or one with its interface, such as those of bridges.

    Args:
        name: "PACKAGE:ID" for one of `PACKAGES`; or "gymnax:module:factory", which returns an
            environment, or one and its params like `gymnax.make`; the current folder is searched
            for modules too.
        options: keyword arguments of the environment's constructor (of the factory), and fields of
            its params; a name that is both goes to the constructor. Also `every_end`, see
            `GymnaxEnvironment`.

    Raises:
        UserError: an unknown id or option (with the nearest ones), a value of another kind than the
            default, a package that is missing or has another version, or an environment that
            `GymnaxEnvironment` refuses.
    """
    options = dict(options or {})
    factory, keywords = _factory(name)
    every_end = None if "every_end" in keywords else options.pop("every_end", None)
    own = {k: v for k, v in options.items() if k in keywords}
    env, params = _built(name, factory, own)
    fields = _fields(params)
    strange = [k for k in options if k not in keywords and k not in fields]
    if strange and not any(p.kind is p.VAR_KEYWORD for p in keywords.values()):
        known = [*_named(keywords), *fields, "every_end"]
        raise unknown_name(f"option of {name}", strange[0], known)
    if strange:
        own |= {k: options[k] for k in strange}
        env, params = _built(name, factory, own)
        fields = _fields(params)
    changed = {
        k: _as_default(f"{name}'s {k}", v, fields[k]) for k, v in options.items() if k not in own
    }
    if changed:
        replace = getattr(params, "_replace", None)  # of a NamedTuple
        params = replace(**changed) if replace else dataclasses.replace(params, **changed)
    return GymnaxEnvironment(env, params, name=name, every_end=every_end)


def gymnax_options(name: str) -> dict[str, Any]:
    """The options of an environment of gymnax, with their defaults.

    Raises:
        UserError: as `make_gymnax`.
    """
    factory, keywords = _factory(name)
    _, params = _built(name, factory, {})
    required = inspect.Parameter.empty
    own = {k: p.default for k, p in keywords.items() if k in _named(keywords)}
    own = {k: None if default is required else default for k, default in own.items()}
    fields = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in _fields(params).items()}
    return fields | own


def _factory(name: str) -> Factory:
    """The function that builds the environment, and its keyword arguments."""
    package, _, place = name.partition(":")
    if package != "gymnax":
        bridge = importlib.import_module(f"clew.bridges.{package}")
        return bridge.factory(place)
    if ":" in place:
        if place.startswith("gymnax."):
            import_package("gymnax")
        factory = resolve(place)
        return factory, parameters_of(factory)
    gymnax = import_package("gymnax")
    if place not in gymnax.registered_envs:
        raise unknown_name("gymnax environment", place, gymnax.registered_envs)
    factory = functools.partial(gymnax.make, place)
    return factory, parameters_of(type(_built(name, factory, {})[0]))


def _built(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """An environment and its params, or None if the factory returns no params."""
    try:
        made = call(name, factory, options)
    except OSError as error:  # MNISTBandit-bsuite fetches its pictures
        raise UserError(f"{name} could not be built: {error}") from error
    if isinstance(made, tuple) and len(made) == 2:
        return made
    return made, getattr(made, "default_params", None)


def _fields(params: Any) -> dict[str, Any]:
    """The settings in an environment's params by name; empty if they have no fields."""
    if dataclasses.is_dataclass(params):
        return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return {name: getattr(params, name) for name in getattr(params, "_fields", ())}


def _named(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The parameters that can be given by keyword."""
    unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, parameter in parameters.items() if parameter.kind not in unnamed]


def _as_default(what: str, value: Any, default: Any) -> Any:
    """A value converted to the kind of the default that it replaces.

    Raises:
        UserError: it has another kind or shape.
    """
    kind = np.asarray(default).dtype.kind
    if kind not in "biuf":
        return value
    try:
        given = np.asarray(value)
    except ValueError:  # lists of different lengths
        given = np.asarray(None)
    fits = given.dtype.kind in {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[kind]
    if not fits or given.shape != np.shape(default):
        kinds = {"b": "true or false", "i": "a whole number", "u": "a whole number"}
        expected = kinds.get(kind, "a number")
        if np.ndim(default):
            expected += f" for each of {np.shape(default)}"
        raise UserError(f"{what} must be {expected}, got {value!r}")
    if hasattr(default, "dtype"):
        return given.astype(default.dtype)
    return type(default)(value)
