"""Numbers over time as lines: the value, and actions that are no choices."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from clew.envs.canvas import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, QUIET, RED, YELLOW, Canvas
from clew.watch.axis import LEFT, PRESENT, RIGHT, TimeAxis, round_numbers, written

LINES = (BLUE, ORANGE, GREEN, RED, YELLOW, INK)


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
        self.values, self.returns = values, returns
        self._scale = Scale(known, len(values), self.height)

    def draw(self, canvas: Canvas, top: float) -> None:
        """The scale and both lines."""
        self._scale.draw(canvas, top)
        if self.returns is not None:
            for piece in _dashes(self._scale.points(top, self.returns)):
                canvas.path(piece, QUIET, 1.5)
        canvas.path(self._scale.points(top, self.values), BLUE, 2.5)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """The present value as a dot and a number."""
        value = float(self.values[step])
        if np.isfinite(value):
            place = (TimeAxis(len(self.values)).middle(step), self._scale.y(top, value))
            canvas.disc(place, 5, BLUE, PAPER)
        canvas.text((PRESENT, top + self.height / 2), written(value), 20, BLUE, bold=True)


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
