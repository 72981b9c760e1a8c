"""Heat maps of scores: made from existing rows, the best memory first."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks import hard_tmazes, heatmap, short_to_long
from matplotlib.figure import Figure

from clew.lab.grid import read_results

RESULTS = Path(__file__).parents[2] / "results"


def test_memories_that_were_tried_everywhere_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(heatmap, "save", lambda figure, path: drawn.append(figure))
    rows = read_results(RESULTS / "endless-tmaze")
    part: list[dict[str, Any]] = [
        {"model": "half", "setting": "fixed-5-by-1", "mean": 1.0},
    ]
    hard_tmazes.draw([*rows, *part], tmp_path / "mazes.png")
    short_to_long.draw(read_results(RESULTS / "short-to-long"), tmp_path / "lengths.png")
    first, second = (figure.axes[0] for figure in drawn)
    names = [label.get_text() for label in first.get_yticklabels()]
    assert names[0] == "gated_delta_net" and names[-1] == "none" and "half" not in names
    assert second.get_yticklabels()[0].get_text() == "rwkv7"
    assert {"1.00", "0.67"} < {text.get_text() for text in second.texts}
