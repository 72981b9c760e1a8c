"""Options that several constructors share: described once, listed by each."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from clew.errors import unknown_name

T = TypeVar("T", bound=Callable[..., Any])


def takes_options_of(make: Callable[..., Any], **defaults: Any) -> Callable[[T], T]:
    """Decorates a constructor that passes `**options: Unpack[...]` to `make`: lists them.

    `inspect.signature` then has every option with its default, and `__init__`'s docstring has the
    arguments of `make` after its own. Type checkers know the options from the annotation, a
    `TypedDict`.

    Args:
        make: the function that takes the options; it sets their defaults.
        **defaults: defaults that differ from those of `make`.
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
