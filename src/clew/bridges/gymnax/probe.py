"""Finding out about an environment behind gymnax's interface, without computing anything."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.spaces import (
    ObservationAdapter,
    adapt_action,
    adapt_observation,
    is_categorical,
)
from clew.bridges.gymnax.env import NOT_METRICS, Foreign, action_dtype, picked
from clew.errors import UserError

NEEDED = ("reset", "step_env", "observation_space", "action_space")
OLD = (
    "says only `done`, as before gymnax 1.0, which does not tell a time limit from an end: give it "
    "is_terminated(state, params) and is_truncated(state, params), or count every end as a "
    "termination with the option every_end=terminated"
)


def probe(env: Any, params: Any, name: str, every_end: str | None) -> Foreign:
    """What `GymnaxEnvironment` needs to know, from the shapes that the environment answers.

    Raises:
        UserError: see `GymnaxEnvironment`.
    """
    _check_interface(env, params, name)
    if params is None:
        params = env.default_params
    # Arrays, as gymnax's own compiled `step` sees them, and of known values.
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
            f"{name}'s step_env must answer observation, state, reward, terminated and info, it "
            f"answered {len(answer)} values"
        )
    state, limit = _state_types(opened, answer[1], name), None
    if every_end is None and len(answer) == 5:
        limit = _limit(env, name)
        _shapes(f"{name}'s is_truncated", lambda state: limit(state, params), answer[1])
    for when, observation in (("reset", first), ("step_env", answer[0])):
        _check_observation(observations, observation, f"{name}'s {when}")
    for what, value in zip(("reward", "terminated"), answer[2:4], strict=True):
        if np.prod(value.shape, dtype=int) != 1:
            raise UserError(f"{name}'s {what} must be one number, it has shape {value.shape}")
    return Foreign(name, env, params, observations, actions, state, limit, _metrics(answer[-1]))


def converted(space: Any, name: str) -> spaces.Space:
    """Gymnasium's form of a space of gymnax, or of one that looks like it.

    Raises:
        UserError: it is none of Discrete, Box, Dict and Tuple.
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
    if dtype.kind in "iu":  # an infinite bound of whole numbers is the type's own
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
                why = "; its step alone will not do, which opens the next episode at once"
            raise UserError(
                f"{name} does not follow gymnax's interface: {type(env).__name__} has no "
                f"{attribute}{why}"
            )


def _limit(env: Any, name: str) -> Callable[[Any, Any], Any]:
    """The environment's `is_truncated`, unless its ends hold the time limit already."""
    terminal, terminated = (_definer(env, m) for m in ("is_terminal", "is_terminated"))
    # Written for an older gymnax upon the base class of this one: is_terminal had the limit.
    older = False
    if terminal is not None and terminated is not None:
        older = terminal is not terminated and issubclass(terminal, terminated)
    if older or not callable(getattr(env, "is_truncated", None)):
        raise UserError(f"{name} {OLD}")
    return env.is_truncated


def _definer(env: Any, method: str) -> type | None:
    """The class that defines a method of an environment, None if there is none."""
    return next((kind for kind in type(env).__mro__ if method in vars(kind)), None)


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
                raise UserError(f"{where} observes no {leaf.name!r}, its space says so") from None
        label = f" {leaf.name}" if leaf.name else ""
        if np.prod(found.shape, dtype=int) != np.prod(leaf.raw_shape, dtype=int):
            raise UserError(
                f"{where} observes{label} in shape {found.shape}, its space says {leaf.raw_shape}"
            )
        whole = is_categorical(leaf.space) or leaf.dtype == np.uint8
        if whole and np.dtype(found.dtype).kind == "f":
            raise UserError(
                f"{where} observes{label} as {found.dtype}, its space says {leaf.dtype}"
            )


def _state_types(opened: Any, stepped: Any, name: str) -> Any:
    """A tree of the types that hold both the opening state and what a step makes of it."""
    if jax.tree.structure(opened) != jax.tree.structure(stepped):
        raise UserError(
            f"{name}'s state changes its structure from reset to step_env: "
            f"{jax.tree.structure(opened)} and {jax.tree.structure(stepped)}"
        )

    def one(a: Any, b: Any) -> Any:
        if a.shape != b.shape:
            raise UserError(
                f"{name}'s state has a part of shape {a.shape} after reset and {b.shape} after "
                "step_env"
            )
        if jnp.issubdtype(a.dtype, jax.dtypes.extended):
            return None
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
