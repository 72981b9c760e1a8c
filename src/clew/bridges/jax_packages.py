"""Packages of environments written in JAX: their versions, installation and builders."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, NamedTuple

from clew.errors import UserError

Factory = tuple[Callable[..., Any], Mapping[str, inspect.Parameter]]
"""A function that builds an environment with gymnax's interface, and its keyword arguments."""


class Package(NamedTuple):
    """A package that clew was tested with."""

    versions: tuple[int, int]
    """The first two numbers of the versions with the expected interface."""
    extra: str
    """The extra of clew that installs it."""


PACKAGES = {
    "gymnax": Package((1, 0), "jaxenvs"),
    "xminigrid": Package((0, 9), "xminigrid"),
    "craftax": Package((1, 6), "craftax"),
    "brax": Package((0, 14), "brax"),
    "jumanji": Package((1, 1), "jumanji"),
}


def is_packaged(name: str) -> bool:
    """Whether a task's name belongs to one of these packages: "xminigrid:ID"."""
    package, colon, _ = name.partition(":")
    return bool(colon) and package in PACKAGES


def import_package(name: str, module: str = "") -> Any:
    """A package, or a module of it, of a version that clew works with.

    Args:
        name: one of `PACKAGES`.
        module: of the package; by default the package itself.

    Raises:
        UserError: it is missing, or has another version.
    """
    package = PACKAGES[name]
    install = f"pip install 'clew[{package.extra}]'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None  # missing, or on the path without an installation
    if version is not None:
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers != package.versions:
            wanted = ".".join(map(str, package.versions))
            raise UserError(f"clew works with {name} {wanted}, got {version}: {install}")
    try:
        return importlib.import_module(module or name)
    except ModuleNotFoundError as error:
        raise UserError(f"{name} environments need {error.name}: {install}") from error


def keywords_of(defaults: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """Keyword arguments with their defaults, as in a signature."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return {n: inspect.Parameter(n, kind, default=value) for n, value in defaults.items()}


def plain_options(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function whose defaults can be written in a settings file."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, bool | int | float | str)
    }
