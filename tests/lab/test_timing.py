"""The timer and the estimate: turns, ratios within them, medians with intervals."""

import subprocess
import sys
import time

import numpy as np
import pytest

from clew.lab.bench.timing import by_turns, estimate, ratio, seconds_of


@pytest.mark.parametrize(
    ("count", "nearest", "confidence"),
    [(2, 1, 0.5), (5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.961)],
)
def test_medians_lie_between_order_statistics(count: int, nearest: int, confidence: float) -> None:
    values = [float(v) for v in np.random.default_rng(0).permutation(count)]
    found = estimate(values)
    assert found.middle == (count - 1) / 2
    assert (found.low, found.high) == (nearest - 1, count - nearest)
    assert found.confidence == pytest.approx(confidence, abs=1e-3)


def test_measurements_take_turns() -> None:
    """A first turn may warm up, and each turn may start with another measurement."""
    called: list[str] = []
    logged: list[str] = []

    def measure(name: str) -> int:
        called.append(name)
        return len(called)

    measures = {"a": lambda: measure("a"), "b": lambda: measure("b")}
    assert by_turns(measures, 2, warm_up=True, log=logged.append) == {"a": [3, 5], "b": [4, 6]}
    assert called == ["a", "b"] * 3
    assert logged == ["turn 0 of 2", "turn 1 of 2", "turn 2 of 2"]
    called.clear()
    assert by_turns(measures, 3, rotate=True) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert called == ["a", "b", "b", "a", "a", "b"]
    assert by_turns({}, 2) == {}


def test_ratios_are_of_the_same_turn() -> None:
    """A slowdown of both measurements in one turn cancels."""
    assert ratio([2.0, 20.0, 4.0], [1.0, 10.0, 2.0])[:3] == (2.0, 2.0, 2.0)
    assert f"{estimate([1.0, 2.0, 3.0]):.1f}" == "2.0 [1.0, 3.0]"


def test_seconds_are_those_of_the_call() -> None:
    """A sleep lasts at least as long as it should."""
    assert seconds_of(lambda: time.sleep(0.01)) >= 0.01


def test_the_timer_imports_neither_jax_nor_scipy() -> None:
    """Processes whose memory is measured load it."""
    code = "import sys, clew.lab.bench.timing; print({'jax', 'scipy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
