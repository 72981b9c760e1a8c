"""Reports of studies: their numbers equal direct computation; their page; their errors."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from clew.cli import run
from clew.lab.grid import Cell, Evaluation, Setting, read_results
from clew.lab.studies.makkink import grid as makkink
from clew.lab.studies.report import charts
from clew.lab.studies.report.data import read_study
from clew.lab.studies.report.make import make_report
from clew.report import files
from clew.report.document import Panel, duration, typeset
from clew.report.figures import new_figure, styles_of
from clew.report.files import Report
from clew.run.config import TrainConfig
from clew.stats import Spread, holm, welch_from_spreads
from made_up_rows import write_rows
from report_study import made_up_row, own_study, thesis_study, undrawn, write_folder
from requested import requested

__all__ = ["undrawn"]

MODELS = ["lstm", "gtrxl", "none"]
SETTINGS = ["length-1", "length-3", "length-20", "distributed-3-3"]
MISSING = [Cell("gtrxl", "length-20", 10), *(Cell("none", "length-20", n) for n in (4, 5, 10))]


def published_score(cell: Cell) -> float:
    """Some of every kind: the published number itself, another constant, a spread."""
    if cell.setting == "length-20":
        return {4: 0.1, 5: 0.11, 10: 0.12}[cell.seed]
    if cell.model == "none":
        return 0.64 if cell.setting.startswith("distributed") else 0.02
    return 0.9 if cell.model == "lstm" else 1.0


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """An unfinished corner of the published edition, and its report."""
    folder = tmp_path_factory.mktemp("studies") / "published"
    write_folder(folder, thesis_study("published", MODELS, SETTINGS), published_score, MISSING)
    return folder, make_report([folder], title="A <title>", note="a slow machine")


def table_of(report: Report, name: str) -> list[dict[str, str]]:
    """The records of one of the report's CSV files."""
    (file,) = (path for path in report.tables if path.stem == name)
    with open(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def test_cells_are_compared_with_the_published_ones(unfinished) -> None:
    _folder, report = unfinished
    records = table_of(report, "makkink-published-length")
    found = {(r["model"], r["setting"]): r for r in records}
    assert found.keys() == {(m, s) for m in MODELS for s in SETTINGS if s.startswith("length")}
    told = makkink.published_table("length")
    p_values, marks = {}, {}
    for (model, setting), record in found.items():
        expected = told[model, setting]
        assert float(record["published_mean"]) == expected.mean
        cells = [Cell(model, setting, seed) for seed in (4, 5, 10)]
        values = [published_score(cell) for cell in cells if cell not in MISSING]
        assert int(record["seeds"]) == len(values)
        if len(values) < 2:
            assert record["mean"] == "" and record["mark"] == ""
            continue
        ours = Spread(np.mean(values), np.std(values, ddof=1), len(values))
        if len(set(values)) == 1:
            ours = ours._replace(deviation=0.0)
        many = setting == "length-20" and model != "none"
        theirs = Spread(expected.mean, expected.std, 30 if many else 3)
        test = welch_from_spreads(ours, theirs)
        assert float(record["p"]) == pytest.approx(test.p, rel=1e-4)
        assert float(record["difference"]) == pytest.approx(test.difference, abs=1e-6)
        p_values[model, setting], marks[model, setting] = test.p, record["mark"]
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    for pair, p in corrected.items():
        assert float(found[pair]["p_holm"]) == pytest.approx(p, rel=1e-4)
    assert marks["lstm", "length-20"] == "●" and corrected["lstm", "length-20"] <= 0.05
    assert marks["lstm", "length-1"] == "◇"  # 0.9, 0.9, 0.9 beside 1.000 ± 0.000
    assert marks["gtrxl", "length-1"] == ""  # no difference at all


def test_means_of_parts_and_floors(unfinished) -> None:
    _folder, report = unfinished
    summary = {(r["model"], r["part"]): r for r in table_of(report, "makkink-published-summary")}
    row = summary["lstm", "length"]
    assert float(row["mean"]) == pytest.approx(np.mean([0.9, 0.9, 0.11]))
    told = makkink.published_table("length")
    published = [told["lstm", name].mean for name in SETTINGS[:3]]
    assert float(row["published"]) == pytest.approx(np.mean(published), rel=1e-5)
    assert float(row["low"]) <= float(row["mean"]) <= float(row["high"])
    row = summary["gtrxl", "length"]
    assert (row["settings"], row["seeds"]) == ("3", "2")  # the third has two of three seeds
    assert float(row["mean"]) == pytest.approx(np.mean([1.0, 1.0, 0.105]))

    floors = {r["setting"]: r for r in table_of(report, "makkink-published-distributed-floors")}
    row = floors["distributed-3-3"]
    assert float(row["memoryless"]) == pytest.approx(0.64)
    assert float(row["normalised lstm"]) == pytest.approx((0.9 - 0.64) / 0.36)
    assert float(row["normalised none"]) == 0.0
    floors = {r["setting"]: r for r in table_of(report, "makkink-published-length-floors")}
    assert floors["length-1"]["normalised lstm"] == ""  # nothing to remember


def test_the_best_floor_without_a_memory(unfinished) -> None:
    data = read_study(unfinished[0])
    info = data.settings["length-3"]
    assert info.floor == pytest.approx(0.02) and not info.needless
    known = {"constant": -0.26, "majority": 0.5, "memoryless": -0.26, "step number": 0.5}
    assert info._replace(floors=known).floor == 0.26  # the other constant answer
    assert info._replace(floors={"majority": 0.5}).floor is None  # it needs a memory
    assert data.settings["length-1"].needless
    assert info._replace(floors={}).floor is None
    assert not info._replace(floors={"random": -1200.0}, perfect=-100.0).needless
    assert info._replace(floors={"random": -100.0}, perfect=-100.0).needless


def test_costs_share_a_programs_seconds(unfinished) -> None:
    costs = {r["model"]: r for r in table_of(unfinished[1], "makkink-published-cost")}
    assert float(costs["lstm"]["steps_per_second"]) == 20  # 40 steps in half of 4 seconds
    assert float(costs["lstm"]["seconds_per_cell"]) == 4
    assert costs["gtrxl"]["parameters_from"] == "105"


class Page(HTMLParser):
    """Collects the resources a browser would load, and checks that every element is closed."""

    VOID = ("meta", "br", "path")

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.names: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [tag] if tag not in self.VOID else []
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.asked.append(value or "")
            if name == "id":
                self.names.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def read_page(path: Path) -> tuple[str, Page]:
    """The text of a page, and what a parser found in it."""
    text, page = path.read_text(encoding="utf-8"), Page()
    page.feed(text)
    return text, page


def test_the_page_stands_by_itself(unfinished) -> None:
    text, page = read_page(unfinished[1].html)
    assert page.open == []
    assert len(page.names) == len(set(page.names))
    assert {link[0] for link in page.asked} == {"#"}
    assert {link[1:] for link in page.asked} <= set(page.names)
    assert "http" not in text and "<img" not in text
    assert text.count("<script") == text.count("<script>") == 1 and "fetch" not in text
    assert "@import" not in text and set(re.findall(r"url\((.)", text)) <= {"#"}
    assert 'content="width=device-width, initial-scale=1"' in text
    assert "@media (max-width: 600px)" in text and "prefers-color-scheme: dark" in text
    assert text.count('<div class="scroll"') == text.count("<table")
    assert len(text) < 1_000_000
    assert "<h1>A &lt;title&gt;</h1>" in text and "a slow machine" in text


def test_what_is_missing_is_told_and_not_zero(unfinished) -> None:
    _folder, report = unfinished
    text = report.html.read_text(encoding="utf-8")
    assert "32 of 36" in text
    assert "Missing cells: gtrxl 1 and none 3." in text
    assert "0.105 ± 0.007 (2)" in text  # two seeds of three
    told = makkink.published_table("length")["none", "length-20"]
    assert f"<td>–<small>{told.mean:.3f} ± {told.std:.3f}</small></td>" in text
    assert "memory not needed" in text
    assert "≡" in text  # no model earns what the last bit earns, with every seed


def test_other_forms_say_the_same(unfinished) -> None:
    folder, report = unfinished
    assert report.html.parent == folder / "report"
    text = report.markdown.read_text(encoding="utf-8")
    for figure in report.figures:
        assert figure.read_bytes().startswith(b"\x89PNG") and f"figures/{figure.name}" in text
        assert "<svg" in figure.with_suffix(".svg").read_text(encoding="utf-8")
    assert "0.900 ± 0.000 ◇<br>1.000 ± 0.000<br>" in text
    names = {path.stem.removeprefix("makkink-published-") for path in report.figures}
    assert names >= {"length-bars", "distributed-bars", "outcomes", "learning", "ranks", "cost"}


@pytest.mark.slow
def test_a_study_of_ones_own_with_one_seed(tmp_path: Path, capsys) -> None:
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.25 + 0.5 * cell.seed)
    assert run(["report", str(folder), "--output", str(tmp_path / "out"), "--title", "Mine"]) == 0
    assert f"report: {tmp_path}/out/report.html (0." in capsys.readouterr().out
    text, page = read_page(tmp_path / "out" / "report.html")
    assert page.open == [] and "<h1>Mine</h1>" in text
    assert "no deviations, no intervals and no tests" in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text and "<b>bold" not in text
    assert "to/the &amp; end" in text and "own &lt;study&gt;" in text
    assert "trained for" not in text  # without a thesis there is no budget to compare with
    assert "published" not in text and "floor" not in text.replace("at the floor", "")
    again = make_report([folder], tmp_path / "again", title="Mine")
    assert again.html.read_text(encoding="utf-8") == text  # byte for byte
    assert "a\\|b" in again.markdown.read_text(encoding="utf-8")


def test_an_unfinished_study_has_a_report(tmp_path: Path, monkeypatch) -> None:
    """One model has one seed, and in another's training no episode ended in time."""
    monkeypatch.setattr(files, "save_chart", lambda chart, _, folder: folder / chart.name)
    floors = {"memoryless": 0.25}
    settings = {name: Setting("tmaze", floors=floors) for name in ("short", "long")}
    study = own_study(settings=settings, seeds=(0, 1))
    late = [cell for cell in study.cells() if cell.model == "a|b" and cell.seed == 1]
    folder = write_folder(tmp_path / "one", study, lambda cell: 0.5 + 0.25 * cell.seed, late)
    report = make_report([folder], tmp_path / "report")
    assert "0.625 ± 0.177" in report.html.read_text(encoding="utf-8")
    ends = [(r["mean_low"], r["mean_high"]) for r in table_of(report, "own--study-all")]
    assert ends == [("0.5", "0.75"), ("", "")] * 2
    rows = read_results(folder)
    rows[0]["mean"] = None
    write_rows(folder, rows)
    assert read_study(folder).values(rows[0]["model"], rows[0]["setting"]).tolist() == [0.75]
    again = make_report([folder], tmp_path / "again")
    assert "0.625 ± 0.177" in again.html.read_text(encoding="utf-8")  # of the other setting
    write_rows(folder, rows[:1])
    make_report([folder], tmp_path / "nothing")  # no row has a score yet


CORRIDORS = {name: Setting("tmaze", {"corridor_length": n}) for name, n in (("a", 3), ("b", 30))}


def fabricated(folder: Path, scores: dict[str, dict[str, list[float | None]]], **changes) -> Path:
    """A study's folder with the scores of the seeds from 0; seeds beyond a list are missing."""
    models = {name: TrainConfig(memory="none") for name in scores}
    values = {"models": models, "settings": CORRIDORS, "seeds": tuple(range(5))}
    study = own_study(**(values | changes))
    missing = [c for c in study.cells() if c.seed >= len(scores[c.model][c.setting])]
    return write_folder(folder, study, lambda c: scores[c.model][c.setting][c.seed], missing)


NINE, FIVE = [0.9, 0.9, 0.91, 0.9, 0.92], [0.5, 0.52, 0.5, 0.51, 0.5]


@pytest.mark.parametrize(
    ("mine", "cell", "headline"),
    [
        (
            {"a": [0.95, 0.96, 0.97], "b": [0.95, 0.96, 0.97]},
            "0.960 [0.953, 0.967] 3 of 5 seeds",
            "no best model is named over 2 settings, as means are over different seeds: mine "
            "has 3 of 5 seeds.",
        ),
        (
            {"a": [0.91, 0.92, 0.91, 0.91, 0.93], "b": [0.1, 0.1, 0.1, 0.1]},
            "0.508 [0.505, 0.512] 4 to 5 of 5 seeds",
            "no best model is named over 2 settings, as means are over different seeds: mine "
            "has 4 to 5 of 5 seeds.",
        ),
        (
            {"a": [0.95, 0.95, 0.95, 0.95, 0.95], "b": []},
            "0.950 [0.950, 0.950] 1 of 2 settings",
            "mine has the highest mean success rate, 0.950 over 1 of 2 settings, those in which "
            "all models have a score.",
        ),
        (
            {"a": [0.91, 0.92, None, None, 0.93], "b": [None] * 5},
            "0.920 [0.910, 0.930] 1 of 2 settings 3 of 5 seeds",
            "Trainings that ended without a score and are in no mean: mine 7.",
        ),
        (
            {"a": [0.95, 0.95, 0.95, 0.95, 0.95], "b": [0.15]},
            "0.550 1 to 5 of 5 seeds",
            "mine has 1 to 5 of 5 seeds.",
        ),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_means_say_which_seeds_and_settings_they_lack(
    tmp_path: Path, mine: dict, cell: str, headline: str
) -> None:
    """Every setting with a seed counts, in the summary and beside the cost."""
    scores = {"gru": {"a": NINE, "b": FIVE}, "mine": mine}
    text = make_report([fabricated(tmp_path / "x", scores)]).markdown.read_text()
    assert headline in text
    text = text.replace("<br>", " ").replace("\\", "")
    assert f"| mine | {cell} |" in text
    mean, *_, remark = cell.partition("]") if "]" in cell else cell.partition(" ")
    assert f"{mean.split()[0]} {remark.strip()} |" in text[text.index("Parameters and cost") :]


@pytest.mark.usefixtures("undrawn")
def test_the_same_seeds_are_compared_though_some_lack(tmp_path: Path) -> None:
    scores = {"gru": {"a": NINE[:3], "b": FIVE[:3]}, "mine": {"a": NINE[1:4], "b": FIVE[:3]}}
    text = make_report([fabricated(tmp_path / "x", scores)]).markdown.read_text()
    assert (
        "gru and mine have the highest mean success rate, 0.705 over 2 settings, with 3 of 5 seeds."
        in text
    )


@pytest.mark.usefixtures("undrawn")
def test_normalised_scores_are_over_every_setting_of_a_model(tmp_path: Path) -> None:
    """A model is ranked against those that have all of its settings; here one stands alone."""
    settings = {name: replace(s, floors={"memoryless": 0.1}) for name, s in CORRIDORS.items()}
    scores = {"gru": {"a": NINE, "b": FIVE[:4]}, "mine": {"a": NINE[:3], "b": []}}
    report = make_report([fabricated(tmp_path / "x", scores, settings=settings)])
    rows = table_of(report, "own--study-normalised")
    found = {(row["model"], row["aggregate"]): row for row in rows}
    means = [found[model, "mean"] for model in scores]
    assert [(row["settings"], row["seeds"]) for row in means] == [("2", "4"), ("1", "3")]
    both = np.mean([NINE[:4], FIVE[:4]])
    assert float(means[0]["value"]) == pytest.approx((both - 0.1) / 0.9, abs=1e-6)
    assert ("mine", "better than others") in found and ("gru", "better than others") not in found
    assert "4 to 5 of 5 seeds" in report.markdown.read_text()


@pytest.mark.parametrize(
    ("perfect", "floor", "said"),
    [
        (500.0, 50.0, "| a | 50.00 | 0.98 | 0.03 |"),
        (500.0, 450.0, "| a<br>memory not needed | 450.00 | – | – |"),
        (1.0, 50.0, "a: the floor of 50 is above the perfect score, 1, so its floors are left out"),
        (1.0, 0.5, "a: a score of 500 is above the perfect score, 1, so its floors are left out"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_a_perfect_score_other_than_one(
    tmp_path: Path, perfect: float, floor: float, said: str
) -> None:
    pole = Setting("gymnasium:CartPole-v1", floors={"memoryless": floor}, perfect=perfect)
    changes = {"settings": {"a": pole}, "score": "return"}
    scores = {"gru": {"a": [490, 495, 500, 480, 499]}, "mine": {"a": [60, 55, 70, 65, 62]}}
    folder = fabricated(tmp_path / "x", scores, **changes)
    text = make_report([folder]).markdown.read_text()
    assert said in text
    assert ("memory not needed" in text) == (floor == 450.0)
    assert ("**Normalised scores**" in text) == ((floor, perfect) == (50.0, 500.0))
    study = json.loads((folder / "study.json").read_text())
    assert study["settings"]["a"].pop("perfect") == perfect
    (folder / "study.json").write_text(json.dumps(study))  # as in older folders
    assert read_study(folder).settings["a"].perfect == 1.0


@pytest.mark.usefixtures("undrawn")
def test_rows_of_another_budget_are_counted_and_not_shown(tmp_path: Path) -> None:
    """As after a longer budget was asked for; their seconds are part of the longer ones'."""
    study = own_study(settings={"corridor": Setting("tmaze")}, seeds=(0, 1))
    folder = write_folder(tmp_path / "one", study, lambda cell: 0.5 + 0.25 * cell.seed)
    longer = [
        made_up_row(study, cell, 1.0) | {"steps": 80, "seconds": 400.0}
        for cell in study.cells()
        if cell.model == "a|b"
    ]
    write_rows(folder, longer, "a")
    text = make_report([folder], tmp_path / "report").html.read_text(encoding="utf-8")
    assert "2 rows of another budget (40 steps) are not shown." in text
    assert "Models were trained for different numbers of steps in corridor: 40 to 80." in text
    assert "0.625 ± 0.177" in text and "1.000 ± 0.000" in text
    assert duration(2 * 4.0 + 2 * 400.0) in text
    assert "40 to 80 steps per cell" in text


@pytest.mark.parametrize(
    ("settings", "headline"),
    [
        (["a", "b"], "gru and lstm have the highest mean success rate, 0.500 over 2 settings."),
        (["a"], "gru and lstm have the highest mean success rate, 0.500 over 1 setting."),
        (["a", "c"], "have the highest mean success rate, 0.500 over 1 setting that needs a"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_equal_models_are_both_the_best(tmp_path: Path, settings: list[str], headline: str) -> None:
    forms = {name: CORRIDORS.get(name, NEEDLESS) for name in settings}
    scores = {model: {n: [x] * 5 for n in "abc"} for model, x in EQUAL.items()}
    text = make_report([fabricated(tmp_path / "x", scores, settings=forms)]).markdown.read_text()
    assert headline in text
    assert ("- 1 setting\n" in text) == (len(settings) == 1) and "- 3 models\n" in text


NEEDLESS = Setting("tmaze", floors={"memoryless": 1.0})
EQUAL = {"gru": 0.5, "lstm": 0.1 + 0.4, "none": 0.2}


@pytest.mark.usefixtures("undrawn")
def test_a_model_alone_is_not_the_best_and_rows_without_scores_are_there(tmp_path: Path) -> None:
    scores = {"gru": {"a": NINE, "b": FIVE}, "lstm": {"a": [], "b": []}}
    text = make_report([fabricated(tmp_path / "one", scores)]).markdown.read_text()
    assert "only gru has scores, a mean success rate of 0.706 over 2 settings." in text
    assert "highest" not in text
    scores = {"gru": {"a": [None] * 5, "b": [None] * 5}}
    text = make_report([fabricated(tmp_path / "none", scores)]).markdown.read_text()
    assert "All settings: no training has a score." in text


def test_a_model_with_rows_and_without_scores_has_no_ranks(tmp_path: Path, monkeypatch) -> None:
    """It used to end the report: "values must be a list with ... at least 2 seeds"."""
    monkeypatch.setattr(files, "save_chart", lambda chart, _, folder: folder / chart.name)
    many, seeds = [n / 20 for n in range(10)], tuple(range(10))
    scores = {"gru": {"a": many}, "lstm": {"a": many}, "mine": {"a": [None] * 9 + [0.5]}}
    settings = {"a": CORRIDORS["a"]}
    report = make_report([fabricated(tmp_path / "x", scores, settings=settings, seeds=seeds)])
    assert "own--study-ranks" in {path.stem for path in report.figures}


def test_floors_and_early_scores_below_all_others_are_within_the_axes(tmp_path: Path) -> None:
    settings = {"a": Setting("tmaze", floors={"memoryless": -3.0})}
    scores = {name: {"a": [n / 20 for n in range(10)]} for name in ("gru", "lstm")}
    changes = {"settings": settings, "seeds": tuple(range(10)), "score": "return"}
    folder = fabricated(tmp_path / "x", scores, **changes)
    rows = read_results(folder)
    for row in rows:
        row["curve"]["return"] = [-9.0, -8.0, None, row["mean"]]
    write_rows(folder, rows)
    data = read_study(folder)
    styles = styles_of(data.models)
    early = charts.ranks(data, ["a"], styles)
    assert limits_of(early.panels[0])[0] < -9.0
    assert limits_of(charts.bars(data, "all", styles).panels[0])[0] < -3.0
    assert limits_of(charts.many_seeds(data, ["a"], styles).panels[0])[0] == -0.05
    assert "published" not in charts.many_seeds(data, ["a"], styles).caption


def test_many_models_are_a_heat_map_of_means_with_the_best_at_the_top(tmp_path: Path) -> None:
    settings = {"a": Setting("tmaze", floors={"memoryless": 0.5}), "b": Setting("tmaze")}
    scores = {f"m{n}": {"a": [0.5, 0.5 + 0.04 * n], "b": [0.1]} for n in range(12)}
    scores["late"] = {"a": [], "b": [0.7]}
    few = fabricated(tmp_path / "few", {"m1": scores["m1"]}, settings=settings)
    many = fabricated(tmp_path / "many", scores, settings=settings)
    data = read_study(few)
    assert charts.scores(data, "all", styles_of(data.models)).name.endswith("-bars")
    data = read_study(many)
    [panel] = charts.scores(data, "all", styles_of(data.models)).panels
    axes = new_figure(5.0, 3.0).subplots()
    panel.draw(axes)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:3] == ["late", "m11", "m10"] and labels[-1] == "m0"
    assert [text.get_text() for text in axes.texts[:3]] == ["0.70", "0.72", "0.10"]
    assert axes.images[0].get_array()[1].tolist() == pytest.approx([0.44, 0.0])


def limits_of(panel: Panel) -> tuple[float, float]:
    """The limits of the score axis of a drawn panel."""
    axes = new_figure(3.0, 2.0).subplots()
    panel.draw(axes)
    scores_along_x = axes.get_xlabel() == "return"
    return axes.get_xlim() if scores_along_x else axes.get_ylim()


@pytest.mark.usefixtures("undrawn")
def test_seconds_of_runs_are_those_of_the_whole_machine_and_speed_is_trainings(
    tmp_path: Path,
) -> None:
    whole = {"resumable": True, "whole_machine": True, "evaluation": Evaluation(episodes=0)}
    study = own_study(seeds=(0, 1), **whole)
    folder = write_folder(tmp_path / "one", study, lambda cell: 0.5)
    rows = read_results(folder)
    for row in rows:
        del row["pack"]
        row |= {"timed": {"train": 1.0, "evaluate": 3.0}, "episodes": 0, "last": {"steps": 20}}
    write_rows(folder, rows)
    report = make_report([folder])
    costs = table_of(report, "own--study-cost")
    assert {row["steps_per_second"] for row in costs} == {"40"}
    text = report.markdown.read_text()
    assert "one core" not in text and "32.0 seconds of the whole machine" in text
    assert "none: scores are means over the last 20 steps of training" in text


COMMANDS = [
    "makkink --edition repaired --settings length-20,length-70 --models lstm --seeds 3",
    "makkink --edition published --part distributed --episodes 50 --evaluation-episodes 7",
    "makkink --edition published --part all",
    "popgym --difficulty hard --learner a2c --steps 5e4 --settings autoencode --models gru,none",
    "popgym --models gru --add-memory mine=own_lru:LRU hidden-size=16",
    "tmaze --edition repaired --corridors 10,20 --models lstm,gru --steps 1e5 --seeds 1",
    "tmaze --sweep --corridors 120 --models lstm",
    "memory-maze --mazes 9,13 --models lstm --seeds 1 --steps 1e6",
    "memory-maze --runner sync --actors 2 --environments 12",
    "memory-maze --sweep --seeds 2",
    "memory-maze --env gymnasium:A-v0,gymnasium:B-v0",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_of_a_report_makes_the_folder(words: str, tmp_path: Path) -> None:
    study = requested(words)
    first = study.cells()[0]
    folder = write_folder(tmp_path / "a folder", study, lambda _: 0.5, {*study.cells()} - {first})
    data = read_study(folder)
    command = data.page.command(data)
    assert command.startswith("clew study ") and command.endswith(f" --run-dir '{folder}'")
    assert requested(command.removeprefix("clew study ")) == study


@pytest.mark.usefixtures("undrawn")
def test_two_studies_of_one_name_do_not_mix(tmp_path: Path) -> None:
    study = own_study(settings={"corridor": Setting("tmaze")}, seeds=(0, 1))
    folders = [
        write_folder(tmp_path / name, study, lambda cell, base=base: base + 0.5 * cell.seed)
        for name, base in (("one", 0.25), ("two", 0.5))
    ]
    report = make_report(folders, tmp_path / "both")
    written = [path.name for path in (*report.figures, *report.tables)]
    assert len(set(written)) == len(written)
    text = report.html.read_text(encoding="utf-8")
    assert "0.500 ± 0.354" in text and "0.750 ± 0.354" in text


def test_rows_that_a_narrower_command_left_behind_are_shown(tmp_path: Path) -> None:
    whole = thesis_study("published", ["lstm"], ["length-20", "length-2"])
    folder = write_folder(tmp_path / "x", whole, lambda cell: 1.0)
    later = made_up_row(whole, Cell("mine", "length-20", 4), 0.5)
    with open(folder / "results.jsonl", "a") as file:
        file.write(json.dumps(later) + "\n" + '{"cut short')
    study = json.loads((folder / "study.json").read_text())
    del study["settings"]["length-2"]
    (folder / "study.json").write_text(json.dumps(study))
    data = read_study(folder)
    assert list(data.settings) == ["length-2", "length-20"]
    assert data.settings["length-2"].floors["constant"] == pytest.approx(-0.02)
    assert list(data.models) == ["lstm", "mine"]
    assert data.values("mine", "length-20").tolist() == [0.5]


def test_words() -> None:
    assert typeset("-0.020 [-0.10, +0.30] length-20 -0.00 2026-01-02") == (
        "−0.020 [−0.10, +0.30] length-20 0.00 2026-01-02"
    )
    assert (duration(90), duration(7200), duration(200_000)) == (
        "90.0 seconds",
        "2.0 hours",
        "2.3 days",
    )
