"""Checks a user's task before training compiles it."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import PyTree

from clew.envs.base import Environment, Transition
from clew.errors import UserError, raised, shapes_of, tracing_hint


def require_task(name: str, task: Environment) -> None:
    """Refuses a task whose `reset` or `step` returns what training cannot compile.

    Only shapes are computed.

    Raises:
        UserError: naming what is wrong and what was expected, or the exception that the task
            raised, with its traceback as a note.
    """
    wrong: list[str] = []
    when = "when asked for its spaces"

    def episode(key: Any) -> None:
        nonlocal when
        action = jnp.asarray(task.action_space.sample())
        when = "in reset(key)"
        opened = task.reset(key)
        wrong.extend(_wrong_opening(task, opened))
        if wrong:
            return
        when = "in step(state, action, key)"
        state = jax.tree.map(jnp.asarray, opened[0])
        wrong.extend(_wrong_step(task, state, task.step(state, action, key)))

    try:
        eqx.filter_eval_shape(episode, jax.random.key(0))
    except UserError:
        raise
    except Exception as error:
        raise raised(name, when + tracing_hint(error), error) from error
    if wrong:
        raise UserError(f"{name} cannot be trained on: {wrong[0]}")


def _wrong_opening(task: Environment, opened: Any) -> Iterator[str]:
    if not isinstance(opened, tuple) or len(opened) != 2:
        yield f"reset returns {_shapes(opened)}, expected a tuple of state and observation"
        return
    yield from _unlike("reset", "the observation", opened[1], task.observation_space)


def _wrong_step(task: Environment, state: Any, returned: Any) -> Iterator[str]:
    if not isinstance(returned, tuple) or len(returned) != 2:
        yield f"step returns {_shapes(returned)}, expected a tuple of state and Transition"
        return
    after, transition = returned
    if not isinstance(transition, Transition):
        yield f"step returns a state and {_shapes(transition)}, expected a Transition after it"
        return
    if _shapes(after) != _shapes(state):
        yield f"the state becomes {_shapes(after)}, expected {_shapes(state)} as it began"
    yield from _unlike("step", "the observation", transition.observation, task.observation_space)
    if jnp.shape(transition.reward) != ():
        yield f"the reward has shape {list(jnp.shape(transition.reward))}, expected one number"
    for name in ("terminated", "truncated"):
        ended = getattr(transition, name)
        python = isinstance(ended, bool)
        if python or _shapes(ended) != "bool[]":
            written = f"{ended} of Python" if python else _shapes(ended)
            yield f"{name} is {written}, expected an array bool[], such as jnp.asarray(False)"
    missing = set(task.metric_names) - set(transition.metrics)
    if missing:
        yield f"the metrics lack {sorted(missing)[0]!r}, which metric_names has"


def _unlike(where: str, what: str, value: Any, space: spaces.Space) -> Iterator[str]:
    """How an observation differs from its space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space):
            yield f"{what} of {where} is {_shapes(value)}, expected a dict of {sorted(space)}"
            return
        for entry, part in space.items():
            yield from _unlike(where, f"entry {entry!r}", value[entry], part)
    elif isinstance(value, list | tuple | dict) or jnp.shape(value) != space.shape:
        expected = f"an array of shape {list(space.shape or ())}, as its space says"
        yield f"{what} of {where} is {_shapes(value)}, expected {expected}"


def _shapes(value: PyTree) -> str:
    return shapes_of(value).replace("'", "")
