"""Errors that a user can fix, with messages that say how."""

import difflib
import errno
import inspect
import math
import numbers
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Protocol, Self

from clew.other_names import instead, meanings, note


class UserError(ValueError):
    """A mistake in what the user asked for, not a fault of the library.

    The message names the value, what was expected and, for names, the nearest valid one. The
    command line prints it without a traceback and exits with code 2.
    """


class Settings(Protocol):
    """A group of settings: a frozen dataclass that checks its own values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Refuses an unknown setting; the error has its name here, or the nearest ones."""
        for name in settings.keys() - cls.__dataclass_fields__.keys():
            raise unknown_setting(f"setting of {cls.__name__}", name, cls.__dataclass_fields__)
        return super().__new__(cls)

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """


class StoppedAtOnce(KeyboardInterrupt):
    """An immediate stop by Ctrl-C: the second one in a training, the first in other commands."""


def system_error(error: OSError) -> str:
    """An error of the operating system on one line: the file and the cause."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    cause = error.strerror or " ".join(str(error).split()) or type(error).__name__
    if error.errno == errno.EMFILE:
        cause += " (more are allowed after `ulimit -n 4096`)"
    return ": ".join([" -> ".join(names), cause] if names else [cause])


def together(*checks: Callable[[], object]) -> None:
    """Makes every check, so that all mistakes are reported at once.

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
    """The notes of an exception, except JAX's remark on the frames that it filtered out."""
    notes: list[str] = vars(error).get("__notes__", [])
    return [note for note in notes if "JAX_TRACEBACK_FILTERING" not in note]


LIBRARIES = (
    os.path.dirname(__file__),
    *(f"{os.sep}site-packages{os.sep}{package}{os.sep}" for package in ("equinox", "jax")),
)
"""Folders whose frames are left out of the traceback of a user's code."""


def last_line(error: BaseException) -> str:
    """The type and the message of an exception, on one line."""
    said = " ".join("".join(traceback.format_exception_only(error)).split())
    return said.partition(" -------------------- For simplicity, JAX")[0]


def own_traceback(error: BaseException) -> str:
    """The traceback of a user's code without the libraries' frames that lead to it.

    Empty if no frame is the user's.
    """
    trace = error.__traceback__
    while trace is not None and any(
        folder in trace.tb_frame.f_code.co_filename for folder in LIBRARIES
    ):
        trace = trace.tb_next
    if trace is None:
        return ""
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def raised(name: str, when: str, error: BaseException) -> UserError:
    """The error for user code that raised an exception, with the code's traceback as a note."""
    hint = ""
    if isinstance(error, FrozenInstanceError):
        hint = (
            "; an Equinox module declares its fields in the class (rate: Array) and sets them in "
            "__init__ alone"
        )
    failed = UserError(f"{name} raised {when}: {last_line(error)}{hint}")
    if trace := own_traceback(error):
        failed.add_note(trace)
    return failed


def shapes_of(values: Any) -> str:
    """Types and shapes within their containers, for messages: "('float32[3]',)"."""
    import jax  # start: Gymnasium's workers and the command line start without JAX
    import jax.numpy as jnp  # start: as above

    def one(leaf: Any) -> str:
        try:
            return f"{jnp.result_type(leaf).name}{list(jnp.shape(leaf))}"
        except TypeError:
            return repr(leaf)

    return str(jax.tree.map(one, values))


def tracing_hint(error: Exception) -> str:
    """A hint for common mistakes that JAX reports in its own terms."""
    hints = {
        "TracerBoolConversionError": "jnp.where(condition, a, b) in place of if",
        "TracerArrayConversionError": "jax.numpy in place of NumPy",
    }
    hint = hints.get(type(error).__name__)
    return f" (compiled code has {hint})" if hint else ""


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural if needed."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(value: Any, length: int = 60) -> str:
    """The start of a value as Python writes it, on one line, for messages."""
    return " ".join(repr(value).split())[:length]


def unknown_setting(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """As `unknown_name`; for another library's name, the error has the setting's name here."""
    valid = [*valid]
    for meant in meanings(name):
        if meant in valid:
            return UserError(f"unknown {kind} {name!r}: clew calls it {meant}{note(name, meant)}")
    if said := instead(name):
        return UserError(f"unknown {kind} {name!r}: {said}")
    return unknown_name(kind, name, valid)


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
"""The largest count or size, because compiled programs count in 32 bits."""
LARGEST_SIZE = 2**20
"""The largest layer width: a weight matrix between two layers of this width takes 4 TB."""
DEEPEST = 256
"""The most layers of a memory, and steps within a layer: compile time grows with each."""
MOST_PARTS = 1024
"""The most attention heads, and intervals of AReLiT's approximation."""
LONGEST_EPISODE = 2**24
"""The most steps of an episode: single precision represents every integer up to here."""


def require_at_least(name: str, value: Any, minimum: int, maximum: int = LARGEST) -> None:
    """Raises `UserError` unless `value` is an integer from `minimum` to `maximum`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, int):
        raise UserError(f"{name} must be a Python number: int(...), got {value!r}")
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    if value > maximum:
        raise UserError(f"{name} must be at most {maximum}, got {value!r}")


def require_finite(name: str, value: Any) -> None:
    """Raises `UserError` unless `value` is a finite Python number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, got {value!r}")


def require_rate(name: str, value: Any, *, positive: bool = False) -> None:
    """Raises `UserError` unless `value` is a finite number, at least (or above) zero."""
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        raise UserError(f"{name} must be a Python number: float(...), got {value!r}")
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
    """Raises `UserError` unless episodes, steps and seed are valid."""
    require_at_least("episodes", episodes, 1)
    require_at_least("max_steps", max_steps, 1)
    require_at_least("seed", seed, 0, 2**63)


def parameters_of(called: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class or function by name; empty if it has no signature."""
    try:
        return inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}


def check_call(name: str, called: Callable[..., Any], /, *args: Any, **options: Any) -> None:
    """Refuses options that a class or function named by a user does not take.

    Raises:
        UserError: for an unknown option, with the nearest ones, for a missing one, or for text
            given to a flag, since any text would count as True.
    """
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for option in options:
            if option == "key" and option not in signature.parameters:
                raise UserError(
                    f"{name}{signature} takes no key: it is called with key=..., a random key for "
                    "its weights, and with its options by name"
                )
            if option not in signature.parameters:
                rest = list(parameters)[len(args) :]
                variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
                known = [p.name for p in rest if p.name != "key" and p.kind not in variadic]
                raise unknown_name(f"option of {name}", option, known)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        raise UserError(f"{name} cannot be called with these arguments: {error}") from error
    for parameter in parameters:
        given = options.get(parameter.name)
        if isinstance(given, str) and parameter.annotation in (bool, "bool"):
            raise UserError(f"{parameter.name} of {name} must be True or False, got {given!r}")


def call_own(name: str, called: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """Calls a class or function that a user may have written; errors are re-raised with its name.

    Raises:
        UserError: as `check_call`, or with the traceback of the user's code as a note.
    """
    check_call(name, called, *args, **options)
    try:
        return called(*args, **options)
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            raise UserError(f"{name} does not take these options: {error}") from error
        raise raised(name, "while it was built", error) from error
