"""A user's own memories and tasks, by reference, so that any process can find them."""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clew.envs import ENVS
from clew.errors import UserError, unknown_name
from clew.memory import MEMORIES


@contextlib.contextmanager
def registered(memories: Mapping[str, str], tasks: Mapping[str, str]) -> Iterator[None]:
    """Makes own memories and tasks known by name, for a while.

    Args:
        memories: name to "package.module:factory".
        tasks: name to "package.module:Class".

    Raises:
        UserError: for a name of the library's own, or a reference that leads nowhere.
    """
    with contextlib.ExitStack() as undo:
        for registry, kind, own in ((MEMORIES, "memory", memories), (ENVS, "task", tasks)):
            for name, reference in own.items():
                if name in registry:
                    raise UserError(f"clew has a {kind} called {name!r}; give yours another name")
                registry[name] = resolve(reference)
                undo.callback(registry.pop, name)
        yield


def resolve(reference: str) -> Callable[..., Any]:
    """What "package.module:name" refers to, looked for in the current folder as well.

    Raises:
        UserError: if there is no such module or name in it, or it cannot be called.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise UserError(f"expected package.module:factory, got {reference!r}")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"cannot import {module_name!r} of {reference!r}: {error}") from error
    finally:
        sys.path.remove(here)
    if not callable(getattr(module, name, None)):
        public = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise unknown_name(f"factory of {module_name}", name, public)
    return getattr(module, name)
