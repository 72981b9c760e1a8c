"""Published costs follow the thesis's conventions; XLA's cost analysis of programs."""

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jax
import pytest
from benchmarks.costs import __main__ as costs
from benchmarks.costs import page
from benchmarks.costs import published as thesis
from benchmarks.costs.claims import (
    LayerFigure,
    Pair,
    attention_subjects,
    figures,
    of_layer,
    verdict,
)
from benchmarks.costs.published import SETTINGS

from clew.cli import run
from clew.errors import UserError
from clew.lab.bench.speed import cases
from clew.lab.costs.account import Account, CostPlan, Subject, accounts
from clew.lab.costs.compiled import microseconds
from clew.memory import make_memory

BY_WHAT = {(c.source, c.what): c for c in figures()}
MISSED = {
    ("Section 4.2", "AReLiT faster"),
    ("Section 4.2", "AReLiT faster than ReLiT"),
    ("Table 5.1", "AReLiT operations"),
    ("Section 5.1.4", "AReLiT faster"),
}


@pytest.fixture(scope="module", autouse=True)
def few_counts() -> Iterator[None]:
    """The picture's lines are counted once, at its first windows, and three memories for tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "CONTEXTS", page.CONTEXTS[:5])
        patch.setattr(page, "lines", cache(page.lines))
        patch.setattr(costs, "cases", lambda: dict([*cases().items()][:3]))
        yield


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Account]]:
    """The counts of every attention in every setting."""
    return {
        s.name: {a.name: a for a in accounts(attention_subjects(s), CostPlan())} for s in SETTINGS
    }


@pytest.mark.parametrize(
    ("value", "published", "is_it"),
    [
        (7.877, "7.87", True),
        (7.877, "7.88", True),
        (7.87, "7.86", False),
        (8_470_528, "8.4e6", True),
        (8_388_608, "8.4e6", True),
        (8_300_000, "8.4e6", False),
        (16640, "16640", True),
        (16641, "16640", False),
    ],
)
def test_digits_cut_off_or_rounded(value: float, published: str, is_it: bool) -> None:
    assert thesis.printed(value, published) is is_it


def test_which_published_figures_come_out() -> None:
    assert {key for key, claim in BY_WHAT.items() if not claim.reproduced} == MISSED
    assert len(BY_WHAT) == 16


def test_published_operations_of_arelit_are_below_its_own_products() -> None:
    assert thesis.arelit_products(128, 64) == 81_920 > 6.8e4
    gtrxl = thesis.gtrxl_operations(256, 64, 512)
    assert gtrxl / thesis.arelit_products(256, 64) < 237.83


def test_thesis_update_of_relit_would_give_another_ratio() -> None:
    coded = thesis.relit_operations(256, 64, 4)
    as_written = coded - 2 * 4 * 64**2
    assert not thesis.printed(thesis.gtrxl_operations(256, 64, 512) / as_written, "110.95")


def test_honest_ratios(counted: dict[str, dict[str, Account]]) -> None:
    def found(source: str, what: str) -> LayerFigure:
        claim = BY_WHAT[source, what]
        return of_layer(claim, counted[claim.setting.name])

    relit = found("Section 5.1.4", "ReLiT faster")
    assert (
        relit.counted.reprojected == 17_271_168 / 471_680
        and relit.counted.cached == 329_728 / 471_680
    )
    space = found("Section 5.1.4", "ReLiT less space")
    assert space.counted.reprojected == 32_896 / 66_560 and space.counted.cached == 164_480 / 66_560
    alone = found("Table 5.1", "ReLiT state")
    assert alone.counted.reprojected is None and alone.counted.cached == 16_640


def test_no_gtrxl_is_both_slow_and_large(counted: dict[str, dict[str, Account]]) -> None:
    """ReLiT is never faster and smaller at once, with either GTrXL."""
    for where in ("Section 3.3", "Section 5.1.4"):
        pair = [BY_WHAT[where, f"ReLiT {what}"] for what in ("faster", "less space")]
        fast, small = (of_layer(claim, counted[claim.setting.name]).counted for claim in pair)
        assert fast.reprojected is not None and small.reprojected is not None
        assert fast.cached is not None and small.cached is not None
        assert fast.reprojected > 1 > small.reprojected
        assert fast.cached < 1 < small.cached


def test_verdicts() -> None:
    ratio, alone = (
        BY_WHAT["Section 5.1.4", "AReLiT less space"],
        BY_WHAT["Table 5.1", "ReLiT state"],
    )
    assert verdict(ratio, Pair(33.0, 30.0)) == "held / not held (smaller)"
    assert verdict(ratio, Pair(None, 0.5)) == "not held (reversed)"
    assert verdict(alone, Pair(None, 1.0)) == ""


@pytest.mark.slow
def test_crossings_of_the_picture() -> None:
    drawn = {line.label: line for line in page.lines()}
    relit = page.crossings(page.lines())["ReLiT"]
    assert 256 < relit < 512
    assert drawn["GTrXL, cached"].operations[3] < drawn["ReLiT"].operations[3]
    assert drawn["GTrXL, cached"].operations[4] > drawn["ReLiT"].operations[4]


def test_compiled_and_measured() -> None:
    def make(key: jax.Array):
        return make_memory("none", input_size=3, key=key, hidden_size=8)

    subject = Subject("net", make, 3)
    plan = CostPlan(batch=2, length=4, compiled=True, repeats=2)
    (row,) = accounts([subject], plan)
    assert row.unroll == row.step.per_step == 3 * 8 + 8 * 8
    for program in (row.compiled_step, row.compiled_unroll):
        assert program.flops >= 2 * row.step.products and program.bytes > 0
        assert not program.loops
    assert 0 < row.acting.low <= row.acting.middle <= row.acting.high
    data = row.as_data(plan.repeats)
    assert data["reading"]["repeats"] == 2 and data["acting"]["median"] == row.acting.middle


def test_interval_of_the_median() -> None:
    time = microseconds([n / 1e6 for n in range(15, 0, -1)], observations=1)
    assert math.isclose(time.middle, 8.0)
    assert math.isclose(time.low, 4.0) and math.isclose(time.high, 12.0)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    memories = ["--memories", "none", "gru", "own_parts:Average"]
    assert run(["cost", *memories, "--options", "hidden_size=4"]) == 0
    said = capsys.readouterr().out
    assert "gru" in said and "own_parts:Average" in said
    folder = tmp_path / "out"
    assert run(["cost", "--memories", "gru", "--output", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((folder / "costs.json").read_text())
    assert report["memories"][0]["name"] == "gru" and (folder / "memories.md").exists()


@pytest.mark.slow
def test_everything_published_is_written(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    costs.main(["--output", str(tmp_path)])
    assert "Tables 3.1 and 4.1" in capsys.readouterr().out
    report = json.loads((tmp_path / "costs.json").read_text())
    assert len(report["claims"]) == 16 and report["memories"]
    assert (tmp_path / "operations-and-state.png").stat().st_size > 10_000
    assert (tmp_path / "claims-counted.md").read_text().startswith("**")


def test_command_refuses() -> None:
    from clew.cli.cost import main

    for args, message in (
        ("--memories gruu", "did you mean 'gru'"),
        ("--memories gru --options window=3", "none of gru has an option 'window'"),
        ("--batch 0", "batch must be an integer of at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            main(args.split())
