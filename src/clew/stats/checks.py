"""Checks of scores and levels, in one place so that all error messages read alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from clew.errors import UserError, require_at_least

Samples = Sequence[float] | Float[np.ndarray, " seeds"]
Scores = Sequence[Sequence[float]] | Float[np.ndarray, "seeds tasks"]

ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a mean or a difference, relative to the values


def require_confidence(confidence: float) -> float:
    """Returns the confidence; raises `UserError` unless it is above 0 and below 1."""
    return require_inside("confidence", confidence)


def require_successes(successes: int, trials: int) -> None:
    """Checks a number of successes and of trials, which are at least one."""
    require_at_least("trials", trials, 1)
    require_at_least("successes", successes, 0)
    if successes > trials:
        raise UserError(f"successes must be at most trials ({trials}), got {successes}")


def require_inside(name: str, value: float) -> float:
    """Returns `value`; raises `UserError` unless it is above 0 and below 1."""
    if not 0 < value < 1:
        raise UserError(f"{name} must be above 0 and below 1, got {value!r}")
    return value


def require_samples(name: str, values: Any, minimum: int = 2) -> Float[np.ndarray, " seeds"]:
    """Finite numbers, one for each seed, as float64.

    Args:
        name: the name of the values in the message.
        values: as the user gave them.
        minimum: number of values; 2 where a spread is needed, which one seed does not have.

    Raises:
        UserError: for another shape, for too few values, or for one that is not finite.
    """
    data = _numbers(name, values)
    if data.ndim != 1 or data.size < minimum:
        each = f" for each of at least {minimum} seeds" if minimum > 1 else " or more"
        raise UserError(f"{name} must be a list with one number{each}, got shape {data.shape}")
    return _finite(name, data)


def require_scores(name: str, scores: Any) -> Float[np.ndarray, "seeds tasks"]:
    """A finite table of scores, seeds by tasks, as float64.

    Args:
        name: the name of the scores in the message.
        scores: as the user gave them.

    Raises:
        UserError: for another shape, a single seed, no task, or a score that is not finite.
    """
    data = _numbers(name, scores)
    if data.ndim != 2 or data.shape[0] < 2 or data.shape[1] < 1:
        hint = "; for a single task write scores[:, None]" if data.ndim == 1 else ""
        raise UserError(
            f"{name} must be an array [seeds, tasks] with at least 2 seeds and one task, "
            f"got shape {data.shape}{hint}"
        )
    return _finite(name, data)


def require_tables(scores: Any) -> Float[np.ndarray, "*batch seeds tasks"]:
    """Finite scores whose last two axes are seeds and tasks, as float64.

    Raises:
        UserError: for fewer axes, an empty array, or a score that is not finite.
    """
    data = _numbers("scores", scores)
    if data.ndim < 2 or data.size == 0:
        raise UserError(
            f"scores must be an array [..., seeds, tasks] that is not empty, got shape {data.shape}"
        )
    return _finite("scores", data)


def generator(seed: int) -> np.random.Generator:
    """The random generator of a resampling; raises `UserError` for an invalid seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise UserError(f"seed must be an integer of at least 0, got {seed!r}") from error


def _numbers(name: str, values: Any) -> np.ndarray:
    if np.ma.is_masked(values):
        raise UserError(f"{name} must have no masked numbers, which would count as scores")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be numbers in equally long rows, got {values!r}") from error


def _finite(name: str, data: np.ndarray) -> np.ndarray:
    finite = np.isfinite(data)
    if not np.all(finite):
        at = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise UserError(f"{name} must be finite, got {data[at]} at {list(at)}")
    return data
