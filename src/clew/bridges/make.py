"""JAX tasks by name: those of `ENVS`, and environments of other packages in JAX."""

import difflib
import inspect
import re
from typing import Any

import gymnasium
from gymnasium.envs.registration import parse_env_id

from clew.bridges.gymnasium.build import GYMNASIUM, REGISTERED_BY
from clew.bridges.gymnax import gymnax_options, make_gymnax
from clew.bridges.jax_packages import is_packaged
from clew.bridges.pettingzoo import PETTINGZOO
from clew.envs import ENVS
from clew.envs.base import Environment
from clew.envs.interface import require_task
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.errors import UserError, call_own, one_line, unknown_name
from clew.names import is_reference, resolve, unknown_or_own


def make_env(name: str, /, **options: Any) -> Environment:
    """Builds a JAX task by name.

    Args:
        name: a key of `ENVS`, or "module:Class" for a task of your own; or "gymnax:ID",
            "xminigrid:ID" and so on, see `clew.bridges.gymnax.make_gymnax`.
        options: keyword arguments of that task's constructor.

    Raises:
        UserError: an unknown name or option (with the nearest valid ones), or a value that the
            task refuses.
    """
    if isinstance(name, str) and is_packaged(name):
        return make_gymnax(name, options)
    refuse_unknown_options(name, options)
    kind = ENVS[name] if name in ENVS else jax_task(name)
    assert kind is not None, "env_options has found it"
    task: Environment = call_own(name, kind, **options)
    if name not in ENVS:
        require_task(name, task)
    return task


def refuse_unknown_options(name: str, options: dict[str, Any]) -> None:
    """Raises `UserError` for an unknown JAX task, or an unknown option of one."""
    if isinstance(name, str) and is_packaged(name):
        return  # building it raises the error
    known = env_options(name)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)


def env_options(name: str) -> dict[str, Any]:
    """The options of a JAX task with their defaults.

    Raises:
        UserError: an unknown name, or one that is not a JAX task.
    """
    if not isinstance(name, str):
        raise UserError(f"a task is given by its name, got {one_line(name)}")
    if is_packaged(name):
        return gymnax_options(name)
    kind = ENVS.get(name) or jax_task(name)
    if kind is None:
        if is_reference(name) and not name.startswith("gym:"):
            resolve(name)  # raises if it cannot be imported
            raise UserError(f"{name} is not a JAX task: expected a class derived from Environment")
        raise unknown_environment(name)
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


def unknown_environment(name: str) -> UserError:
    """The error for a name that is not in `ENVS`, with the environment that may be meant."""
    meant = _of_popgym(name) or _of_gymnasium(name)
    if meant is not None:
        return UserError(f"unknown environment {name!r}; did you mean {meant}?")
    return unknown_or_own("environment", name, ENVS)


def _of_gymnasium(name: str) -> str | None:
    """A Gymnasium id that equals the name apart from case or version, or nearly so."""
    plain, known = name.removeprefix("gym:"), {i: i.lower() for i in gymnasium.registry}
    alike = [i for i, low in known.items() if plain.lower() in (low, low.rpartition("-v")[0])]
    if alike:
        return repr(GYMNASIUM + max(alike, key=lambda i: parse_env_id(i)[2] or 0))
    if any(name.startswith(begin) for begin in REGISTERED_BY):
        return repr(GYMNASIUM + plain)
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.8)
    ours = difflib.get_close_matches(name, ENVS, n=1, cutoff=0.5)
    return repr(GYMNASIUM + near[0]) if near and not ours else None


def _of_popgym(name: str) -> str | None:
    """The task with its option for an id of popgym such as "popgym-RepeatPreviousEasy-v0"."""
    plain = re.sub(r"^popgym-|-v\d+$|[^a-z]", "", name.lower())
    for task in POPGYM:
        rest = plain.removeprefix(task.replace("_", ""))
        if rest == "":
            return repr(task)
        if rest in DIFFICULTIES:
            return f"{task!r} with difficulty={rest}"
    return None


def jax_task(name: str) -> type[Environment] | None:
    """The JAX task of your own that "module:Class" names; None for any other name.

    The module is imported to find out, since Gymnasium environments have the same form of name.
    """
    if not is_reference(name) or name.startswith((GYMNASIUM, PETTINGZOO)) or is_packaged(name):
        return None
    try:
        found: object = resolve(name)
    except UserError:
        return None  # building the task raises the error
    return found if isinstance(found, type) and issubclass(found, Environment) else None
