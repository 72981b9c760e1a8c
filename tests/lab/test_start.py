"""Starts are timed until the first update, by the command that a user types."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks import start

from clew.report.document import NothingMeasured
from clew.run.config import TrainConfig
from clew.run.progress import Lines, Report

SAYS = "import sys, time; print({!r}, file=sys.stderr, flush=True); time.sleep({})"


def saying(text: str, seconds: float) -> subprocess.Popen[str]:
    """A process that prints a text and waits."""
    command = [sys.executable, "-c", SAYS.format(text, seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_the_line_after_the_first_update_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line before it looks the same."""
    lines = Lines()
    lines.start(tmp_path, TrainConfig())
    lines.phase("compiling")
    assert start.FIRST_STEP not in capsys.readouterr().err
    lines.report(Report(1, 10, 5.0, 0.1, 2.0, None))
    assert start.FIRST_STEP in capsys.readouterr().err


def test_a_command_that_ends_early_gives_no_figures() -> None:
    with saying("12 steps/s", 60) as process:
        start.await_first_step(process)
        process.kill()
    with (
        saying("error: no such thing", 0) as process,
        pytest.raises(NothingMeasured, match="no such"),
    ):
        start.await_first_step(process)


def test_cold_comes_before_warm_in_one_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And every turn has its own folder."""
    folders: list[str] = []

    def launch(arguments: Sequence[str], folder: str, checkout: Path) -> subprocess.Popen[str]:
        assert checkout == start.HERE
        assert Path(folder, "kernels").is_symlink() and "hidden_size=8" in arguments
        folders.append(folder)
        return saying("12 steps/s", 60)

    monkeypatch.setattr(start, "launch", launch)
    monkeypatch.setattr(start, "why_not", lambda: "")
    assert start.main(["--quick", "--memories", "lstm", "gru", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in data["rows"]] == ["lstm", "gru"]
    assert folders[0] == folders[1] != folders[2] == folders[3]


@pytest.mark.slow
def test_the_real_command_starts_faster_when_warm() -> None:
    cold, warm = start.cold_and_warm(start.QUICK)
    assert 0 < warm < cold
