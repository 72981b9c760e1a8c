"""Multiply-adds of the forms of a chunk equal sums of products of sizes."""

import pytest
from benchmarks.forms import SIZES, FormCost, form_costs

from clew.memory.parts.chunkwise import CHUNK

HEADS, HEAD, WIDE = 4, 64, 4 * 64
WEIGHTS = 128 * (5 * HEADS * HEAD + 3 * HEADS * 4) + HEADS * HEAD * 128


@pytest.fixture(scope="module")
def costs() -> dict[tuple[str, str], FormCost]:
    """Costs by memory and form, for one length."""
    assert (
        SIZES["num_heads"] == HEADS and SIZES["head_size"] == HEAD and SIZES["eta"] * HEAD == WIDE
    )
    return {(cost.memory, cost.form): cost for cost in form_costs((4 * CHUNK,))}


def test_every_form_that_there_is(costs: dict[tuple[str, str], FormCost]) -> None:
    """The joint decay has no products of matrices."""
    forms = ("step", "xla", "chunkwise", "associative")
    memories = ("relit", "relit, joint", "arelit")
    assert set(costs) == {(m, f) for m in memories for f in forms} - {("relit, joint", "chunkwise")}
    for (_, form), cost in costs.items():
        assert cost.length == (1 if form == "step" else 4 * CHUNK)


def test_products_of_chunks(costs: dict[tuple[str, str], FormCost]) -> None:
    """Half of a chunk's pairs in either direction, then writing and reading a state."""
    pairs = (CHUNK - 1) / 2
    relit = pairs * (WIDE + HEAD + 1) + 2 * HEAD * WIDE + WIDE
    assert costs["relit", "chunkwise"].products == WEIGHTS + HEADS * relit
    vectors = 4  # r = 3
    arelit = pairs * (WIDE + 2 * vectors + HEAD) + 2 * vectors * (WIDE + HEAD)
    assert costs["arelit", "chunkwise"].products == WEIGHTS + HEADS * arelit


def test_chunks_spare_what_is_elementwise(costs: dict[tuple[str, str], FormCost]) -> None:
    """For ReLiT's large state; AReLiT's is so small that chunks multiply more than steps do."""
    work = {key: cost.elementwise for key, cost in costs.items()}
    assert work["relit", "chunkwise"] * 5 < work["relit", "xla"] < work["relit", "associative"]
    assert work["arelit", "xla"] < work["arelit", "associative"] < work["arelit", "chunkwise"]
