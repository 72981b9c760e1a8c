"""An episode as frames: the task's picture above panels for value, policy and memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import IdentityTransform
from PIL import Image

from clew.envs.canvas import INK, QUIET, Canvas
from clew.errors import require_at_least
from clew.interact.episodes import Recording
from clew.watch.panels import (
    FONT,
    LEFT,
    MARGIN,
    POINT,
    RIGHT,
    SMALL,
    WIDTH,
    ActionPanel,
    FilmPanel,
    InfluencePanel,
    PolicyPanel,
    TimeAxis,
    ValuePanel,
)
from clew.watch.pictures import fitted, picture_of
from clew.watch.scores import format_number, scores_of
from clew.watch.video import Frame

DPI = 100
PIXELS = IdentityTransform()
_HALF_LINE = 0.346
"""Distance from the middle of a line of the font to its baseline, relative to its size."""
_HEADER, _TITLE_LINE, _GAP, _FOOT = 70, 26, 16, 44
_AHEAD = 0.3
"""Opacity of the future."""


class Caption(NamedTuple):
    """The text above an episode."""

    title: str
    """The name of the agent."""
    about: str = ""
    """The task and how it is being played."""


def shown_steps(steps: int, max_frames: int) -> Int[np.ndarray, " frames"]:
    """The steps that become frames: all, or evenly spaced ones including the first and the last.

    Args:
        steps: of the episode.
        max_frames: the most frames, at least 1; a single one is the last step.

    Raises:
        UserError: for fewer than one frame.
    """
    require_at_least("max_frames", max_frames, 1)
    if steps <= max_frames:
        return np.arange(steps)
    return np.round(np.linspace(steps - 1, 0, max_frames)).astype(int)[::-1]


class Film(Sequence[Frame]):
    """The frames of an episode, each drawn on access.

    All panels share one time axis; the past is drawn in full, the future faintly, and a line
    marks the present step. The whole episode is drawn once by matplotlib; a frame adds the task's
    picture and the numbers of its step.

    Args:
        influence: [T, T] the share of observation s in decision t; None leaves that panel out.
        way: how the influence was found, for its title.
        gamma: the discount, to draw the discounted return; None leaves it out.
        max_frames: most steps to show of a longer episode; the frames then say so.
    """

    def __init__(
        self,
        recording: Recording,
        caption: Caption,
        influence: Float[np.ndarray, "time time"] | None = None,
        *,
        way: str = "occlusion",
        gamma: float | None = None,
        max_frames: int = 500,
    ):
        self.steps = shown_steps(recording.length, max_frames)
        self._recording, self._caption = recording, caption
        self._axis = TimeAxis(recording.length)
        self.panels = make_panels(recording, influence, way, gamma)
        self._earned = np.cumsum(np.asarray(recording.earned, float))
        # All frames of a video have one size, so the first picture decides the height.
        self._room = fitted(picture_of(recording, 0)).shape[:2]
        self._tops, top = [], _HEADER + self._room[0] + _GAP + _TITLE_LINE
        for panel in self.panels:
            self._tops.append(top)
            top += panel.height + _GAP + _TITLE_LINE
        self._bottom = top - _GAP - _TITLE_LINE
        foot = _FOOT + (24 if self._note() else 0)
        # Even, because most players of MP4 require that.
        self.height = self._bottom + foot + (self._bottom + foot) % 2
        self._past = self._background()
        self._ahead = self._past.copy()
        for panel, top in zip(self.panels, self._tops, strict=True):
            strip = self._ahead[top - 2 : top + panel.height + 2, LEFT:RIGHT]
            strip[:] = (_AHEAD * strip + (1 - _AHEAD) * 255).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        step = int(self.steps[index])
        frame = self._ahead.copy()
        for panel, top in zip(self.panels, self._tops, strict=True):
            now = round(self._axis.left(step + 1) if panel.cells else self._axis.middle(step))
            strip = slice(top - 2, top + panel.height + 2)
            frame[strip, :now] = self._past[strip, :now]
        picture = fitted(picture_of(self._recording, step), self._room)
        (high, wide), left = picture.shape[:2], (WIDTH - picture.shape[1]) // 2
        frame[_HEADER : _HEADER + high, left : left + wide] = picture
        canvas = Canvas.onto(Image.fromarray(frame))
        x = self._axis.middle(step)
        for panel, top in zip(self.panels, self._tops, strict=True):
            canvas.path([(x, top - 3), (x, top + panel.height + 3)], INK, 1)
            panel.draw_present(canvas, top, step)
        self._write_header(canvas, step)
        return canvas.pixels()

    def _background(self) -> Frame:
        """The drawing of the whole episode, without anything that belongs to one step."""
        figure = Figure((WIDTH / DPI, self.height / DPI), dpi=DPI)
        canvas = FigureCanvasAgg(figure)
        self._write(figure, (MARGIN, 26), self._caption.title, 19, INK, weight="bold")
        self._write(figure, (MARGIN, 52), self._caption.about, 14, QUIET)
        self._write(figure, (LEFT, self._bottom + 44), self._note(), SMALL, INK)
        self._write(figure, (LEFT - 10, self._bottom + 20), "step", SMALL, QUIET, ha="right")
        for panel, top in zip(self.panels, self._tops, strict=True):
            self._write(figure, (LEFT, top - 14), panel.title, SMALL, QUIET)
            axes = figure.add_axes(self._place(top, panel.height))
            axes.set_axis_off()
            panel.draw(axes)
            axes.set_xlim(0, self._axis.steps)
        for tick in self._axis.ticks():
            x, y = self._axis.middle(tick), self.height - self._bottom
            mark = Line2D((x, x), (y - 2, y - 7), color=QUIET, linewidth=POINT, transform=PIXELS)
            figure.add_artist(mark)
            self._write(figure, (x, self._bottom + 20), str(tick), SMALL, QUIET, ha="center")
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _place(self, top: float, height: float) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a strip, as fractions of the figure."""
        bottom = (self.height - top - height) / self.height
        return LEFT / WIDTH, bottom, (RIGHT - LEFT) / WIDTH, height / self.height

    def _write(
        self,
        figure: Figure,
        at: tuple[float, float],
        text: str,
        size: float,
        colour: str,
        **how: Any,
    ) -> None:
        """A line of text; `at`, in pixels from the top left, is at half the height of the text."""
        y = self.height - at[1] - _HALF_LINE * size
        figure.text(
            at[0], y, text, transform=PIXELS, va="baseline", family=FONT,
            fontsize=size * POINT, color=colour, parse_math=False, **how,
        )  # fmt: skip

    def _note(self) -> str:
        """A remark on the part of the episode that is not shown."""
        notes = []
        if len(self) < self._recording.length:
            notes.append(f"{len(self)} of {self._recording.length:,} steps are shown")
        if self._recording.ended == "cut":
            notes.append(f"recording was cut after {self._recording.length:,} steps")
        return "; ".join(notes)

    def _write_header(self, canvas: Canvas, step: int) -> None:
        recording, right = self._recording, WIDTH - MARGIN
        place = f"step {step} of {recording.length - 1}"
        canvas.text((right, 26), place, 19, INK, "rm", bold=True)
        words = [_action(recording, step), f"reward {format_number(float(recording.earned[step]))}"]
        words.append(f"return {format_number(float(self._earned[step]))}")
        if step == recording.length - 1:
            words.append(_ending(recording))
        canvas.text((right, 52), "   ".join(filter(None, words)), 14, INK, "rm")


def make_panels(
    recording: Recording,
    influence: Float[np.ndarray, "time time"] | None,
    way: str,
    gamma: float | None,
) -> list[FilmPanel]:
    """The panels for which the recording has data."""
    returns = None if gamma is None else recording.returns(gamma)
    found: list[FilmPanel] = [ValuePanel(np.asarray(recording.values, float), returns)]
    actions, scores = np.asarray(recording.actions), scores_of(recording)
    if scores is not None:
        found.append(PolicyPanel(scores, actions, recording.action_names))
    elif actions.ndim > 1 or np.issubdtype(actions.dtype, np.floating):
        found.append(ActionPanel(actions.reshape(len(actions), -1), recording.action_names))
    if influence is not None:
        found.append(InfluencePanel(influence, way))
    return found


def _action(recording: Recording, step: int) -> str:
    if recording.probabilities is None:
        return ""
    action, names = int(recording.actions[step]), recording.action_names
    return f"action {names[action] if action < len(names) else action}"


def _ending(recording: Recording) -> str:
    if "success" in recording.metrics:
        return "success" if recording.metrics["success"] else "no success"
    return recording.ended
