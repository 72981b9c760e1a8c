"""What stands below the picture: value, policy and influence over one time axis."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float

from clew.canvas import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, QUIET, RED, YELLOW, Canvas, mixed
from clew.watch.axis import LEFT, RIGHT, TimeAxis, round_numbers, written

PRESENT = RIGHT + 18
"""Where the numbers of the present begin."""
LINES = (BLUE, ORANGE, GREEN, RED, YELLOW, INK)
_NAMED_ROW, _LONGEST_BAR = 13, 62


class Panel(Protocol):
    """A strip of a frame, `height` pixels high."""

    title: str
    height: int
    cells: bool
    """Whether a step takes its whole cell, or is the point in the middle of it."""

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws what does not change from frame to frame: the whole episode."""

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """Draws what is true of one step, beside the strip and into it."""


class Scale:
    """Numbers over time in a strip: where each is, and the lines that are named.

    Args:
        numbers: all that have to fit.
        steps: of the episode.
        height: of the strip, in pixels.
    """

    def __init__(self, numbers: np.ndarray, steps: int, height: int):
        known = numbers[np.isfinite(numbers)] if np.isfinite(numbers).any() else np.zeros(1)
        low, high = float(known.min()), float(known.max())
        room = 0.08 * (high - low) or 0.5
        self._low, self._high = low - room, high + room
        self._axis, self._height = TimeAxis(steps), height

    def y(self, top: float, number: float) -> float:
        """Where a number is down the frame."""
        return top + self._height * (self._high - number) / (self._high - self._low)

    def points(self, top: float, numbers: np.ndarray) -> list[tuple[float, float]]:
        """A line through the numbers that are finite."""
        known = np.flatnonzero(np.isfinite(numbers)).tolist()
        return [(self._axis.middle(t), self.y(top, float(numbers[t]))) for t in known]

    def draw(self, canvas: Canvas, top: float) -> None:
        """Lines at round numbers."""
        for tick in round_numbers(self._low, self._high, 4):
            y = self.y(top, tick)
            canvas.path([(LEFT, y), (RIGHT, y)], FAINT if tick else QUIET, 1)
            canvas.text((LEFT - 10, y), written(tick), 13, QUIET, "rm")


class ValuePanel:
    """The value of each observation, and dashed what came after it.

    Args:
        values: of each step.
        returns: what came after it, as far as it is known; None draws none.
    """

    height = 112
    cells = False

    def __init__(
        self, values: Float[np.ndarray, " time"], returns: Float[np.ndarray, " time"] | None
    ):
        self.title = "value of what is seen"
        known = values
        if returns is not None:
            self.title += "; dashed: the discounted return that came"
            known = np.concatenate([values, returns])
        self._values, self._returns = values, returns
        self._scale = Scale(known, len(values), self.height)

    def draw(self, canvas: Canvas, top: float) -> None:
        """The scale and both lines."""
        self._scale.draw(canvas, top)
        if self._returns is not None:
            for piece in _dashes(self._scale.points(top, self._returns)):
                canvas.path(piece, QUIET, 1.5)
        canvas.path(self._scale.points(top, self._values), BLUE, 2.5)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """The present value as a dot and a number."""
        value = float(self._values[step])
        if np.isfinite(value):
            place = (TimeAxis(len(self._values)).middle(step), self._scale.y(top, value))
            canvas.disc(place, 5, BLUE, PAPER)
        canvas.text((PRESENT, top + self.height / 2), written(value), 20, BLUE, bold=True)


class PolicyPanel:
    """The probability of each action at each step, the darker the likelier; a dot for the taken.

    Args:
        probabilities: [time, actions].
        actions: that were taken.
        names: of the actions, empty for their numbers.
    """

    title = "policy: probability of each action; a dot marks the one taken"
    cells = True

    def __init__(
        self,
        probabilities: Float[np.ndarray, "time actions"],
        actions: np.ndarray,
        names: Sequence[str],
    ):
        self._probabilities, self._actions = probabilities, actions
        count = probabilities.shape[1]
        self._names = list(names) if len(names) == count else [str(a) for a in range(count)]
        self._row = min(24, max(1, 144 // count))
        self.height = self._row * count
        self._axis = TimeAxis(len(actions))

    def draw(self, canvas: Canvas, top: float) -> None:
        """A cell for each step and action."""
        for action in range(self._probabilities.shape[1]):
            high = top + action * self._row
            low = high + self._row
            for step, share in enumerate(self._probabilities[:, action]):
                across = (self._axis.left(step), self._axis.left(step + 1))
                canvas.box((across[0], high, across[1], low), mixed(GREEN, PAPER, float(share)))
            canvas.path([(LEFT, high), (RIGHT, high)], FAINT, 1)
            if self._row >= _NAMED_ROW:
                name = self._names[action]
                name = name if len(name) <= 11 else name[:10] + "\u2026"
                canvas.text((LEFT - 10, high + self._row / 2), name, 13, INK, "rm")
        canvas.path([(LEFT, top + self.height), (RIGHT, top + self.height)], FAINT, 1)
        radius = min(4.0, self._row / 4, self._axis.cell / 3)
        if radius < 0.8:
            return
        for step, action in enumerate(self._actions):
            dark = self._probabilities[step, action] > 0.5
            centre = (self._axis.middle(step), top + (action + 0.5) * self._row)
            canvas.disc(centre, radius, PAPER if dark else INK)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """The present probabilities as bars, if there is room, else that of the action taken."""
        taken = int(self._actions[step])
        if self._row < _NAMED_ROW:
            share = float(self._probabilities[step, taken])
            canvas.text((PRESENT, top + self.height / 2), self._names[taken], 14, INK, bold=True)
            canvas.text((PRESENT, top + self.height / 2 + 20), f"{share:.0%}", 14, INK)
            return
        for action, share in enumerate(self._probabilities[step]):
            y = top + (action + 0.5) * self._row
            bar = (PRESENT, y - 6, PRESENT + max(1.0, _LONGEST_BAR * float(share)), y + 6)
            canvas.box(bar, GREEN if action == taken else mixed(GREEN, PAPER, 0.45))
            place = (PRESENT + _LONGEST_BAR + 52, y)
            colour = INK if action == taken else QUIET
            canvas.text(place, f"{share:.0%}", 13, colour, "rm", bold=action == taken)


class ActionPanel:
    """Actions that are numbers and no choices, a line each.

    Args:
        actions: [time, k].
        names: of the numbers, empty for none.
    """

    height = 112
    cells = False
    title = "actions"

    def __init__(self, actions: Float[np.ndarray, "time k"], names: Sequence[str]):
        self._actions = actions.astype(float)
        self._names = list(names) if len(names) == actions.shape[1] else []
        self._scale = Scale(self._actions, len(actions), self.height)

    def draw(self, canvas: Canvas, top: float) -> None:
        """The scale and the lines."""
        self._scale.draw(canvas, top)
        for index, line in enumerate(self._actions.T):
            canvas.path(self._scale.points(top, line), LINES[index % len(LINES)], 2)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """The present numbers, as many as there is room for."""
        for index, number in enumerate(self._actions[step, :6]):
            name = f"{self._names[index]} " if self._names else ""
            place = (PRESENT, top + 10 + 18 * index)
            canvas.text(place, f"{name}{written(float(number))}", 13, LINES[index % len(LINES)])


class InfluencePanel:
    """The share of the present decision that rests on each observation so far.

    Args:
        shares: [time, time], of each observation s in the decision t.
        way: how it was found, for the title.
    """

    height = 96
    cells = True

    def __init__(self, shares: Float[np.ndarray, "time time"], way: str = "ablation"):
        how = {"ablation": "by taking it away", "gradient": "by gradient"}.get(way, way)
        self.title = f"memory: share of this decision that rests on each observation, {how}"
        self._shares = shares
        self._axis = TimeAxis(len(shares))
        # The first decision rests on the present alone; the scale is that of what was remembered.
        most = float(np.tril(shares, -1).max())
        self._whole = next(whole for whole in (0.1, 0.25, 0.5, 1.0) if most <= whole or whole == 1)

    def draw(self, canvas: Canvas, top: float) -> None:
        """The scale."""
        for part in (0.0, 0.5, 1.0):
            y = top + self.height * (1 - part)
            canvas.path([(LEFT, y), (RIGHT, y)], FAINT if part else QUIET, 1)
            canvas.text((LEFT - 10, y), f"{100 * part * self._whole:.3g}%", 13, QUIET, "rm")

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """A bar for each observation, and the numbers of the present and of the largest other."""
        row = self._shares[step]
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
                told = f"step {most}: {row[most]:.0%}"
                canvas.text((PRESENT, top + 40), told, 14, ORANGE)


def _dashes(points: list[tuple[float, float]], on: float = 6.0) -> list[list[tuple[float, float]]]:
    """A line cut into pieces of about `on` pixels with gaps as long."""
    if len(points) < 2:
        return []
    corners = np.array(points)
    lengths = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    marks = np.arange(0.0, max(on, lengths[-1]), on)
    xs, ys = (np.interp(marks, lengths, corners[:, axis]).tolist() for axis in (0, 1))
    dots = list(zip(xs, ys, strict=True))
    return [dots[i : i + 2] for i in range(0, len(dots) - 1, 2)]
