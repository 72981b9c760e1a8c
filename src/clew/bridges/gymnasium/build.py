"""From a name, "gymnasium:ID" or "module:factory", to an environment, or a line why not."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled

from clew.bridges.gymnasium.episodes import EpisodeGif, FrameSkip
from clew.errors import UserError, unknown_name

GYMNASIUM = "gymnasium:"

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
"""What to install for a module, as pip is told; others are supposed to be called as the module."""

REGISTERED_BY = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "popgym-": "popgym",
    "ALE/": "ale_py",
    "MemoryMaze-": "clew.envs.gymnasium_api",  # theirs needs the old gym; ours is the nearest name
    "clew/": "clew.envs.gymnasium_api",
}
"""The module that has to be imported before Gymnasium knows the ids that begin so."""


@dataclass(frozen=True)
class EnvBuilder:
    """Everything that makes one environment, to be sent to a worker process."""

    name: str
    """ "gymnasium:ID" or "module:factory"."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make` or of the factory."""
    frame_skip: int = 1
    time_limit: int | None = None
    video_every: int = 0
    video_folder: str = ""
    spec: EnvSpec | None = None
    """What is registered under the id, for a process in which nobody has registered it."""

    def __call__(self, index: int = 0) -> gymnasium.Env:
        """Builds the environment with the wrappers that belong around a single one.

        Args:
            index: its place among those side by side; the first one is filmed.

        Raises:
            UserError: an unknown id, module, factory or option, or a missing package.
        """
        filmed = bool(self.video_every) and index == 0
        options = dict(self.options)
        if filmed and takes(self.name, "render_mode"):
            options.setdefault("render_mode", "rgb_array")
        env = build(self.name, options, self.spec)
        if self.frame_skip > 1:
            env = FrameSkip(env, self.frame_skip)
        if self.time_limit is not None:
            env = gymnasium.wrappers.TimeLimit(env, self.time_limit)
        return EpisodeGif(env, self.video_folder, self.video_every) if filmed else env


def build(
    name: str,
    options: Mapping[str, Any],
    spec: EnvSpec | None = None,
) -> gymnasium.Env:
    """One environment by name, without any wrapper of clew's; `spec` as for `make_gymnasium`.

    Raises:
        UserError: an unknown id, module, factory or option, a missing package, or a factory that
            returns something else.
    """
    if name.startswith(GYMNASIUM):
        return make_gymnasium(name.removeprefix(GYMNASIUM), options, spec)
    factory = find_factory(name)
    check_options(name, factory, options)
    env = call(name, factory, options)
    if not isinstance(env, gymnasium.Env):
        hint = ""
        if isinstance(env, gymnasium.vector.VectorEnv):
            hint = "; a factory of vector environments takes a parameter num_envs"
        kind = f"{type(env).__module__}.{type(env).__name__}"
        raise UserError(f"{name} must return a gymnasium.Env, it returned a {kind}{hint}")
    return env


def make_gymnasium(
    env_id: str,
    options: Mapping[str, Any],
    spec: EnvSpec | None = None,
) -> gymnasium.Env:
    """`gymnasium.make`, with the packages imported that register well-known ids.

    `env_id` may be "module:ID", as Gymnasium has it: that module is imported first. Where the id
    is still unknown, `spec` is registered: a worker process has not run what a notebook has.

    Raises:
        UserError: an unknown id, with the nearest ones; a package that is missing, with its name;
            an option that the environment does not take.
    """
    module, _, plain = env_id.rpartition(":")
    module = module or next((m for p, m in REGISTERED_BY.items() if plain.startswith(p)), "")
    if module:
        import_module(module, f"environment {plain}")
    if spec is not None:
        gymnasium.registry.setdefault(plain, spec)
    if plain not in gymnasium.registry:
        near = difflib.get_close_matches(plain, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(
            f"unknown Gymnasium environment {plain!r}{hint} (an id that a package registers is "
            "written gymnasium:PACKAGE:ID)"
        )
    # Its checker looks at the first step alone and warns; the stream checks every step.
    return call(
        GYMNASIUM + env_id,
        lambda **kwargs: gymnasium.make(plain, disable_env_checker=True, **kwargs),
        options,
    )


def call(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Calls a factory; what the user can mend about it becomes a `UserError`."""
    try:
        return factory(**options)
    except DependencyNotInstalled as error:
        line = " ".join(str(error).split())
        raise UserError(f"{name} needs a package that is not installed: {line}") from error
    except ModuleNotFoundError as error:
        raise missing_module(error.name or str(error), name) from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        line = str(error).split(" was raised from the environment creator")[0]
        raise UserError(f"{name} does not take these options: {line}") from error


def find_factory(name: str) -> Callable[..., Any]:
    """The factory that "module:factory" names; the current folder is searched for it too.

    Raises:
        UserError: no such module, or nothing callable of that name in it.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"expected gymnasium:ID or module:factory, got {name!r}")
    module = import_module(module_name, f"environment {name}")
    factory: Any = module
    for part in attribute.split("."):
        factory = getattr(factory, part, None)
    if not callable(factory):
        public = [key for key, value in vars(module).items() if callable(value)]
        raise unknown_name(
            f"factory in {module_name}", attribute, (k for k in public if k[0] != "_")
        )
    return factory


def import_module(name: str, purpose: str) -> Any:
    """Imports a module for a purpose, from the current folder as well.

    Raises:
        UserError: it, or a module that it imports, is not installed.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:  # absent where a console script was started
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_module(error.name or name, purpose) from error


def missing_module(name: str, purpose: str) -> UserError:
    """The error for a module that is not there, with the package to install."""
    top = name.partition(".")[0]
    if top in PACKAGES:
        return UserError(f"{purpose} needs {top}: pip install {PACKAGES[top]}")
    return UserError(
        f"{purpose} needs the module {name!r}, which is not there: install the package that has "
        "it, or start in the folder that it lies in"
    )


def takes(name: str, option: str) -> bool:
    """Whether an environment by name takes an option; `gymnasium.make` may take any."""
    if name.startswith(GYMNASIUM):
        return True
    parameters = parameters_of(find_factory(name))
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_options(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises `UserError` for an option that the factory does not take, with the nearest one."""
    parameters = parameters_of(factory)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise unknown_name(f"option of {name}", option, parameters)


def parameters_of(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a factory by name; empty if it does not tell."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
