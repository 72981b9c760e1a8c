"""Pictures: the data behind the lines, and files that are written completely."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.errors import UserError
from clew.report.curves import curves, mean_and_band, plot_runs, runs_figure
from clew.run.metrics import read_rows
from clew.stats import bootstrap_interval


def row(steps: int, episodes: list[int], success: list[float | None]) -> dict[str, Any]:
    return {"steps": steps, "episodes": episodes, "success": success, "return": success}


ROWS = [
    row(10, [0, 1], [None, 1.0]),
    row(20, [0, 3], [None, 0.0]),
    row(30, [2, 4], [0.5, 0.5]),
    row(40, [6, 0], [1.0, None]),
]


def write(folder: Path, rows: list[dict[str, Any]], tail: str = "") -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + tail)
    return folder


def test_bins_weigh_rows_by_their_episodes() -> None:
    whole = curves(ROWS, "success")
    np.testing.assert_array_equal(whole.steps, [10, 20, 30, 40])
    np.testing.assert_array_equal(whole.values, [[np.nan, np.nan, 0.5, 1.0], [1, 0, 0.5, 0.5]])
    halves = curves(ROWS, "success", bins=2)
    np.testing.assert_array_equal(halves.steps, [20, 40])
    np.testing.assert_array_equal(halves.values, [[np.nan, 7 / 8], [1 / 4, 1 / 2]])


def test_pictures_are_written_whole(tmp_path: Path) -> None:
    run = write(tmp_path / "a", ROWS, tail='{"steps": 5')  # a kill cut a row short
    rows = read_rows(run)
    assert len(rows) == 4
    one = plot_runs({"a": rows}, run / "a.png")
    both = plot_runs({"a": rows, "b": ROWS[2:]}, tmp_path / "pictures/ab.png")
    for path in (one, both):
        assert path.read_bytes().startswith(b"\x89PNG")
    for name, begins in (("ab.pdf", b"%PDF"), ("ab.svg", b"<?xml")):
        assert plot_runs({"a": rows}, tmp_path / name).read_bytes().startswith(begins)
    assert not list(tmp_path.rglob("*.writing"))


def test_a_picture_says_how_many_seeds_each_run_has() -> None:
    three = [row(10, [1, 1, 1], [0.0, 0.5, 1.0])]
    figure = runs_figure({"a": ROWS, "b": three})
    assert "thin: 2 to 3 seeds" in figure.axes[0].get_title(loc="left")
    assert "thin: 3 seeds" in runs_figure({"b": three}).axes[0].get_title(loc="left")


@pytest.mark.parametrize("several", [False, True])
def test_no_name_of_the_legend_is_cut_off(several: bool) -> None:
    """With one panel and with two; the figure keeps its height."""
    rows = [{**r, "return": r["success"]} for r in ROWS] if several else ROWS
    names = ["gru", "min_gru", "frame_stack", "gated_delta_net", "my_package.memories:Linear"]
    figure = runs_figure(dict.fromkeys(names, rows))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_a_band_is_that_of_three_seeds_or_more() -> None:
    values = np.array([[0.0, 1.0], [np.nan, 0.5], [1.0, 0.75]])
    mean, low, high = mean_and_band(values)
    np.testing.assert_array_equal(mean, [np.nan, 0.75])
    assert tuple(x[1] for x in (mean, low, high)) == bootstrap_interval(
        values[:, 1], resamples=999, method="percentile"
    )
    mean, low, high = mean_and_band(values[1:])
    np.testing.assert_array_equal(mean, [np.nan, 0.625])
    assert np.isnan([low, high]).all()


def test_evaluations_are_dots() -> None:
    """They are means over the seeds, at the steps of their rows; None is left out."""
    rows = [ROWS[0], ROWS[2] | {"evaluation.return": [1.0, 2.0]}]
    rows.append(ROWS[3] | {"evaluation.return": [None, 2.0], "evaluation.success": [None, None]})
    success, earned = runs_figure({"a": rows}).axes
    assert success.get_title(loc="left").endswith("thick: mean, dots: evaluations")
    dots = earned.lines[-1]
    np.testing.assert_array_equal(dots.get_xdata(), [30, 40])
    np.testing.assert_array_equal(dots.get_ydata(), [1.5, np.nan])
    assert "evaluations" not in runs_figure({"a": ROWS}).axes[0].get_title(loc="left")


def test_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no metrics"):
        read_rows(tmp_path)
    with pytest.raises(UserError, match="no metrics"):
        read_rows(write(tmp_path / "empty", []))
