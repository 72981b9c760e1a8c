"""Many seeds in a report: verdicts on the thesis's claims, pairs of models, their pictures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED
from clew.lab.grid import Cell
from clew.lab.studies.makkink.claims import CLAIMS, verdict
from clew.lab.studies.report.charts import ranks
from clew.lab.studies.report.comparisons import (
    mean_difference,
    pairs,
    published_tests,
    with_many_seeds,
)
from clew.lab.studies.report.data import StudyData, read_study
from clew.lab.studies.report.make import document
from clew.report.document import Chart, Table, Text
from clew.report.figures import panel_svg, styles_of
from clew.stats import Spread, equivalence_test, welch_from_spreads, welch_test
from report_study import thesis_study, write_folder

MODELS = ["lstm", "transformer-xl", "gtrxl", "rezero", "integrated"]
SETTINGS = ["length-20", "length-70", "size-5"]
MEANS = {"lstm": 0.5, "transformer-xl": 0.3, "gtrxl": 0.8, "rezero": 0.1, "integrated": 0.52}


def score(cell: Cell) -> float:
    """Seeds close to a mean of the model; transformer-xl's are far from it."""
    wide = 0.3 if cell.model == "transformer-xl" else 0.02
    return MEANS[cell.model] + wide * (-1) ** cell.seed * (1 + cell.seed / 100)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    """A corner of the repaired edition with its 30 seeds."""
    folder = tmp_path_factory.mktemp("studies") / "repaired"
    return read_study(write_folder(folder, thesis_study("repaired", MODELS, SETTINGS), score))


def test_verdicts_follow_from_the_numbers(data: StudyData) -> None:
    judged = [claim.judge(data).findings for claim in CLAIMS]
    first, second, third, fourth, fifth, sixth, *_ = (
        [f.verdict for f in findings if f.verdict != NOT_RUN] for findings in judged
    )
    assert first == [HELD] * 8
    assert second == [NOT_HELD] * 8  # no seed scores above 0.9: no difference
    assert third == [HELD] * 2
    # GTrXL and the integrated transformer earn more than the LSTM.
    assert fourth == [HELD, NOT_HELD, HELD, NOT_HELD]
    assert fifth == [HELD] * 8
    assert sixth == [HELD] * 3
    assert [len(findings) for findings in judged] == [12, 8, 2, 10, 10, 4, 1, 10, 1, 10, 2]
    entry = judged[2][0].record
    values = [data.values(model, "length-70") for model in ("gtrxl", "lstm")]
    test = welch_test(*values)
    assert test._asdict().items() <= entry.items() and entry["p_holm"] <= 2 * test.p


def test_seeds_that_solve_it_are_counted_by_fishers_test(tmp_path: Path) -> None:
    study = thesis_study("repaired", ["transformer-xl", "gtrxl"], ["length-20"])
    solved = {"transformer-xl": 3, "gtrxl": 20}
    folder = write_folder(tmp_path / "study", study, lambda c: float(c.seed < solved[c.model]))
    stabler, *missing = CLAIMS[1].judge(read_study(folder)).findings
    assert stabler.comparison == "length-20, gtrxl − transformer-xl" and stabler.verdict == HELD
    expected: Any = fisher_exact([[20, 10], [3, 27]])
    assert stabler.record["p"] == expected.pvalue
    assert {finding.verdict for finding in missing} == {NOT_RUN}


def test_the_rule_of_a_verdict() -> None:
    def judged(mean: float, deviation: float, corrected: float) -> str:
        test = welch_from_spreads(Spread(mean, deviation, 30), Spread(0.0, deviation, 30))
        return verdict(test, corrected, test.high)

    assert judged(0.3, 0.1, 0.01) == HELD
    assert judged(-0.3, 0.1, 0.01) == NOT_HELD
    assert judged(0.1, 0.3, 0.4) == UNDECIDED  # the interval reaches beyond a relevant difference
    assert judged(0.0, 0.02, 1.0) == NOT_HELD  # a relevant difference is ruled out
    alike = welch_from_spreads(Spread(1.0, 0.0, 30), Spread(1.0, 0.0, 30))
    assert verdict(alike, 1.0, alike.high) == NOT_HELD


def test_pairs_are_all_there(data: StudyData) -> None:
    assert with_many_seeds(data) == SETTINGS
    table = pairs(data, "size-5")
    assert len(table.rows) == 10
    record = next(r for r in table.records if (r["first"], r["second"]) == ("lstm", "integrated"))
    x, y = (data.values(model, "size-5") for model in ("lstm", "integrated"))
    test = welch_test(x, y)
    assert record["p"] == test.p and record["difference"] == pytest.approx(-0.02)
    assert record["wins_mean"] == np.mean(np.sign(x[:, None] - y) / 2 + 0.5)
    assert record["seeds_needed"].isdigit()
    assert record["alike_within"] == equivalence_test(x, y, 0.1).within


def test_the_thesiss_own_tests_are_reproduced(data: StudyData) -> None:
    table = published_tests(data, SETTINGS)
    assert table is not None and len(table.records) == 4  # universal and size-10 are missing
    for record in table.records:
        assert record["welch_of_published"] == pytest.approx(record["published_p"], abs=3e-3)


def test_a_mean_over_settings_is_welchs_test_of_one() -> None:
    x, y = Spread(0.5, 0.2, 5), Spread(0.1, 0.3, 8)
    one, test = mean_difference([x], [y]), welch_from_spreads(x, y)
    assert one == pytest.approx((test.difference, test.low, test.high, test.p))
    two = mean_difference([x, x], [y, y])
    assert two is not None and one is not None
    assert two.difference == pytest.approx(one.difference) and two.p < one.p
    assert mean_difference([x._replace(deviation=0.0)], [y._replace(deviation=0.0)]) is None


def test_many_seeds_have_their_own_blocks(data: StudyData) -> None:
    blocks = document([data], styles_of(data.models), "")
    names = {block.name for block in blocks if isinstance(block, Table | Chart)}
    assert {f"makkink-repaired-{name}" for name in ("claims", "seeds", "pairs-size-5")} <= names
    claims = next(b for b in blocks if isinstance(b, Table) and b.name.endswith("-claims"))
    verdicts = [UNDECIDED, NOT_HELD, HELD, NOT_HELD, UNDECIDED, UNDECIDED]
    assert [row[1].text for row in claims.rows][:6] == verdicts
    chart = ranks(data, SETTINGS, styles_of(data.models))
    assert [panel.title for panel in chart.panels][:3] == [
        "length-20, 25% of training",
        "length-20, 50% of training",
        "length-20, evaluated",
    ]


def test_models_look_different() -> None:
    styles = styles_of(f"model {n}" for n in range(40))
    assert len(set(styles.values())) == 40


def test_parts_and_models_without_any_cell(tmp_path: Path) -> None:
    study = thesis_study("published", ["lstm", "gtrxl"], ["length-70", "size-5"])
    study = replace(study, episodes=200)
    skip = [cell for cell in study.cells() if cell[:2] != ("lstm", "length-70")]
    begun = read_study(write_folder(tmp_path / "begun", study, lambda cell: 0.5, skip))
    assert begun.parts_with_rows == ["length"] and len(begun.parts) == 2
    blocks = document([begun], styles_of(begun.models), "")
    told = [block.text for block in blocks if isinstance(block, Text)]
    assert "Memory size: no cell is finished yet." in told
    assert any(t.startswith("Agents were trained for 200 episodes, the published") for t in told)
    names = [block.name for block in blocks if isinstance(block, Table | Chart)]
    assert "makkink-published-size" in names and "makkink-published-size-bars" not in names
    for chart in (block for block in blocks if isinstance(block, Chart)):
        for panel in chart.panels:
            assert "<svg" in panel_svg(panel, chart.size, "x")


def test_a_folder_of_few_seeds_makes_no_claims(tmp_path: Path) -> None:
    study = thesis_study("published", ["lstm", "gtrxl"], ["length-70"])
    few = read_study(write_folder(tmp_path / "few", study, lambda cell: 0.5 + cell.seed / 100))
    blocks = document([few], styles_of(few.models), "")
    assert not any(getattr(block, "name", "").endswith("claims") for block in blocks)
