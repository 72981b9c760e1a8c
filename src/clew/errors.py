"""Errors that a user can mend, worded so that the mending is obvious."""

import difflib
import errno
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol


class UserError(ValueError):
    """A mistake in what the user asked for, not a fault of the library.

    The message names the value, what was expected and, for names, the nearest valid one. The
    command line prints it without a traceback and exits with code 2.
    """


class Settings(Protocol):
    """A group of settings: a frozen dataclass, that says what is wrong with its values."""

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """


class StoppedAtOnce(KeyboardInterrupt):
    """Ctrl-C that waits for nothing: the second one of a training, or that of another command."""


def system_error(error: OSError) -> str:
    """What the operating system refused, as one line: the file and the true cause."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    cause = error.strerror or " ".join(str(error).split()) or type(error).__name__
    if error.errno == errno.EMFILE:
        cause += " (more are allowed after `ulimit -n 4096`)"
    return ": ".join([" -> ".join(names), cause] if names else [cause])


def together(*checks: Callable[[], object]) -> None:
    """Makes every check, so that all mistakes are said at once.

    Raises:
        UserError: the only mistake, or all of them, one a line.
    """
    found: dict[str, UserError] = {}
    for check in checks:
        try:
            check()
        except UserError as mistake:
            found |= {line: mistake for line in str(mistake).split("\n  ")}
    if len({*map(id, found.values())}) > 1:
        raise UserError("\n  ".join(found))
    for mistake in found.values():
        raise mistake


def notes_of(error: BaseException) -> list[str]:
    """What was added to an exception, but for JAX's line on the frames that it left out."""
    notes: list[str] = vars(error).get("__notes__", [])
    return [note for note in notes if "JAX_TRACEBACK_FILTERING" not in note]


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural if needed."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(value: Any, length: int = 60) -> str:
    """The start of a value as Python writes it, on one line, for messages."""
    return " ".join(repr(value).split())[:length]


def unknown_name(kind: str, name: Any, valid: Iterable[str]) -> UserError:
    """Builds the error for a name that is not among the valid ones.

    Args:
        kind: what is named, as a noun: "memory", "environment", "option of lstm".
        name: the name as given.
        valid: every name that would have been accepted.

    Returns:
        The error to raise; its message has the nearest valid names, if any is near.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    near = [n for n in names if n.lower() == str(name).lower()] or near
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ";"
    known = ", ".join(names) if names else "none"
    return UserError(f"unknown {kind} {name!r}{hint} known: {known}")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raises `UserError` unless `value` is one of `choices`."""
    options = list(choices)
    if value not in options:
        raise unknown_name(f"value of {name}", value, options)


LARGEST = 2**31 - 1
"""The largest count or size: compiled programs count in 32 bits."""
LARGEST_SIZE = 2**20
"""The largest size of a vector between two layers: a matrix between two of them takes 4 TB."""
DEEPEST = 256
"""The most layers of a memory, and steps within one: each is compiled, and takes its time."""
MOST_PARTS = 1024
"""The most heads of attention, and intervals of AReLiT's approximation: each has its own."""
LONGEST_EPISODE = 2**24
"""The most steps of an episode: up to here single precision counts them one by one."""


def require_at_least(name: str, value: Any, minimum: int, maximum: int = LARGEST) -> None:
    """Raises `UserError` unless `value` is an integer of at least `minimum`, `maximum` at most."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    if value > maximum:
        raise UserError(f"{name} must be at most {maximum}, got {value!r}")


def require_rate(name: str, value: Any, *, positive: bool = False) -> None:
    """Raises `UserError` unless `value` is a finite number, at least (or above) zero."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):
        bound = "above 0" if positive else "of at least 0"
        raise UserError(f"{name} must be a finite number {bound}, got {value!r}")


def require_fraction(name: str, value: Any) -> None:
    """Raises `UserError` unless `value` is a finite number in [0, 1]."""
    require_rate(name, value)
    if value > 1:
        raise UserError(f"{name} must be between 0 and 1, got {value!r}")


def require_episodes(episodes: Any, max_steps: Any, seed: Any) -> None:
    """Raises `UserError` unless there are episodes, steps and a seed to play with."""
    require_at_least("episodes", episodes, 1)
    require_at_least("max_steps", max_steps, 1)
    require_at_least("seed", seed, 0, 2**63)


def parameters_of(called: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class or function by name; empty if it does not tell."""
    try:
        return inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}


def check_call(name: str, called: Callable[..., Any], /, *args: Any, **options: Any) -> None:
    """Refuses options that something named by a user does not take.

    Raises:
        UserError: for an unknown option, with the nearest ones, or one that is missing.
    """
    parameters = parameters_of(called).values()
    if not parameters:
        return
    signature = inspect.signature(called)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for option in options:
            if option not in signature.parameters:
                rest = list(parameters)[len(args) :]
                variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
                known = [p.name for p in rest if p.name != "key" and p.kind not in variadic]
                raise unknown_name(f"option of {name}", option, known)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        raise UserError(f"{name} cannot be called with what it is given: {error}") from error
