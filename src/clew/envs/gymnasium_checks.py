"""What the Gymnasium forms refuse, in the same words."""

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete

from clew.errors import UserError, unknown_name

RENDER_MODES = ["ansi"]


def require_render_mode(mode: Any, modes: list[str] = RENDER_MODES) -> None:
    """Raises `UserError` unless `mode` is None or one of `modes`."""
    if mode not in (None, *modes):
        raise unknown_name("render_mode", mode, modes)


def require_running(running: bool) -> None:
    """Raises `ResetNeeded` unless an episode is running."""
    if not running:
        raise ResetNeeded("the episode has not begun or has ended: call reset() before step()")


def require_action(env: Env, action: Any, meanings: str) -> int:
    """The action as an integer; raises `UserError` unless it is one of `env`'s."""
    space = env.action_space
    assert isinstance(space, Discrete)
    if not space.contains(action):
        raise UserError(
            f"action must be an integer from 0 to {space.n - 1} ({meanings}), got {action!r}"
        )
    return int(action)


def known_options(
    options: dict[str, Any] | None, task: str, names: Iterable[str]
) -> dict[str, Any]:
    """The options given to `reset`; raises `UserError` for one that is not among `names`."""
    options = {} if options is None else options
    for name in options:
        if name not in names:
            raise unknown_name(f"reset option of the {task}", name, names)
    return options


def forced_context(given: Any, drawn: np.ndarray) -> np.ndarray:
    """The bits given, or those drawn; raises `UserError` unless they are bits, and as many."""
    if given is None:
        return drawn.copy()
    bits = _integers(given)
    if bits is None or len(bits) != len(drawn) or not set(bits) <= {0, 1}:
        raise UserError(f"context must be num_bits {len(drawn)} bits, each 0 or 1, got {given!r}")
    return np.array(bits, np.int32)


def forced_query(given: Any, drawn: int, num_bits: int) -> int:
    """The query given, or the one drawn; raises `UserError` unless there is such a bit."""
    if given is None:
        return drawn
    query = _integers([given])
    if query is None or not 0 <= query[0] < num_bits:
        raise UserError(
            f"query must be the index of a bit, an integer from 0 to {num_bits - 1}, got {given!r}"
        )
    return query[0]


def forced_times(given: Any, drawn: np.ndarray, memory_length: int) -> np.ndarray:
    """The times given, or those drawn; raises `UserError` unless there are such times, in order,
    all different, and as many."""
    if given is None:
        return drawn
    times = _integers(given)
    different = times is not None and times == sorted(set(times)) and len(times) == len(drawn)
    if times is None or not different or times[0] < 0 or times[-1] >= memory_length:
        raise UserError(
            f"times must be num_bits {len(drawn)} different integers from 0 to "
            f"{memory_length - 1}, in order, got {given!r}"
        )
    return np.array(times)


def _integers(value: Any) -> list[int] | None:
    """The value as a list of integers, or None if it is no sequence of such."""
    if not isinstance(value, list | tuple | np.ndarray):
        return None
    whole = all(isinstance(v, numbers.Integral) and not isinstance(v, bool) for v in value)
    return [int(v) for v in value] if whole else None
