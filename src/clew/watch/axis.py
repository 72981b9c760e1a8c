"""The time axis that everything below the picture shares, and round numbers for scales."""

import math
from typing import NamedTuple

WIDTH, MARGIN = 960, 24
"""Pixels across of a frame, and what stays empty at its edges."""
LEFT, RIGHT = 118, 796
"""Where time begins and ends across; left of it are scales and names."""
PRESENT = RIGHT + 18
"""Where the numbers of the present begin."""


class TimeAxis(NamedTuple):
    """Time across a frame: step t takes the cell from left(t) to left(t + 1)."""

    steps: int

    def left(self, step: float) -> float:
        """Where a step's cell begins, in pixels."""
        return LEFT + (RIGHT - LEFT) * step / self.steps

    def middle(self, step: float) -> float:
        """The middle of a step's cell, in pixels."""
        return self.left(step + 0.5)

    @property
    def cell(self) -> float:
        """Pixels of a cell."""
        return (RIGHT - LEFT) / self.steps

    def ticks(self) -> list[int]:
        """Round steps to be named, the first and about seven others."""
        return [int(tick) for tick in round_numbers(0, self.steps - 1, 7, whole=True)]


def round_numbers(low: float, high: float, about: int, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers.

    Args:
        low: none is below it.
        high: none is above it.
        about: how many there should be.
        whole: of 1 at least.
    """
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    step = max(1.0, step) if whole else step
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + index) * step for index in range(count)]


def written(number: float) -> str:
    """A number in few letters, with a true minus sign."""
    size = abs(number)
    text = f"{number:.0f}" if size >= 1000 else f"{number:.3g}" if size >= 0.005 else "0"
    return text.replace("-", "\u2212")
