"""`--redraw` of benchmarks: the tables and pictures of earlier measurements, from their rows."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import (
    associative_recall,
    forms,
    learner,
    lengths,
    measured,
    plans,
    product_times,
    repeated_vectors,
)
from benchmarks import short_to_long as shorter
from benchmarks.approximation import tables
from benchmarks.costs import __main__ as costs
from benchmarks.popgym_bounds import __main__ as bounds

from clew.errors import UserError
from clew.report.markdown import plain_table
from comparison.document import from_data, markdown

RESULTS = Path(__file__).parents[2] / "results"
CASES = {
    "forms": (forms.document, "forms", forms.FormCost),
    "lengths": (lengths.document, "lengths", lengths.Row, lengths.LengthsPlan),
    "lengths-of-all": (lengths.document, "lengths", lengths.Row, lengths.LengthsPlan),
    "memory-maze-speed": (learner.document, learner.FILE, learner.Row, learner.LearnerPlan),
    "popgym-bounds": (bounds.document, "bounds"),
    "pramanik-costs": (costs.again, "costs", *costs.KINDS),
    "product-times": (
        product_times.document,
        "products",
        product_times.Row,
        product_times.ProductPlan,
    ),
    "repeated-vectors": (repeated_vectors.document, "repeated-vectors", repeated_vectors.Row),
}


@pytest.mark.parametrize("folder", CASES)
def test_tables_in_results_are_those_of_their_rows(folder: str) -> None:
    document, name, *kinds = CASES[folder]
    found = measured.redrawn(document, RESULTS / folder, name, *kinds)
    for table in found.tables:
        assert (RESULTS / folder / f"{table.name}.md").read_text() == plain_table(table)


def test_without_a_file_it_says_which_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--redraw needs a folder with lengths\.json, got none"):
        measured.redrawn(lengths.document, "", "lengths")
    with pytest.raises(UserError, match=f"got {tmp_path}"):
        measured.redrawn(lengths.document, tmp_path, "lengths")


def test_a_plan_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(plans, "run_study", run)
    monkeypatch.setattr(sys, "argv", ["plan", str(RESULTS / "short-to-long"), "--redraw"])
    found = plans.run_plan("", {"further": shorter.further}, draws=True)
    assert found.path == RESULTS / "short-to-long" and len(found.rows) > 10


def test_no_memory_is_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = (RESULTS / "associative-recall" / "rows.jsonl").read_text().splitlines()[:3]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(sys, "argv", ["recall", str(tmp_path), "--redraw"])
    associative_recall.main()
    assert (tmp_path / "rows.jsonl").read_text().splitlines() == rows
    assert (tmp_path / "apart.png").stat().st_size > 3_000


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = {"one": [{"set": "half_wave", "r": 2, "error": 0.125, "factor": None, "kind": "near 0"}]}
    assert tables.read(tmp_path) == {}
    tables.write(rows, tmp_path)
    assert tables.read(tmp_path) == rows


@pytest.mark.parametrize(
    ("folder", "name"), [("peers", "peers"), ("peers-matrix", "peers"), ("peers-modern", "again")]
)
def test_pages_of_peers_in_results_are_those_of_their_rows(folder: str, name: str) -> None:
    found = from_data(json.loads((RESULTS / folder / f"{name}.json").read_text()))
    assert (RESULTS / folder / f"{name}.md").read_text() == markdown(found)
