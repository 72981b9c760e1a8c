"""The picture of every seed of a T-Maze of 160, drawn from existing rows."""

from pathlib import Path

from benchmarks.modern_memories import OTHERS, seeds

from clew.lab.grid import read_results

RESULTS = Path(__file__).parents[2] / "results"


def test_every_memory_and_seed_is_drawn_the_best_first() -> None:
    rows = read_results(RESULTS / "modern-memories-160")
    beside = read_results(RESULTS / "arelit-tmaze")
    (axes,) = seeds(rows, beside).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert set(OTHERS) < set(names) and names[0] == "position_mlp"
    assert {"rwkv7", "delta_product", "AReLiT"} < set(names[-4:])
    drawn = sum(len(line.get_xdata()) for line in axes.lines[:2])
    wanted = [name for both in OTHERS.values() for name in both]
    there = [r for r in beside if r["model"] in wanted and r["setting"] == "corridor-160"]
    assert drawn == len(rows) + len(there)
