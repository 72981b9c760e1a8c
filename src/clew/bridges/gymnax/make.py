"""From "gymnax:ID" or "gymnax:module:factory" to an environment, or a line why not."""

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import numpy as np

from clew.bridges.gymnasium.build import call, find_factory, missing_module, parameters_of
from clew.bridges.gymnax.env import GymnaxEnvironment
from clew.errors import UserError, unknown_name

GYMNAX = "gymnax:"
INSTALL = "pip install 'clew[jaxenvs]'"
VERSIONS = (1, 0)
"""Of gymnax: those whose first two numbers are these."""


def make_gymnax(name: str, options: Mapping[str, Any] | None = None) -> GymnaxEnvironment:
    """Builds an environment of gymnax, or one that follows its interface.

    Args:
        name: "gymnax:ID", or "gymnax:module:factory", which returns an environment, or one and
            its params as `gymnax.make` does; the current folder is searched for modules too.
        options: keyword arguments of the environment's constructor (of the factory), and fields of
            its params; a name that is both goes to the constructor. And `every_end`, see
            `GymnaxEnvironment`.

    Raises:
        UserError: an unknown id or option (with the nearest), a value of another kind than the
            default's, a package that is missing or of another version, or an environment that
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
    """The options of an environment of gymnax with their defaults.

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


def _factory(name: str) -> tuple[Callable[..., Any], Mapping[str, inspect.Parameter]]:
    """What builds the environment, and the keyword arguments that it takes."""
    place = name.removeprefix(GYMNAX)
    if ":" in place:
        if place.startswith("gymnax."):
            _gymnax()
        factory = find_factory(place)
        return factory, parameters_of(factory)
    gymnax = _gymnax()
    if place not in gymnax.registered_envs:
        raise unknown_name("gymnax environment", place, gymnax.registered_envs)
    factory = functools.partial(gymnax.make, place)
    return factory, parameters_of(type(_built(name, factory, {})[0]))


def _gymnax() -> Any:
    """The package, of a version with this interface."""
    try:
        version = metadata.version("gymnax")
    except metadata.PackageNotFoundError:
        version = None  # not there, or on the path without having been installed
    if version is not None:
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers != VERSIONS:
            wanted = ".".join(map(str, VERSIONS))
            raise UserError(f"clew works with gymnax {wanted}, got {version}: {INSTALL}")
    try:
        return importlib.import_module("gymnax")
    except ModuleNotFoundError as error:
        raise UserError(f"gymnax environments need {error.name}: {INSTALL}") from error


def _built(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """An environment and its params, None where it does not say."""
    try:
        made = call(name, factory, options)
    except ModuleNotFoundError as error:
        raise missing_module(error.name or str(error), name) from error
    except OSError as error:  # MNISTBandit-bsuite fetches its pictures
        raise UserError(f"{name} could not be built: {error}") from error
    if isinstance(made, tuple) and len(made) == 2:
        return made
    return made, getattr(made, "default_params", None)


def _fields(params: Any) -> dict[str, Any]:
    """The settings in an environment's params by name; empty if they are no record."""
    if dataclasses.is_dataclass(params):
        return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return {name: getattr(params, name) for name in getattr(params, "_fields", ())}


def _named(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The parameters that a keyword can name."""
    unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, parameter in parameters.items() if parameter.kind not in unnamed]


def _as_default(what: str, value: Any, default: Any) -> Any:
    """A value in the kind of the default that it replaces.

    Raises:
        UserError: it is of another kind or shape.
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
