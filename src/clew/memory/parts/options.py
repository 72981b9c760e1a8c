"""Options that several constructors share: described once, and listed by each of them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from clew.errors import unknown_name

T = TypeVar("T", bound=Callable[..., Any])


def takes_options_of(make: Callable[..., Any], **defaults: Any) -> Callable[[T], T]:
    """For a constructor whose `**options: Unpack[...]` go on to `make`: its signature lists them.

    So `inspect.signature` knows every option with its default, and `__init__`'s docstring has the
    arguments of `make` after its own. Type checkers know the options by the annotation, a
    `TypedDict`.

    Args:
        make: what takes the options; it says what they default to.
        **defaults: other defaults than those of `make`.
    """
    known = inspect.signature(make).parameters

    def decorate(init: T) -> T:
        own = inspect.signature(init)
        *named, last = own.parameters.values()
        shared = get_args(last.annotation)[0].__annotations__
        full = {name: defaults.get(name, known[name].default) for name in shared}
        added = (known[name].replace(default=value) for name, value in full.items())
        added = [parameter.replace(kind=last.KEYWORD_ONLY) for parameter in added]

        signature = own.replace(parameters=[*named, *added])

        @functools.wraps(init)
        def complete(*args: Any, **given: Any) -> Any:
            if unknown := [name for name in given if name not in signature.parameters]:
                raise unknown_name(f"option of {type(args[0]).__name__}", unknown[0], full)
            return init(*args, **(defaults | given))

        complete.__dict__["__signature__"] = signature
        complete.__doc__ = "\n".join(inspect.getdoc(f) or "" for f in (init, make))
        return complete  # pyright: ignore[reportReturnType]

    return decorate
