"""The panels below the picture: value, policy or actions, and memory, over one time axis.

Everything that holds for the whole episode is drawn once by matplotlib into a panel's axes: x is
time in steps, y is specific to the panel. Everything that changes is drawn onto each frame.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from clew.envs.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    QUIET,
    RED,
    YELLOW,
    Canvas,
    mixed,
    rgb,
)
from clew.watch.scores import Scores, format_number

WIDTH, MARGIN = 960, 24
"""Width of a frame and of its margins, in pixels."""
LEFT, RIGHT = 118, 796
"""Horizontal ends of the time axis; left of it are scales and names."""
PRESENT = RIGHT + 18
"""Left end of the numbers of the present step."""
POINT = 0.72
"""Points per pixel, at 100 dots per inch."""
SMALL = 13
"""Text size of scales and titles, in pixels."""
FONT = "DejaVu Sans"
LINES = (BLUE, ORANGE, GREEN, RED, YELLOW, INK)
_NAMED_ROW, _LONGEST_BAR, _SMALLEST_DOT = 13, 62, 0.8


class TimeAxis(NamedTuple):
    """The horizontal time axis of a frame: step t has the cell from left(t) to left(t + 1)."""

    steps: int

    def left(self, step: float) -> float:
        """The left end of a step's cell, in pixels."""
        return LEFT + (RIGHT - LEFT) * step / self.steps

    def middle(self, step: float) -> float:
        """The middle of a step's cell, in pixels."""
        return self.left(step + 0.5)

    @property
    def cell(self) -> float:
        """Width of a cell in pixels."""
        return (RIGHT - LEFT) / self.steps

    def ticks(self) -> list[int]:
        """Round steps to label, the first and about seven others."""
        return [int(tick) for tick in round_numbers(0, self.steps - 1, 7, whole=True)]


def round_numbers(low: float, high: float, about: int, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers, `about` of them.

    Args:
        low: none is below it.
        high: none is above it.
        about: how many there should be.
        whole: integers only.
    """
    if high <= low:
        return [low]
    found = MaxNLocator(about, steps=[1, 2, 5, 10], integer=whole).tick_values(low, high)
    return [float(tick) for tick in found if low <= tick <= high]


class FilmPanel(Protocol):
    """A strip of a frame, `height` pixels high."""

    title: str
    height: int
    cells: bool
    """Whether a step fills its cell, or is the point in its middle."""

    def draw(self, axes: Axes) -> None:
        """Draws everything that does not change from frame to frame: the whole episode."""

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """Draws the information of one step, into the strip and beside it."""


class Scale:
    """The range of a panel that shows numbers as lines; all of them fit into it."""

    def __init__(self, numbers: np.ndarray):
        known = numbers[np.isfinite(numbers)] if np.isfinite(numbers).any() else np.zeros(1)
        low, high = float(known.min()), float(known.max())
        room = 0.08 * (high - low) or 0.5
        self.low, self.high = low - room, high + room

    def share(self, number: float) -> float:
        """The vertical place of a number in the panel, from 0 (top) to 1."""
        return (self.high - number) / (self.high - self.low)

    def draw(self, axes: Axes) -> None:
        """Sets the range, with lines at round numbers."""
        axes.set_ylim(self.low, self.high)
        for tick in round_numbers(self.low, self.high, 4):
            draw_rule(axes, tick, QUIET if tick == 0 else FAINT)
            draw_name(axes, tick, format_number(tick))


def draw_rule(axes: Axes, y: float, colour: str) -> None:
    """A thin horizontal line across a panel, including its edge."""
    axes.axhline(y, color=colour, linewidth=POINT, solid_capstyle="butt", clip_on=False, zorder=1)


def draw_name(axes: Axes, y: float, text: str, colour: str = QUIET) -> None:
    """A name left of a panel; matplotlib's ticks would take ten times as long."""
    axes.text(
        -10 / (RIGHT - LEFT), y, text, transform=axes.get_yaxis_transform(), ha="right",
        va="center_baseline", family=FONT, fontsize=POINT * SMALL, color=colour, parse_math=False,
    )  # fmt: skip


def draw_line(axes: Axes, numbers: np.ndarray, colour: str, width: float, style: str = "-") -> None:
    """A line through the finite numbers, each in the middle of its step's cell."""
    known = np.flatnonzero(np.isfinite(numbers))
    axes.plot(known + 0.5, numbers[known], color=colour, linewidth=POINT * width, linestyle=style)


class ValuePanel(FilmPanel):
    """The value of each observation and, if given, the return that followed as a dashed line."""

    height = 112
    cells = False

    def __init__(
        self, values: Float[np.ndarray, " time"], returns: Float[np.ndarray, " time"] | None
    ):
        self.title = "value of each observation"
        known = values
        if returns is not None:
            self.title += "; dashed: the discounted return that followed"
            known = np.concatenate([values, returns])
        self.values, self.returns = values, returns
        self._scale = Scale(known)

    def draw(self, axes: Axes) -> None:
        self._scale.draw(axes)
        if self.returns is not None:
            draw_line(axes, self.returns, QUIET, 1.5, "--")
        draw_line(axes, self.values, BLUE, 2.5)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        value = float(self.values[step])
        if np.isfinite(value):
            y = top + self.height * self._scale.share(value)
            canvas.disc((TimeAxis(len(self.values)).middle(step), y), 5, BLUE, PAPER)
        canvas.text((PRESENT, top + self.height / 2), format_number(value), 20, BLUE, bold=True)


class ActionPanel(FilmPanel):
    """Continuous actions, one line for each number; names may be empty."""

    height = 112
    cells = False
    title = "actions"

    def __init__(self, actions: Float[np.ndarray, "time k"], names: Sequence[str]):
        self._actions = actions.astype(float)
        self._names = list(names) if len(names) == actions.shape[1] else []

    def draw(self, axes: Axes) -> None:
        Scale(self._actions).draw(axes)
        for index, line in enumerate(self._actions.T):
            draw_line(axes, line, LINES[index % len(LINES)], 2)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        for index, number in enumerate(self._actions[step, :6]):
            name = f"{self._names[index]} " if self._names else ""
            text, place = name + format_number(float(number)), (PRESENT, top + 10 + 18 * index)
            canvas.text(place, text, 13, LINES[index % len(LINES)])


class PolicyPanel(FilmPanel):
    """The probability of each action at each step, or its value, with a dot for the one taken.

    Args:
        scores: of each action, drawn darker if larger.
        actions: those that were taken.
        names: of the actions; empty to show their numbers.
    """

    cells = True

    def __init__(self, scores: Scores, actions: np.ndarray, names: Sequence[str]):
        self.scores, self._actions = scores, actions
        count = scores.shares.shape[1]
        self._names = list(names) if len(names) == count else [str(a) for a in range(count)]
        self._row = min(24, max(1, 144 // count))
        self.height = self._row * count
        self._dot = min(4.0, self._row / 4, TimeAxis(len(actions)).cell / 3)
        self.title = scores.title
        if self._dot >= _SMALLEST_DOT:
            self.title += "; a dot marks the one taken"

    def draw(self, axes: Axes) -> None:
        shares = self.scores.shares
        steps, count = shares.shape
        share = shares.T[..., None]
        cells = (share * rgb(GREEN) + (1 - share) * rgb(PAPER)) / 255
        axes.imshow(
            np.clip(cells, 0, 1), extent=(0, steps, count, 0), aspect="auto",
            interpolation="nearest", zorder=0,
        )  # fmt: skip
        for row in range(count + 1):
            draw_rule(axes, row, FAINT)
        for row, name in enumerate(self._names if self._row >= _NAMED_ROW else ()):
            draw_name(axes, row + 0.5, name if len(name) <= 11 else name[:10] + "\u2026", INK)
        if self._dot >= _SMALLEST_DOT:
            taken = shares[np.arange(steps), self._actions.astype(int)]
            axes.scatter(
                np.arange(steps) + 0.5, self._actions + 0.5, s=(2 * POINT * self._dot) ** 2,
                c=[PAPER if dark else INK for dark in taken > 0.5], linewidths=0, zorder=2,
            )  # fmt: skip

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        taken = int(self._actions[step])
        if self._row < _NAMED_ROW:
            text = self.scores.text(step, taken)
            canvas.text((PRESENT, top + self.height / 2), self._names[taken], 14, INK, bold=True)
            canvas.text((PRESENT, top + self.height / 2 + 20), text, 14, INK)
            return
        for action, share in enumerate(self.scores.shares[step]):
            y = top + (action + 0.5) * self._row
            bar = (PRESENT, y - 6, PRESENT + max(1.0, _LONGEST_BAR * float(share)), y + 6)
            canvas.box(bar, GREEN if action == taken else mixed(GREEN, PAPER, 0.45))
            place = (PRESENT + _LONGEST_BAR + 52, y)
            colour, text = INK if action == taken else QUIET, self.scores.text(step, action)
            canvas.text(place, text, 13, colour, "rm", bold=action == taken)


class InfluencePanel(FilmPanel):
    """The share of the present decision that rests on each observation so far.

    The scale fits nine out of ten decisions; larger shares are clipped and written as numbers.

    Args:
        shares: [time, time], of each observation s in the decision t.
        way: how they were found, for the title.
    """

    height = 96
    cells = True

    def __init__(self, shares: Float[np.ndarray, "time time"], way: str = "occlusion"):
        self.title = f"memory: share of this decision that rests on each observation, by {way}"
        self.shares = shares
        self._axis = TimeAxis(len(shares))
        # The first decisions rest on few observations, and must not make all others look small.
        most = np.tril(shares, -1).max(axis=1)[shares.any(axis=1)]
        usual = float(np.quantile(most, 0.9)) if most.size else 0.0
        self._whole = next(whole for whole in (0.1, 0.25, 0.5, 1.0) if usual <= whole or whole == 1)

    def draw(self, axes: Axes) -> None:
        axes.set_ylim(0, 1)
        for part in (0.0, 0.5, 1.0):
            draw_rule(axes, part, FAINT if part else QUIET)
            draw_name(axes, part, f"{100 * part * self._whole:.3g}%")

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        row = self.shares[step]
        bottom = top + self.height
        gap = min(2.0, self._axis.cell / 6)
        for past in range(step + 1):
            share = min(1.0, float(row[past]) / self._whole)
            if share < 0.002:
                continue
            left = self._axis.left(past) + gap
            right = max(left + 1.5, self._axis.left(past + 1) - gap)
            colour = ORANGE if past < step else QUIET
            high = bottom - max(1.0, self.height * share)
            canvas.box((left, high, right, bottom), colour)
        canvas.text((PRESENT, bottom - 12), f"now {row[step]:.0%}", 14, QUIET)
        if step:
            most = int(row[:step].argmax())
            canvas.text((PRESENT, top + 14), f"past {row[:step].sum():.0%}", 16, ORANGE, bold=True)
            if row[most] >= 0.005:
                largest = f"step {most}: {row[most]:.0%}"
                canvas.text((PRESENT, top + 40), largest, 14, ORANGE)
