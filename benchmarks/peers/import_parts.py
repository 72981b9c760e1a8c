"""Imports modules of libraries without running the `__init__` files of their packages."""

import importlib
import importlib.util
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import jax


def import_part(module: str, *packages: str) -> Any:
    """Imports a module without running the `__init__` files of the packages around it.

    memorax's import environments and loggers, whose dependencies can no longer be installed
    together; those of mlstm_kernels import code for GPUs. The modules here need neither.
    """
    found = importlib.util.find_spec(module.split(".")[0])
    root = Path(found.submodule_search_locations[0])
    for name in packages:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    return importlib.import_module(module)


@cache
def import_memorax() -> Any:
    """memorax's sequence models."""
    typing: Any = types.ModuleType("memorax.utils.typing")
    typing.__getattr__ = lambda name: jax.Array if name == "Array" else Any
    sys.modules[typing.__name__] = typing
    packages = ("memorax", "memorax.networks", "memorax.algorithms")
    return import_part("memorax.networks.sequence_models", *packages)
