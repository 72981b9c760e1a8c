"""Associative recall with a user's own memory, as in docs/add-a-memory.md."""

import jax
from benchmarks.associative_recall import APART, TOGETHER, TOKENS, build, document


def test_a_memory_of_ones_own_is_built_and_shown() -> None:
    """It is shown after the library's, whose order stays."""
    for name, shown, size in (("own_lru:LRU", APART, TOKENS), ("arelit-3", TOGETHER, 2 * TOKENS)):
        reader = build(name, 8, shown, jax.random.split(jax.random.key(0)))
        assert reader.memory.input_size == size
    about = {"width": 8, "shown": APART, "state": 8, "parameters": 9, "updates": 1}
    row = about | {f"right_{pairs}": 0.5 for pairs in (4, 8, 16)}
    (table,) = document([row | {"memory": name} for name in ("own_lru:LRU", "gru")]).tables
    assert [cells[0].text for cells in table.rows] == ["gru", "own_lru:LRU"]
