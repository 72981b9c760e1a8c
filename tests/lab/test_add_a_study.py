"""The page on adding a study works: its code, its line in the registry, its commands."""

import re
from pathlib import Path

import pytest

from clew.cli import run
from clew.lab.studies import STUDIES
from report_study import write_folder
from requested import requested

PAGE = Path(__file__).parents[2] / "docs" / "add-a-study.md"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's blocks as the module `toy_study`, and one line in `STUDIES`."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "toy_study.py").write_text("".join(blocks))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(STUDIES, "toy", "toy_study:STUDY")
    return tmp_path


def test_its_commands_know_the_study(toy: Path, capsys: pytest.CaptureFixture) -> None:
    """Options, refusals, the listing and the report work."""
    with pytest.raises(SystemExit):
        run(["study", "toy", "--help"])
    assert "Only these corridor lengths" in capsys.readouterr().out
    study = requested("toy --models gru --seeds 2 --corridors 5")
    assert (list(study.models), study.seeds, list(study.settings)) == (
        ["gru"],
        (0, 1),
        ["corridor-5"],
    )
    assert run(["study", "toy", "--list", "--run-dir", str(toy / "none")]) == 0
    assert "toy/corridors" in capsys.readouterr().out
    assert run(["study", "toy", "--mazes", "9"]) == 2
    assert "--mazes is for memory-maze, not for toy" in capsys.readouterr().err

    study = requested("toy")
    folder = write_folder(toy / "run", study, lambda cell: 1.0 if cell.model == "gru" else 0.5)
    assert run(["report", str(folder)]) == 0
    told = (folder / "report" / "report.md").read_text()
    assert "a GRU remembers over ten steps" in told and "1 of 1 claims held" in told
    assert f"clew study toy --run-dir {folder}" in told.replace("\\", "")
