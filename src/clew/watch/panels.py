"""What stands below the picture, over one time axis; lines are in `clew.watch.lines`."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float

from clew.envs.canvas import FAINT, GREEN, INK, ORANGE, PAPER, QUIET, Canvas, mixed
from clew.watch.axis import LEFT, PRESENT, RIGHT, TimeAxis

_NAMED_ROW, _LONGEST_BAR, _SMALLEST_DOT = 13, 62, 0.8


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


class PolicyPanel:
    """The probability of each action at each step, darker if likelier; a dot for the one taken.

    Args:
        probabilities: [time, actions].
        actions: that were taken.
        names: of the actions, empty for their numbers.
    """

    cells = True

    def __init__(
        self,
        probabilities: Float[np.ndarray, "time actions"],
        actions: np.ndarray,
        names: Sequence[str],
    ):
        self.probabilities, self._actions = probabilities, actions
        count = probabilities.shape[1]
        self._names = list(names) if len(names) == count else [str(a) for a in range(count)]
        self._row = min(24, max(1, 144 // count))
        self.height = self._row * count
        self._axis = TimeAxis(len(actions))
        self._dot = min(4.0, self._row / 4, self._axis.cell / 3)
        self.title = "policy: probability of each action"
        if self._dot >= _SMALLEST_DOT:
            self.title += "; a dot marks the one taken"

    def draw(self, canvas: Canvas, top: float) -> None:
        """A cell for each step and action."""
        for action in range(self.probabilities.shape[1]):
            high = top + action * self._row
            low = high + self._row
            for step, share in enumerate(self.probabilities[:, action]):
                across = (self._axis.left(step), self._axis.left(step + 1))
                canvas.box((across[0], high, across[1], low), mixed(GREEN, PAPER, float(share)))
            canvas.path([(LEFT, high), (RIGHT, high)], FAINT, 1)
            if self._row >= _NAMED_ROW:
                name = self._names[action]
                name = name if len(name) <= 11 else name[:10] + "\u2026"
                canvas.text((LEFT - 10, high + self._row / 2), name, 13, INK, "rm")
        canvas.path([(LEFT, top + self.height), (RIGHT, top + self.height)], FAINT, 1)
        if self._dot < _SMALLEST_DOT:
            return
        for step, action in enumerate(self._actions):
            dark = self.probabilities[step, action] > 0.5
            centre = (self._axis.middle(step), top + (action + 0.5) * self._row)
            canvas.disc(centre, self._dot, PAPER if dark else INK)

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """The present probabilities as bars, if there is room, else that of the action taken."""
        taken = int(self._actions[step])
        if self._row < _NAMED_ROW:
            share = float(self.probabilities[step, taken])
            canvas.text((PRESENT, top + self.height / 2), self._names[taken], 14, INK, bold=True)
            canvas.text((PRESENT, top + self.height / 2 + 20), f"{share:.0%}", 14, INK)
            return
        for action, share in enumerate(self.probabilities[step]):
            y = top + (action + 0.5) * self._row
            bar = (PRESENT, y - 6, PRESENT + max(1.0, _LONGEST_BAR * float(share)), y + 6)
            canvas.box(bar, GREEN if action == taken else mixed(GREEN, PAPER, 0.45))
            place = (PRESENT + _LONGEST_BAR + 52, y)
            colour = INK if action == taken else QUIET
            canvas.text(place, f"{share:.0%}", 13, colour, "rm", bold=action == taken)


class InfluencePanel:
    """The share of the present decision that rests on each observation so far.

    The scale holds for nine decisions out of ten; what is above it is cut, and told as a number.

    Args:
        shares: [time, time], of each observation s in the decision t.
        way: how it was found, for the title.
    """

    height = 96
    cells = True

    def __init__(self, shares: Float[np.ndarray, "time time"], way: str = "ablation"):
        how = {"ablation": "by taking it away", "gradient": "by gradient"}.get(way, way)
        self.title = f"memory: share of this decision that rests on each observation, {how}"
        self.shares = shares
        self._axis = TimeAxis(len(shares))
        # The first decisions rest on few observations; they shall not make all others small.
        most = np.tril(shares, -1).max(axis=1)[shares.any(axis=1)]
        usual = float(np.quantile(most, 0.9)) if most.size else 0.0
        self._whole = next(whole for whole in (0.1, 0.25, 0.5, 1.0) if usual <= whole or whole == 1)

    def draw(self, canvas: Canvas, top: float) -> None:
        """The scale."""
        for part in (0.0, 0.5, 1.0):
            y = top + self.height * (1 - part)
            canvas.path([(LEFT, y), (RIGHT, y)], FAINT if part else QUIET, 1)
            canvas.text((LEFT - 10, y), f"{100 * part * self._whole:.3g}%", 13, QUIET, "rm")

    def draw_present(self, canvas: Canvas, top: float, step: int) -> None:
        """A bar for each observation, and the numbers of the present and of the largest other."""
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
                told = f"step {most}: {row[most]:.0%}"
                canvas.text((PRESENT, top + 40), told, 14, ORANGE)
