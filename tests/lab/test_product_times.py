"""The time of learning relative to that of a memory's own products: counts and report."""

import json
from pathlib import Path

import pytest
from benchmarks.product_times import NAMES, QUICK, main, make, measure

from clew.lab.costs.count import multiply_adds


@pytest.mark.slow
def test_products_are_those_of_steps_where_nothing_else_is_multiplied() -> None:
    """A GRU's chunk has its steps' products; forward and backward have three times as many."""
    plan = QUICK._replace(memories=("gru",))
    (row,), rates = measure(plan, lambda what: None)
    step = multiply_adds(make("gru", plan)).products
    assert row.operations == 2 * 3 * step * plan.length * plan.envs
    assert len(rates) == plan.rounds and min(rates) > 0
    assert row.times_products.low <= row.times_products.middle <= row.times_products.high


@pytest.mark.slow
def test_the_command_shows_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--memories", "gruu"]) == 2
    assert "did you mean 'gru'" in capsys.readouterr().err
    assert main(["--width", "0"]) == 2
    assert "width must be an integer of at least 1, got 0" in capsys.readouterr().err
    assert main(["--quick", "--memories", "gru", "elman", "--output", str(tmp_path)]) == 0
    assert "QUICK" in capsys.readouterr().out
    found = json.loads((tmp_path / "products.json").read_text())
    assert {row["memory"] for row in found["rows"]} == {"gru", "elman"}
    assert (tmp_path / "products.png").stat().st_size > 3_000
    assert {"gru", "mamba2", "relit"} <= set(NAMES) and "none" not in NAMES
