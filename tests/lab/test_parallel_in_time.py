"""The time to learn a chunk in parallel and step by step: measurements and their report."""

import json
from pathlib import Path

import pytest
from benchmarks.parallel_in_time import main


@pytest.mark.slow
def test_the_command_shows_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--memories", "gruu"]) == 2
    assert "did you mean 'gru'" in capsys.readouterr().err
    assert main(["--lengths", "0"]) == 2
    assert "lengths must be an integer of at least 1, got 0" in capsys.readouterr().err
    names = ["--memories", "gru", "arelit"]
    assert main(["--quick", *names, "--lengths", "4", "9", "--output", str(tmp_path)]) == 0
    assert "QUICK" in capsys.readouterr().out
    rows = json.loads((tmp_path / "parallel.json").read_text())["rows"]
    found = [(row["memory"], row["length"]) for row in rows]
    assert {("gru", 4), ("gru", 9), ("arelit, chunkwise", 9)} <= set(found)
    assert len(set(found)) == len(found)
    for row in rows:
        times = row["times_faster"]
        assert 0 < times["low"] <= times["middle"] <= times["high"] and row["whole_bytes"] > 0
    assert (tmp_path / "parallel.png").stat().st_size > 3_000
