"""The example programs run and, given time, learn what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_gymnasium_loop_runs(ordinary_promotion: None) -> None:
    """Twenty updates: enough to see episodes end and the loop go on."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=20)
    assert len(shares) == 1 and 0 < shares[0] < 1


@pytest.mark.slow
def test_gymnasium_loop_learns(ordinary_promotion: None) -> None:
    """Success reaches what no agent without memory can have."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=200)
    assert max(shares) > 0.9
