"""The reference of the memories, held against the registry."""

import importlib.util
from pathlib import Path

from clew.memory import MEMORIES

HOOK = Path(__file__).parents[2] / "tools" / "site_memories.py"


def test_the_reference_lists_every_memory() -> None:
    """The site has a page for the class of every entry of `MEMORIES`, in that order."""
    spec = importlib.util.spec_from_file_location("site_memories", HOOK)
    assert spec is not None and spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    nav = [{"Memories": ["memories.md", "laws.md"]}]
    site.add_to(nav)
    pages = [{kind.__name__: f"memories/{name}.md"} for name, kind in MEMORIES.items()]
    assert nav == [{"Memories": ["memories.md", *pages, "laws.md"]}]
    assert site.reference("gru").startswith("::: clew.memory.gru.GRU\n")
