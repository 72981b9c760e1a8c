"""Studies with made-up rows, for the tests of reports: nothing is trained."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from clew.lab.grid import Cell, Evaluation, Setting, Study
from clew.lab.studies.makkink import grid as makkink
from clew.report import files, html
from clew.run.config import TrainConfig
from made_up_rows import row_of_cell, write_whole

Score = Callable[[Cell], float | None]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out charts, which take nearly all of a report's time: for tests of its text."""
    monkeypatch.setattr(files, "save_chart", lambda chart, _, folder: folder / chart.name)
    for draw in ("panel_svg", "legend_svg"):
        monkeypatch.setattr(html, draw, lambda *_: '<svg viewBox="0 0 1 1"></svg>')


def made_up_row(study: Study, cell: Cell, mean: float | None) -> dict[str, Any]:
    """A row as the engine writes them, with a curve of four points that ends at the score."""
    steps, half = [10, 20, 30, 40], None if mean is None else mean / 2
    curve = {"steps": steps, "episodes": [5, 5, 0, 5], study.score: [0.0, half, None, mean]}
    return row_of_cell(
        cell,
        mean=mean,
        score=study.score,
        curve=curve,
        steps=40,
        parameters=100 + len(cell.model),
        seconds=4.0,
        pack={"compile": 1.0, "train": 2.0, "evaluate": 1.0},
        finished=f"2026-01-02T03:0{cell.seed % 10}:00+00:00",
    )


def write_folder(folder: Path, study: Study, score: Score, skip: Iterable[Cell] = ()) -> Path:
    """A study's folder with a row for every cell that is not to be skipped."""
    rows = [made_up_row(study, cell, score(cell)) for cell in study.cells() if cell not in skip]
    return write_whole(folder, study, rows)


def thesis_study(edition: str, models: list[str], settings: list[str]) -> Study:
    """A corner of Makkink's grid."""
    return makkink.study(edition=edition).only(models, settings)


def own_study(**changes: Any) -> Study:
    """A user's own: no floors, nothing published, names that HTML and files must survive."""
    values: dict[str, Any] = {
        "name": "own <study>",
        "models": {name: TrainConfig(memory="none") for name in ("<b>bold</b>", "a|b")},
        "settings": {name: Setting("tmaze") for name in ("corridor 5", "to/the & end")},
        "seeds": (0,),
        "steps": 40,
        "evaluation": Evaluation(episodes=10),
        "score": "success",
    }
    return Study(**(values | changes))
