"""Things of a user's own, named so that any process can find them: "package.module:name"."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from clew.errors import UserError, unknown_name


def resolve(reference: str) -> Callable[..., Any]:
    """What "package.module:name" refers to, looked for in the current folder as well.

    Raises:
        UserError: if there is no such module or name in it, or it cannot be called.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise UserError(f"expected package.module:name, got {reference!r}")
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
        raise unknown_name(f"name in {module_name}", name, public)
    return getattr(module, name)
