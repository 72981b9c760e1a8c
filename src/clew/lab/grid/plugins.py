"""A user's own memories and tasks, by reference, so that any process can find them."""

import contextlib
from collections.abc import Iterator, Mapping

from clew.envs import ENVS
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.names import resolve


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
                registry[name] = resolve(reference)  # pyright: ignore[reportArgumentType]
                undo.callback(registry.pop, name)
        yield
