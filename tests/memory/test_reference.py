"""The reference of the memories agrees with the registry."""

from clew.memory import MEMORIES
from scripts import script


def test_the_reference_lists_every_memory() -> None:
    """The site has a page for the class of every entry of `MEMORIES`, in that order."""
    site = script("tools/site_memories.py")
    nav = [{"Memories": ["memories.md", "laws.md"]}]
    site.add_to(nav)
    pages = [{kind.__name__: f"memories/{name}.md"} for name, kind in MEMORIES.items()]
    assert nav == [{"Memories": ["memories.md", *pages, "laws.md"]}]
    assert site.reference("gru").startswith("::: clew.memory.gru.GRU\n")
