"""One clock, measurements in turns, and one estimate with its interval.

Imports neither JAX nor SciPy, because processes whose own memory is measured import this too.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

CONFIDENCE = 0.95

K = TypeVar("K")
T = TypeVar("T")


class Estimate(NamedTuple):
    """A median, its interval between two of the measurements, and that interval's confidence."""

    middle: float
    low: float
    high: float
    confidence: float

    def times(self, factor: float) -> "Estimate":
        """The same in another unit."""
        return self._replace(
            middle=factor * self.middle, low=factor * self.low, high=factor * self.high
        )

    def __format__(self, spec: str) -> str:
        """Writes `middle [low, high]`, each number by `spec`."""
        return f"{self.middle:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def estimate(values: Sequence[float]) -> Estimate:
    """The median, with the nearest pair of order statistics that cover it with 95%.

    The number of values below the true median is binomial with 1/2, whatever their distribution, so
    the k-th smallest and the k-th largest of n enclose it with probability 1 - 2 P(X < k). With
    fewer than six values no pair reaches 95%; the pair is then the smallest and the largest, and
    `confidence` is what they reach. With six to eight values it is the smallest and the largest
    too.
    """
    ordered, count = sorted(values), len(values)
    nearest = 1
    while nearest + 1 <= (count + 1) // 2 and _coverage(nearest + 1, count) >= CONFIDENCE:
        nearest += 1
    return Estimate(
        statistics.median(ordered),
        ordered[nearest - 1],
        ordered[count - nearest],
        _coverage(nearest, count),
    )


def ratio(values: Sequence[float], by: Sequence[float]) -> Estimate:
    """The quotient of two series, turn by turn: a slowdown of both in one turn cancels."""
    return estimate([a / b for a, b in zip(values, by, strict=True)])


def seconds_of(call: Callable[[], Any]) -> float:
    """Seconds until a call returns; a JAX call must wait for its result itself."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def by_turns(
    measures: Mapping[K, Callable[[], T]],
    turns: int,
    *,
    warm_up: bool = False,
    rotate: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> dict[K, list[T]]:
    """Measures several things one after the other, and all of them again in the next turn.

    A busy minute of the machine then affects all of them, and ratios within a turn stay valid.

    Args:
        measures: functions to call, by name; each returns its measurement.
        turns: number of measurements of each.
        warm_up: whether an uncounted turn comes first.
        rotate: whether each turn begins with the next function.
        log: called with the number of each turn when it begins.
    """
    names = list(measures)
    found: dict[K, list[T]] = {name: [] for name in names}
    for turn in range(0 if warm_up else 1, turns + 1):
        log(f"turn {turn} of {turns}")
        first = (turn - 1) % len(names) if rotate and names else 0
        for name in names[first:] + names[:first]:
            value = measures[name]()
            if turn:
                found[name].append(value)
    return found


def _coverage(nearest: int, count: int) -> float:
    below = sum(math.comb(count, k) for k in range(nearest)) / 2**count
    return max(0.0, 1 - 2 * below)
