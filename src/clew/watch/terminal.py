"""An episode played in the terminal, as text."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import numpy as np
from jaxtyping import Float

from clew.errors import UserError
from clew.interact.episodes import Recording
from clew.watch.film import Caption, shown_steps
from clew.watch.scores import Scores, format_number, scores_of
from clew.watch.video import check_fps

BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_COLUMNS, _BAR = 60, 20
_MOST_ACTIONS, _MOST_NUMBERS = 8, 60


def text_frame(
    recording: Recording, step: int, influence: Float[np.ndarray, "time time"] | None = None
) -> str:
    """One step as lines of text: the task, value, policy, and the influence on the decision.

    A task without text is shown by the numbers of its observation as blocks, full for the largest.

    Steps are counted from 0; the influence may be None.

    Raises:
        UserError: for image observations of a task without text.
    """
    if recording.texts is not None:
        lines = recording.texts[step].rstrip("\n").split("\n")
    else:
        lines = [_numbers(recording, step)]
    action = recording.actions[step]
    header = [f"step {step} of {recording.length - 1}", f"reward {_plain(recording.earned[step])}"]
    lines += ["  ".join(header), f"{'value':>10} {_plain(recording.values[step])}"]
    scores = scores_of(recording)
    if scores is None:
        lines.append(f"{'action':>10} {' '.join(map(_plain, np.ravel(action)))}")
    else:
        lines += _policy(recording, scores, step)
    if influence is not None:
        row = influence[step, : step + 1]
        most = f"  most: step {int(row.argmax())}, {row.max():.0%}" if row.max() > 0 else ""
        lines.append(f"{'rests on':>10} |{_blocks(row, recording.length)}|{most}")
    return "\n".join(lines) + "\n"


def play(
    recording: Recording,
    caption: Caption,
    influence: Float[np.ndarray, "time time"] | None = None,
    *,
    fps: float = 10,
    max_frames: int = 500,
    stream: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Plays an episode; on a terminal each frame replaces the previous one.

    Args:
        fps: frames per second.
        max_frames: most steps to show of a longer episode.
        stream: the stream to write to, by default standard output.
        sleep: waits for a number of seconds.

    Raises:
        UserError: see `text_frame`, and for an impossible number of frames.
    """
    check_fps(fps)
    stream = sys.stdout if stream is None else stream
    assert stream is not None
    lines = 0
    stream.write(f"{caption.title}: {caption.about}\n")
    for step in shown_steps(recording.length, max_frames):
        frame = text_frame(recording, int(step), influence)
        if lines and stream.isatty():
            stream.write(f"\x1b[{lines}A\x1b[J")
        elif lines:
            stream.write("\n")
        stream.write(frame)
        stream.flush()
        lines = frame.count("\n")
        sleep(1 / fps)
    metrics = [f"{name} {_plain(value)}" for name, value in recording.metrics.items()]
    stream.write(f"{recording.ended}: {', '.join(metrics) or 'the episode was not over'}\n")


def _policy(recording: Recording, scores: Scores, step: int) -> Sequence[str]:
    shares, taken = scores.shares[step], int(recording.actions[step])
    names = recording.action_names
    # The most preferred actions, and always the one that was taken.
    order = sorted(range(len(shares)), key=lambda a: (a != taken, -shares[a]))
    lines = []
    for action in sorted(order[:_MOST_ACTIONS]):
        name = names[action] if action < len(names) else f"action {action}"
        bar = "\u2588" * round(_BAR * float(shares[action]))
        mark = " <" if action == taken else ""
        text = scores.text(step, action).replace("\u2212", "-")
        lines.append(f"{name[:10]:>10} {bar:<{_BAR}} {text:>4}{mark}")
    return lines


def _numbers(recording: Recording, step: int) -> str:
    if isinstance(recording.observations, dict) or np.ndim(recording.observations) > 2:
        raise UserError("--terminal needs a task that renders text or has vector observations")
    seen = np.reshape(recording.observations, (recording.length, -1))
    largest = float(np.abs(seen).max()) or 1.0
    marks = [BLOCKS[round(8 * abs(float(x)) / largest)] for x in seen[step, :_MOST_NUMBERS]]
    more = " ..." if seen.shape[1] > _MOST_NUMBERS else ""
    return f"{'sees':>10} |{''.join(marks)}|{more}"


def _blocks(row: Float[np.ndarray, " steps"], steps: int) -> str:
    """Shares over time as blocks, full for the largest; the columns span the whole episode."""
    columns = min(steps, _COLUMNS)
    found = np.zeros(columns)
    np.maximum.at(found, np.arange(len(row)) * columns // steps, row)
    scale = found.max() or 1.0
    return "".join(BLOCKS[int(np.ceil(8 * share / scale - 1e-9))] for share in found)


def _plain(number: float) -> str:
    return format_number(float(number)).replace("\u2212", "-")
