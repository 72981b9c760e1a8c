"""An episode as frames: the task's picture, and below it what the agent made of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from clew.envs.canvas import INK, QUIET, Canvas
from clew.errors import require_at_least
from clew.interact.recording import Recording
from clew.watch.axis import LEFT, MARGIN, RIGHT, WIDTH, TimeAxis, written
from clew.watch.lines import ActionPanel, ValuePanel
from clew.watch.panels import InfluencePanel, Panel, PolicyPanel
from clew.watch.pictures import fitted, picture_of

Frame = UInt8[np.ndarray, "height width 3"]

_HEADER, _TITLE_LINE, _GAP, _FOOT = 70, 26, 16, 44
_AHEAD = 0.3
"""How strongly what is still to come is drawn."""


class Caption(NamedTuple):
    """What is written above an episode."""

    title: str
    """Who plays."""
    about: str = ""
    """What is played and how."""


def shown_steps(steps: int, max_frames: int) -> Int[np.ndarray, " frames"]:
    """The steps that become frames: all, or evenly spread ones with the first and the last.

    Args:
        steps: of the episode.
        max_frames: at most so many, at least 1; with 1 it is the last step.

    Raises:
        UserError: for fewer than one frame.
    """
    require_at_least("max_frames", max_frames, 1)
    if steps <= max_frames:
        return np.arange(steps)
    return np.round(np.linspace(steps - 1, 0, max_frames)).astype(int)[::-1]


class Film(Sequence[Frame]):
    """The frames of an episode, each drawn when it is asked for.

    All panels share one time axis; what has happened is drawn in full, what is still to come
    faintly, and a line marks the present.

    Args:
        recording: the episode.
        caption: what is written above it.
        influence: [T, T] the share of observation s in decision t; None leaves that panel out.
        way: how the influence was found, for its title.
        gamma: the discount, to draw the return that came; None draws none.
        max_frames: of a longer episode only so many steps are shown, and the picture says so.
    """

    def __init__(
        self,
        recording: Recording,
        caption: Caption,
        influence: Float[np.ndarray, "time time"] | None = None,
        *,
        way: str = "ablation",
        gamma: float | None = None,
        max_frames: int = 500,
    ):
        self.steps = shown_steps(recording.length, max_frames)
        self._recording, self._caption = recording, caption
        self._axis = TimeAxis(recording.length)
        self.panels = make_panels(recording, influence, way, gamma)
        self._earned = np.cumsum(np.asarray(recording.earned, float))
        # The first picture settles the height of all, as a video's frames have one size.
        self._room = fitted(picture_of(recording, 0)).shape[:2]
        self._tops, top = [], _HEADER + self._room[0] + _GAP + _TITLE_LINE
        for panel in self.panels:
            self._tops.append(top)
            top += panel.height + _GAP + _TITLE_LINE
        self._bottom = top - _GAP - _TITLE_LINE
        foot = _FOOT + (24 if self._note() else 0)
        # Even, because most players of MP4 want it so.
        self.height = self._bottom + foot + (self._bottom + foot) % 2
        self._past, self._ahead = self._backgrounds()

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        step = int(self.steps[index])
        frame = self._ahead.copy()
        for panel, top in zip(self.panels, self._tops, strict=True):
            now = round(self._axis.left(step + 1) if panel.cells else self._axis.middle(step))
            strip = slice(top - 2, top + panel.height + 2)
            frame[strip, :now] = self._past[strip, :now]
        self._paste(frame, fitted(picture_of(self._recording, step), self._room))
        from PIL import Image

        canvas = Canvas.onto(Image.fromarray(frame))
        x = self._axis.middle(step)
        for panel, top in zip(self.panels, self._tops, strict=True):
            canvas.path([(x, top - 3), (x, top + panel.height + 3)], INK, 1)
            panel.draw_present(canvas, top, step)
        self._write_header(canvas, step)
        return canvas.pixels()

    def _backgrounds(self) -> tuple[np.ndarray, np.ndarray]:
        """All of the episode drawn in full, and the same with the strips drawn faintly."""
        canvas = Canvas(WIDTH, self.height)
        canvas.text((MARGIN, 26), self._caption.title, 19, INK, bold=True)
        canvas.text((MARGIN, 52), self._caption.about, 14, QUIET)
        for panel, top in zip(self.panels, self._tops, strict=True):
            canvas.text((LEFT, top - 14), panel.title, 13, QUIET)
            panel.draw(canvas, top)
        for tick in self._axis.ticks():
            x = self._axis.middle(tick)
            canvas.path([(x, self._bottom + 2), (x, self._bottom + 7)], QUIET, 1)
            canvas.text((x, self._bottom + 20), str(tick), 13, QUIET, "mm")
        canvas.text((LEFT - 10, self._bottom + 20), "step", 13, QUIET, "rm")
        note = self._note()
        if note:
            canvas.text((LEFT, self._bottom + 44), note, 13, INK)
        past = canvas.pixels()
        ahead = past.copy()
        for panel, top in zip(self.panels, self._tops, strict=True):
            strip = ahead[top - 2 : top + panel.height + 2, LEFT:RIGHT]
            strip[:] = (_AHEAD * strip + (1 - _AHEAD) * 255).astype(np.uint8)
        return past, ahead

    def _note(self) -> str:
        """What is not shown of the episode."""
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
        told = [_action(recording, step), f"reward {written(float(recording.earned[step]))}"]
        told.append(f"return {written(float(self._earned[step]))}")
        if step == recording.length - 1:
            told.append(_ending(recording))
        canvas.text((right, 52), "   ".join(filter(None, told)), 14, INK, "rm")

    def _paste(self, frame: np.ndarray, picture: np.ndarray) -> None:
        high, wide = picture.shape[:2]
        top, left = _HEADER, (WIDTH - wide) // 2
        frame[top : top + high, left : left + wide] = picture


def make_panels(
    recording: Recording,
    influence: Float[np.ndarray, "time time"] | None,
    way: str,
    gamma: float | None,
) -> list[Panel]:
    """The panels below the picture, as far as the recording has what they show."""
    returns = None if gamma is None else recording.returns(gamma)
    found: list[Panel] = [ValuePanel(np.asarray(recording.values, float), returns)]
    actions = np.asarray(recording.actions)
    if recording.probabilities is not None:
        chances = np.asarray(recording.probabilities, float)
        found.append(PolicyPanel(chances, actions, recording.action_names))
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
