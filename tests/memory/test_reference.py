"""The reference of the memories, held against the registry."""

import re
from pathlib import Path

from clew.memory import MEMORIES

PAGE = Path(__file__).parents[2] / "docs" / "api" / "memory.md"


def test_the_reference_lists_every_memory() -> None:
    """docs/api/memory.md has the class of every entry of `MEMORIES`, in that order."""
    listed = re.findall(r"^::: (clew\.memory\.\w+\.[A-Z]\w+)$", PAGE.read_text(), re.MULTILINE)
    wanted = [f"{kind.__module__}.{kind.__name__}" for kind in MEMORIES.values()]
    assert listed[: len(wanted)] == wanted
