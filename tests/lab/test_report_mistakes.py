"""The errors of `clew report` when it cannot make a report."""

import json
import re
from pathlib import Path

import pytest

from clew.cli import run
from clew.errors import UserError
from clew.lab.grid import read_results
from clew.lab.studies.report.data import read_study
from clew.lab.studies.report.make import make_report
from clew.run.json_lines import DamagedRowWarning
from made_up_rows import write_rows
from report_study import own_study, undrawn, write_folder

__all__ = ["undrawn"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"study.json": None}, "has no study.json: not a study's folder"),
        ({"study.json": "{"}, "study.json cannot be read"),
        ({"study.json": '{"format": 1}'}, "has no 'name'"),
        ({"study.json": '{"format": 9}'}, "was written by a newer clew"),
        ({"results.jsonl": ""}, "has no finished cell yet"),
        ({"results.jsonl": '{"model": "a"}\n'}, "line 1 has no 'setting'"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, capsys, change, message: str) -> None:
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.5)
    for name, text in change.items():
        (folder / name).unlink() if text is None else (folder / name).write_text(text)
    assert run(["report", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": float("nan")}, "line 2: 'mean' must be a finite number or null, got nan"),
        ({"mean": "0.3"}, "line 2: 'mean' must be a finite number or null, got '0.3'"),
        ({"mean": True}, "line 2: 'mean' must be a finite number or null, got True"),
        ({"seed": "0"}, "line 2: 'seed' must be an integer, got '0'"),
        ({"curve": []}, "line 2: 'curve' must be an object of lists, got []"),
        ({"curve": {"steps": []}}, "line 2: its 'curve' has no list of 'steps'"),
        ({"score": "length"}, "line 2: its score is 'length', and 'success' in the rows before"),
    ],
)
def test_rows_edited_by_hand_are_named_by_line(tmp_path: Path, change, message: str) -> None:
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.5)
    rows = read_results(folder)
    rows[1] |= change
    if "score" in change:
        rows[1]["curve"]["length"] = rows[1]["curve"]["success"]
    write_rows(folder, rows)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        read_study(folder)
    assert str(folder / "results.jsonl") in str(error.value)


def test_a_damaged_row_is_left_out_and_named(tmp_path: Path, capsys) -> None:
    """The line number of another mistake is that in the file, not among the good rows."""
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.5)
    rows = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(f"{{\n{rows}")
    with pytest.warns(DamagedRowWarning, match="jsonl: line 1 is damaged, it is not valid JSON"):
        assert len(read_study(folder).rows) == len(own_study().cells())
    (folder / "results.jsonl").write_text("[]\n{}\n")
    with pytest.warns(DamagedRowWarning, match="line 1 is damaged, it is not a JSON object"):
        assert run(["report", str(folder)]) == 2
    assert "line 2 has no 'model'" in capsys.readouterr().err


def test_joined_rows_count_once_and_must_be_of_the_same_settings(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.5)
    rows = read_results(folder)
    write_rows(folder, [*rows, rows[0] | {"mean": 0.9}])
    assert {found["mean"] for found in read_study(folder).rows} == {0.5}
    write_rows(folder, [*rows, rows[0] | {"seed": 77, "digest": "other"}])
    with pytest.raises(UserError, match=r"was trained with other settings \(other\) than in a row"):
        read_study(folder)


@pytest.mark.usefixtures("undrawn")
def test_what_failed_is_named(tmp_path: Path) -> None:
    """Unless it was trained since; and cells say how many settings they cover."""
    folder = write_folder(tmp_path / "own", own_study(), lambda cell: 0.5)
    gone, *left = read_results(folder)
    write_rows(folder, left)
    rows = [
        {"model": row["model"], "settings": [row["setting"]], "seeds": [row["seed"]]}
        for row in (gone, left[-1])
    ]
    (folder / "failures.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (cell,) = read_study(folder).failed
    assert cell == (gone["model"], gone["setting"], gone["seed"])
    text = make_report([folder], tmp_path / "page").markdown.read_text()
    assert f" on {cell.setting} with seed {cell.seed} (failures.jsonl says why)" in text


def test_mistakes_of_the_command(tmp_path: Path, capsys, monkeypatch) -> None:
    write_folder(tmp_path / "runs" / "makkink-published", own_study(), lambda cell: 0.5)
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    for args, message in {
        "": "which studies? clew report FOLDER ...",
        "makkink-publised": "did you mean 'runs/makkink-published'",
        "makkink-published --titel x": "did you mean --title",
        "makkink-published --output file/x": "cannot write the report in file/x: Not a directory",
    }.items():
        assert run(["report", *args.split()]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="give at least one folder of a study"):
        make_report([])
