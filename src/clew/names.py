"""User code by a name that every process can resolve: "package.module:name"."""

import contextlib
import importlib
import inspect
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

from clew.errors import UserError, one_line, unknown_name, unknown_setting
from clew.other_names import OTHER_NAMES

T = TypeVar("T")


class ScriptWarning(UserWarning):
    """A name refers to something that only the running script defines."""


BARE = "observation"
"""Key of an observation without a name, in a dict."""
MASK = "action_mask"
"""Name of the action mask in an observation, and in Gymnasium's `info`."""
METRICS = ("return", "length")
"""The metrics of every episode."""
PACKAGES = {
    "minigrid": "minigrid",
    "popgym": "popgym",
    "ale_py": "ale-py",
    "mujoco": "mujoco",
    "Box2D": "'gymnasium[box2d]'",
    "memory_maze": "'clew[memory-maze]'",
    "memory_gym": "--no-deps memory-gym",
    "gymnax": "'clew[jaxenvs]'",
}
"""The package to install for a module, where the two names differ."""
GYM = "gym"
"""The package that Gymnasium succeeds."""
SCRIPT = "__main__"
"""The module of the running script, which no other process can import."""


_importing: list[str] = []
"""The user's modules that are being imported now."""


@contextlib.contextmanager
def importing(name: str) -> Iterator[None]:
    """Marks a module as being imported for its definitions."""
    _importing.append(name)
    try:
        yield
    finally:
        _importing.remove(name)


def refuse_while_importing() -> None:
    """Raises `UserError` if a module that is imported for its definitions starts a training."""
    if _importing:
        raise UserError(
            f"{_importing[-1]} is imported for its definitions, but starts a training on import: "
            'put the training under if __name__ == "__main__":'
        )


def resolve(reference: str) -> Callable[..., Any]:
    """The callable that "package.module:name" names; the current folder is searched first.

    Raises:
        UserError: if the module cannot be imported, with the searched places or the failing line;
            if it has no such name, or if the object is not callable.
    """
    return resolve_kind(reference, Callable)


def resolve_kind(reference: str, kind: Any) -> Any:
    """The object that "package.module:name" names, checked to be an instance of `kind`.

    Raises:
        UserError: as `resolve`.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise UserError(f"expected package.module:name, got {reference!r}")
    module = import_own(module_name, reference)
    try:
        found = operator.attrgetter(name)(module)
    except AttributeError:
        found = None
    if found is not None and not isinstance(found, kind) and kind is Callable:
        raise UserError(
            f"{reference} is {one_line(found)}, of {type(found).__name__}; expected a class, or a "
            "function that makes one"
        )
    if not isinstance(found, kind):
        fitting = {n: value for n, value in vars(module).items() if isinstance(value, kind)}
        own = [n for n, value in fitting.items() if value.__module__ == module.__name__]
        public = [n for n in own or fitting if not n.startswith("_")]
        raise unknown_name(f"name in {module_name}", name, public)
    return found


def find(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of a registry under a name, or else the object that "package.module:name" names.

    Args:
        kind: what is named, as a noun: "memory", "environment".
        name: a key of the registry, or a reference as for `resolve`.
        registry: the library's own, by name.

    Raises:
        UserError: for an unknown name, with the nearest ones, or as `resolve`.
    """
    if name in registry:
        return registry[name]
    if ":" not in name:
        raise unknown_or_own(kind, name, registry)
    found: Any = resolve(name)
    return found


def unknown_or_own(kind: str, name: str, registry: Iterable[str]) -> UserError:
    """The error for an unknown name: it says how "module.name" is written, what another library's
    name is called here, or which names are nearest."""
    module, _, attribute = name.rpartition(".")
    if module and attribute != "py":
        return UserError(f"unknown {kind} {name!r}; your own is written {module}:{attribute}")
    if OTHER_NAMES.get(name, "") in registry:
        return unknown_setting(kind, name, registry)
    return unknown_name(kind, name, registry)


def is_reference(name: str) -> bool:
    """Whether a name says where its code is: "package.module:name"."""
    return ":" in name


def reference_to(found: Any) -> str | None:
    """The "package.module:name" that names a class or function in this process.

    Returns:
        The reference, with the module `SCRIPT` for objects that the running script defines; None if
        no reference leads to the object, as for a class defined in a function.
    """
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return None
    module, name = sys.modules.get(found.__module__), found.__qualname__
    try:
        same = operator.attrgetter(name)(module) is found
    except AttributeError:
        same = False
    return f"{found.__module__}:{name}" if same else None


def recorded_name(kind: str, found: Any) -> str:
    """The name under which settings record a class or function that is given as an object.

    A name that the running script defines is valid in that script alone; a `ScriptWarning` says so.

    Raises:
        UserError: if no name leads to the object, so that a run could not find it again.
    """
    reference = reference_to(found)
    if reference is None:
        raise UserError(
            f"the {kind} must be a name, or a class at the top of a module, which a run can record "
            f"as package.module:Class; got {one_line(found, 80)}"
        )
    if reference.startswith(f"{SCRIPT}:"):
        warnings.warn(script_alone(kind, found.__qualname__), ScriptWarning, stacklevel=4)
    return reference


def script_alone(kind: str, name: str) -> str:
    """The warning for something that only the running script defines."""
    return (
        f"the {kind} {name} is known to this script alone: its runs can be resumed and evaluated "
        f"here and nowhere else; define it in a module to name it module:{name}"
    )


def import_own(name: str, reference: str, folder: str = "") -> ModuleType:
    """Imports a module of the user.

    The folder stays last on Python's path, for later imports of the module and for worker
    processes, which inherit it.

    Args:
        name: of the module.
        reference: the name that it is imported for, for messages.
        folder: the one to search first; by default the current folder.

    Raises:
        UserError: with the searched places, or the line of its code that fails.
    """
    what = f"cannot import {name!r} of {reference!r}"
    stem = os.path.basename(name.removesuffix(".py"))
    if name.endswith(".py") or "/" in name or os.sep in name:
        raise UserError(f"{what}: the file {stem}.py is the module {stem}, so name it {stem}:...")
    here = folder or os.getcwd()
    sys.path.insert(0, here)
    try:
        with importing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        if absent.partition(".")[0] in (*PACKAGES, GYM):
            raise UserError(f"{reference} needs {install_hint(absent)}") from error
        if absent and (name == absent or name.startswith(f"{absent}.")):
            raise UserError(
                f"{what}: there is no module {absent}; looked for {absent}.py in {here} "
                "and in the folders of Python's path (PYTHONPATH adds one)"
            ) from error
        raise UserError(f"{what}: {failed_import(error)}") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {failed_import(error)}") from error
    finally:
        sys.path.remove(here)
        if here not in sys.path and "" not in sys.path:
            sys.path.append(here)


def install_hint(module: str) -> str:
    """A missing module and how to get it, for messages."""
    top = module.partition(".")[0]
    if top == GYM:
        return (
            "gym, whose successor is Gymnasium: write import gymnasium as gym (reset then gives "
            "observation and info, step five values)"
        )
    if top in PACKAGES:
        return f"{top}: pip install {PACKAGES[top]}"
    return (
        f"the module {module!r}, which is missing: install its package, or start in the folder "
        "that has it"
    )


def failed_import(error: BaseException) -> str:
    """The exception that a module raised on import, and its place, on one line.

    Args:
        error: as it was caught.
    """
    said = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):
        return said  # it has file and line
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{said} ({place.filename}, line {place.lineno})"
