"""`clew compare --memories`: the same settings for all, trained once, with a page."""

from pathlib import Path

import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.lab.comparison import settings_of

WORDS = (
    "compare --memories none gru --memory-options hidden_size=4 --env-options corridor_length=2 "
    "--a2c.num-envs 2 --a2c.rollout-length 8 --network.head-size 4 --seeds 2 --steps 1e3"
)


def test_the_runs_differ_in_their_memory_alone() -> None:
    options = {"hidden_size": 4, "num_heads": 1}
    config = clew.TrainConfig(memory_options=options, steps=2048, run_dir="here", name="all")
    found = settings_of(config, ["gru", "gtrxl"])
    assert found["gru"].memory_options == {"hidden_size": 4}
    assert found["gtrxl"].memory_options == options
    assert [c.run_dir for c in found.values()] == [str(Path("here") / "all")] * 2
    assert [c.name for c in found.values()] == ["gru", "gtrxl"]
    left_out = settings_of(clew.TrainConfig(), ["none", "lstm"])
    assert left_out["lstm"].memory_options == clew.TrainConfig(memory="lstm").memory_options
    own = settings_of(config, ["own_lru:LRU", "gtrxl"])
    assert own["own_lru:LRU"].memory_options == {"hidden_size": 4}
    with pytest.raises(UserError, match="unknown option of these memories 'heads'"):
        settings_of(clew.TrainConfig(memory_options={"heads": 1}), ["none", "lstm"])


@pytest.mark.slow
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Trains, compares, and trains nothing when it is given again."""
    monkeypatch.chdir(tmp_path)
    assert run(WORDS.split()) == 0
    said = capsys.readouterr().out
    assert "none > gru" in said and "page: runs/compare-tmaze/compare.html" in said
    page = (tmp_path / "runs/compare-tmaze/compare.html").read_text()
    assert "Probability of improvement" in page and "<svg" in page
    states = sorted(tmp_path.glob("runs/*/*/checkpoints/*"))
    assert run(WORDS.split()) == 0
    assert sorted(tmp_path.glob("runs/*/*/checkpoints/*")) == states
    assert "none > gru" in capsys.readouterr().out
    assert run([*WORDS.split(), "--a2c.gamma", "0.5"]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err
