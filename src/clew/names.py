"""Objects of a user's own, by a name that every process can resolve: "package.module:name"."""

import os
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from clew.errors import UserError, unknown_name


def resolve(reference: str) -> Callable[..., Any]:
    """The callable that "package.module:name" names; the current folder is searched first.

    Raises:
        UserError: if there is no such module, no such name in it, or it cannot be called.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise UserError(f"expected package.module:name, got {reference!r}")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found = pkgutil.resolve_name(reference)
    except AttributeError:
        if module_name not in sys.modules:  # the module's own code raised it
            raise
        found = None
    except (ImportError, ValueError) as error:
        raise UserError(f"cannot import {module_name!r} of {reference!r}: {error}") from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        members = vars(sys.modules[module_name]).items()
        public = [n for n, value in members if callable(value) and not n.startswith("_")]
        raise unknown_name(f"name in {module_name}", name, public)
    return found
