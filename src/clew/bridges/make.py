"""JAX tasks by name: those of `ENVS`, and environments that follow gymnax's interface."""

import inspect
from typing import Any

from clew.bridges.gymnax import GYMNAX, gymnax_options, make_gymnax
from clew.envs import ENVS
from clew.envs.base import Environment
from clew.errors import unknown_name


def make_env(name: str, **options: Any) -> Environment:
    """Builds a JAX task by name.

    Args:
        name: a key of `ENVS`; or "gymnax:ID" or "gymnax:module:factory", see
            `clew.bridges.gymnax.make_gymnax`.
        options: keyword arguments of that task's constructor.

    Raises:
        UserError: an unknown name or option (with the nearest valid ones), or a value that the
            task refuses.
    """
    if name.startswith(GYMNAX):
        return make_gymnax(name, options)
    known = env_options(name)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    return ENVS[name](**options)


def env_options(name: str) -> dict[str, Any]:
    """The options of a JAX task with their defaults.

    Raises:
        UserError: an unknown name.
    """
    if name.startswith(GYMNAX):
        return gymnax_options(name)
    if name not in ENVS:
        raise unknown_name("environment", name, ENVS)
    parameters = inspect.signature(ENVS[name]).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}
