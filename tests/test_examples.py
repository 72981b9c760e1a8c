"""The example programs run and, given time, learn what they say."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from clew.lab.grid import Evaluation

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_gymnasium_loop_runs(ordinary_promotion: None) -> None:
    """Twenty updates: enough to see episodes end and the loop go on."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=20)
    assert len(shares) == 1 and 0 < shares[0] < 1


def test_own_study_runs(ordinary_promotion: None, tmp_path: Path) -> None:
    """A budget of a second, in a worker of its own, and nothing to do the second time."""
    example = runpy.run_path(str(EXAMPLES / "own_study.py"))
    study = example["STUDY"].only(models=["1 layers"], settings=["corridor 5"])
    study = replace(study, seeds=(3, 1), steps=2048, evaluation=Evaluation(episodes=8))
    result = example["main"](study, tmp_path, workers=1)
    assert [row["seed"] for row in result.rows] == [3, 1] and not result.failures
    assert all(0 <= row["mean"] <= 1 and row["episodes"] == 8 for row in result.rows)
    assert example["main"](study, tmp_path).rows == result.rows


@pytest.mark.slow
def test_gymnasium_loop_learns(ordinary_promotion: None) -> None:
    """Success reaches what no agent without memory can have."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=200)
    assert max(shares) > 0.9
