"""Loads Python files outside of packages as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def script(path: str) -> ModuleType:
    """The module of a file, by its path from the repository's root."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # its dataclasses need it
    spec.loader.exec_module(module)
    return module
