"""Settings of every test: strict promotion, one compilation cache, slow tests on request."""

import os
from pathlib import Path

# Before jax is imported: what takes time to compile is kept across test runs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--slow`, which runs the tests that learn for minutes as well."""
    parser.addoption("--slow", action="store_true", help="run slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests marked `slow` unless `--slow` was given."""
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow (make test-slow)")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
